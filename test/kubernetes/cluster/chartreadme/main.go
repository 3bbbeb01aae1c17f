// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chartreadme prints the README of the chart, which is made of its values.yaml:
//
//	go -C test/kubernetes/cluster run ./chartreadme <deploy/charts/csi-proxy/values.yaml
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const aboutChart = `# CSI Proxy

CSI Proxy does storage operations on Windows nodes for CSI drivers: it partitions disks, formats and
mounts volumes, and maps shares. This chart runs it on each Windows node of a cluster.

**There is no release yet:** nobody has published an image or this chart. Push both to your own
registry first; the last lines that make publish prints name them, with their versions.
Until https://github.com/csi-proxy/csi-proxy is public, clone the URL from which you have this page:

` + "```sh" + `
git clone URL csi-proxy && cd csi-proxy
make publish REGISTRY=registry.example.com
kubectl create namespace csi-proxy
kubectl label namespace csi-proxy pod-security.kubernetes.io/enforce=privileged
helm install csi-proxy oci://registry.example.com/charts/csi-proxy --version VERSION --namespace csi-proxy --set image.repository=registry.example.com/csi-proxy
` + "```" + `

By default it is a Windows service, which takes the place of a published CSI Proxy and stays when
the release is uninstalled.
[install.md](https://github.com/csi-proxy/csi-proxy/blob/main/docs/install.md) says which Windows
and containerd it needs, and how it is upgraded and removed. **No version has run on a real Windows
node yet.**

## Values

| value | default | what it is |
|---|---|---|
`

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	_, below, _ := strings.Cut(string(text), "\n\n") // the licence's lines are no comment of a value
	values, err := yaml.Parse(below)
	if err != nil {
		log.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(aboutChart)
	if err := rows(&b, "", "", values.YNode()); err != nil {
		log.Fatal(err)
	}
	fmt.Print(b.String())
}

// rows writes a row for each value of a map. What is said of a map stands with its first value.
func rows(b *strings.Builder, prefix, about string, values *yaml.Node) error {
	for i := 0; i < len(values.Content); i += 2 {
		name, value := values.Content[i], values.Content[i+1]
		var lines []string
		for line := range strings.Lines(name.HeadComment + "\n") {
			lines = append(lines, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#")))
		}
		said := strings.TrimSpace(about + " " + strings.Join(lines, " "))
		about = ""
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			if err := rows(b, prefix+name.Value+".", said, value); err != nil {
				return err
			}
			continue
		}
		plain := *value
		plain.Style, plain.HeadComment, plain.LineComment, plain.FootComment = yaml.FlowStyle, "", "", ""
		if value.Kind == yaml.ScalarNode {
			plain.Style = value.Style
		}
		is, err := yaml.NewRNode(&plain).String()
		if err != nil {
			return err
		}
		said = strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(said)
		fmt.Fprintf(b, "| `%s%s` | `%s` | %s |\n", prefix, name.Value, strings.TrimSpace(is), said)
	}
	return nil
}
