// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kustomize writes the manifests of deploy/kustomize that the chart has, too, from the
// chart:
//
//	go -C test/kubernetes/cluster run ./kustomize ../../../deploy
package main

import (
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
)

// file is a file of deploy/kustomize.
type file struct {
	path     string // below deploy/kustomize
	template string // the chart's template that it is made from
	kind     string // the kind of the only object that it has; empty for all
	release  string // the name of the chart's release, by which the objects are named
	// namespace is that of the objects.
	namespace string
	values    string
}

const daemon, driver = "csi-proxy", "csi-example-driver"

var files = []file{
	{"base/serviceaccount.yaml", "serviceaccount", "", daemon, daemon, ""},
	{"hostprocess/daemonset.yaml", "daemonset", "", daemon, daemon, "mode: container"},
	{"service/daemonset.yaml", "daemonset", "", daemon, daemon, ""},
	{"azure/hostprocess/daemonset.yaml", "daemonset", "", daemon, daemon, "{mode: container, protectedVolumes: ['D:']}"},
	{"azure/service/daemonset.yaml", "daemonset", "", daemon, daemon, "protectedVolumes: ['D:']"},
	{"remove-service/daemonset.yaml", "daemonset", "", daemon, daemon, "mode: removeService"},
	{"kubectl-plugin/viewers.yaml", "kubectl-plugin", "", daemon, daemon, "kubectlPlugin: {viewers: {enabled: true}}"},
	{"kubectl-plugin/why.yaml", "kubectl-plugin", "", daemon, daemon, "kubectlPlugin: {why: {enabled: true}}"},
	{"kubectl-plugin/node-administrators.yaml", "kubectl-plugin", "", daemon, daemon,
		"kubectlPlugin: {nodeAdministrators: {enabled: true}}"},
	{"metrics-reader/rbac.yaml", "metrics-reader", "", daemon, daemon,
		"{kubectlPlugin: {viewers: {enabled: true}, why: {enabled: true}}, metrics: {bindAddress: ''}}"},
	{"example-driver/base/csidriver.yaml", "example-driver", "CSIDriver", "csi", driver, classic},
	{"example-driver/base/serviceaccount.yaml", "example-driver", "ServiceAccount", "csi", driver, classic},
	{"example-driver/classic/daemonset.yaml", "example-driver", "DaemonSet", "csi", driver, classic},
	{"example-driver/hostprocess/daemonset.yaml", "example-driver", "DaemonSet", "csi", driver,
		"exampleDriver: {enabled: true, mode: hostProcess, image: 'csi-example-driver:hostprocess'}"},
}

const classic = "exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}"

const header = `# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Made by make generate from deploy/charts/csi-proxy. Change that.

`

func main() {
	deploy := os.Args[1]
	for _, f := range files {
		rendered, err := manifests.Render(filepath.Join(deploy, "charts/csi-proxy"), f.release, f.namespace, f.values)
		if err != nil {
			log.Fatal(err)
		}
		content := header + withoutHelm(rendered["csi-proxy/templates/"+f.template+".yaml"], f.kind)
		if err := os.WriteFile(filepath.Join(deploy, "kustomize", f.path), []byte(content), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

var (
	// helmLabels are the labels that say which release of the chart an object is of.
	helmLabels = regexp.MustCompile(`(?m)^ *(app\.kubernetes\.io/(instance|managed-by|version)|helm\.sh/chart): .*\n`)
	blankLines = regexp.MustCompile(`(?m)^ *\n`)
)

// withoutHelm returns the documents of a kind, or all, without what only Helm needs.
func withoutHelm(rendered, kind string) string {
	var documents []string
	for document := range strings.SplitSeq(helmLabels.ReplaceAllString(rendered, ""), "\n---\n") {
		document = blankLines.ReplaceAllString(document+"\n", "")
		document = strings.TrimPrefix(document, "---\n")
		if strings.Contains(document, "kind: ") && (kind == "" || strings.Contains(document, "\nkind: "+kind+"\n")) {
			documents = append(documents, document)
		}
	}
	return strings.Join(documents, "---\n")
}
