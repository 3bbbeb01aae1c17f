// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestManifest(t *testing.T) {
	dir := t.TempDir()
	var zips []string
	for _, target := range []string{"linux-amd64", "windows-arm64"} {
		zip := filepath.Join(dir, "kubectl-csi_proxy-"+target+"-v1.2.3.zip")
		if err := os.WriteFile(zip, []byte(target), 0o600); err != nil {
			t.Fatal(err)
		}
		zips = append(zips, zip)
	}
	var out bytes.Buffer
	if err := run(&out, "v1.2.3", "https://example.org/v1.2.3", zips); err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := yaml.UnmarshalStrict(out.Bytes(), &m); err != nil || len(m.Spec.Platforms) != 2 ||
		m.Metadata["name"] != "csi-proxy" {
		t.Fatalf("%v\n%s", err, &out)
	}
	p := m.Spec.Platforms[1]
	if p.Bin != "kubectl-csi_proxy.exe" || p.Selector.MatchLabels["os"] != "windows" ||
		p.Selector.MatchLabels["arch"] != "arm64" ||
		p.URI != "https://example.org/v1.2.3/kubectl-csi_proxy-windows-arm64-v1.2.3.zip" ||
		p.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte("windows-arm64"))) {
		t.Errorf("%+v", p)
	}
	for _, wrong := range []string{filepath.Join(dir, "missing-v1.2.3.zip"),
		filepath.Join(dir, "kubectl-csi_proxy-linux-arm64-v1.2.3.zip")} {
		if err := run(io.Discard, "v1.2.3", "https://example.org", []string{wrong}); err == nil {
			t.Errorf("%s: no error", wrong)
		}
	}
}
