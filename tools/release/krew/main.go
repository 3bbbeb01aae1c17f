// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command krew prints the manifest by which krew, kubectl's manager of plugins, installs
// "kubectl csi-proxy" from the zips of a release:
//
//	krew -version v1.2.3 -url https://example.org/v1.2.3 dist/kubectl-csi_proxy-linux-amd64-v1.2.3.zip… >csi-proxy.yaml
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	version := flag.String("version", "", "the version of the release")
	url := flag.String("url", "", "where the files are downloaded from")
	flag.Parse()
	if err := run(os.Stdout, *version, *url, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

// manifest has the fields of krew's API that we use.
type manifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       spec              `json:"spec"`
}

type spec struct {
	Version          string     `json:"version"`
	Homepage         string     `json:"homepage"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Platforms        []platform `json:"platforms"`
}

type platform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
	Files  []file `json:"files"`
}

type file struct {
	From string `json:"from"`
	To   string `json:"to"`
}

func run(out io.Writer, version, url string, zips []string) error {
	if version == "" || url == "" || len(zips) == 0 {
		return errors.New("give -version, -url and the zips")
	}
	m := manifest{"krew.googlecontainertools.github.com/v1alpha2", "Plugin", map[string]string{"name": "csi-proxy"}, spec{
		Version: version, Homepage: "https://github.com/csi-proxy/csi-proxy",
		ShortDescription: "Look after CSI Proxy on Windows nodes",
		Description: "Says how CSI Proxy, which does the storage operations of Windows nodes for CSI drivers,\n" +
			"does on all nodes: status, disks, volumes, doctor, logs, sysdump, and check before an\nupgrade of the cluster.\n",
	}}
	for _, zip := range zips {
		name := filepath.Base(zip)
		target, ok := strings.CutPrefix(strings.TrimSuffix(name, "-"+version+".zip"), "kubectl-csi_proxy-")
		system, arch, both := strings.Cut(target, "-")
		if !ok || !both {
			return fmt.Errorf("%s isn't kubectl-csi_proxy-SYSTEM-ARCH-%s.zip", name, version)
		}
		content, err := os.ReadFile(zip)
		if err != nil {
			return err
		}
		p := platform{URI: url + "/" + name, SHA256: fmt.Sprintf("%x", sha256.Sum256(content)), Bin: "kubectl-csi_proxy"}
		if system == "windows" {
			p.Bin += ".exe"
		}
		p.Selector.MatchLabels = map[string]string{"os": system, "arch": arch}
		p.Files = []file{{p.Bin, "."}, {"LICENSE", "."}}
		m.Spec.Platforms = append(m.Spec.Platforms, p)
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
