// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// The manifest by which krew installs the plugin has the zips of a release, and none without a zip.
func TestKrew(t *testing.T) {
	const script = "../../deploy/packaging/krew"
	dir := t.TempDir()
	args := []string{"v1.2.3", "https://example.org/v1.2.3"}
	for _, target := range []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64", "windows-amd64", "windows-arm64"} {
		zip := filepath.Join(dir, "kubectl-csi_proxy-"+target+"-v1.2.3.zip")
		if err := os.WriteFile(zip, []byte(target), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, zip)
	}
	out, err := exec.Command(script, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector struct{ MatchLabels map[string]string }
				URI      string
				SHA256   string
				Bin      string
			}
		}
	}
	if err := yaml.Unmarshal(out, &manifest); err != nil || manifest.Spec.Version != "v1.2.3" || len(manifest.Spec.Platforms) != 6 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range manifest.Spec.Platforms {
		system := p.Selector.MatchLabels["os"]
		target, bin := system+"-"+p.Selector.MatchLabels["arch"], "kubectl-csi_proxy"
		if system == "windows" {
			bin += ".exe"
		}
		if p.URI != "https://example.org/v1.2.3/kubectl-csi_proxy-"+target+"-v1.2.3.zip" || p.Bin != bin ||
			p.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(target))) {
			t.Errorf("%s: %+v", target, p)
		}
	}
	if out, err := exec.Command(script, args[:len(args)-1]...).Output(); err == nil {
		t.Errorf("a platform without a zip: no error\n%s", out)
	}
	if out, err := exec.Command(script, append([]string{"v1.2.4"}, args[1:]...)...).Output(); err == nil {
		t.Errorf("zips of another version: no error\n%s", out)
	}
}
