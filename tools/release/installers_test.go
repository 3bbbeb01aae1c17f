// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release tests the files of a release, those of dist/.
package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Three installers of Windows nodes download csi-proxy by a URL. From the files of a release, offered under
// the URLs of GitHub's release pages, each gets the program that is in the zip. make test-installers runs
// this test.
func TestInstallers(t *testing.T) {
	dist := os.Getenv("CSI_PROXY_DIST")
	if dist == "" {
		t.Skip("needs a release: run make release, then make test-installers")
	}
	const before, after = "csi-proxy-windows-amd64-", ".zip"
	zips, err := filepath.Glob(filepath.Join(dist, before+"*"+after))
	if err != nil || len(zips) != 1 {
		t.Fatalf("%s has the zips %q, %v; want one", dist, zips, err)
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(zips[0]), before), after)
	want := fromZip(t, zips[0], "csi-proxy.exe")

	const pages = "/csi-proxy/csi-proxy/releases/download/"
	server := httptest.NewServer(http.StripPrefix(pages+version, http.FileServer(http.Dir(dist))))
	defer server.Close()
	url := server.URL + pages

	for name, install := range map[string]func(t *testing.T, url, version string) []byte{
		"AKS": aks("tar"),
		// The tar.exe of Windows is this one.
		"AKS with libarchive": aks("bsdtar"),
		"Rancher":             rancher,
		"kube-up":             kubeUp,
	} {
		t.Run(name, func(t *testing.T) {
			if got := install(t, url, version); !bytes.Equal(got, want) {
				t.Errorf("installed %d bytes, which aren't the %d of csi-proxy.exe in %s", len(got), len(want), zips[0])
			}
		})
	}
}

// aks installs as New-CsiProxyService does, with a URL as the one of "windows csi proxy":
// https://github.com/Azure/AgentBaker/blob/06836ee2301e362039418c3a7ed0fe6004a641fd/staging/cse/windows/configfunc.ps1#L514
// https://github.com/Azure/AgentBaker/blob/06836ee2301e362039418c3a7ed0fe6004a641fd/parts/common/components.json#L791
func aks(tarProgram string) func(t *testing.T, url, version string) []byte {
	return func(t *testing.T, url, version string) []byte {
		if _, err := exec.LookPath(tarProgram); err != nil {
			if os.Getenv("SKIPPED") != "" {
				t.Fatal(err) // CI, which installs it
			}
			t.Skip("needs Debian's libarchive-tools: ", err)
		}
		// The versions have no v there. That of a build without a tag has none in the names of its files either.
		resource := strings.ReplaceAll(url+"v${version}/csi-proxy-v${version}.tar.gz", "v${version}", version)
		folder := t.TempDir()
		archive := filepath.Join(folder, "csiproxy.tar")
		must(t, os.WriteFile(archive, download(t, resource), 0o600))
		if out, err := exec.Command(tarProgram, "-xzf", archive, "-C", folder).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		program, err := os.ReadFile(filepath.Join(folder, "bin", "csi-proxy.exe"))
		must(t, err)
		return program
	}
}

// rancher installs as wins does, which writes each entry whose name contains csi-proxy.exe into one file, with
// a URL in the form of its README:
// https://github.com/rancher/wins/blob/a4db3731c7df46ac5b7605734842a5a6051c4415/pkg/csiproxy/csi.go#L130
// https://github.com/rancher/wins/blob/a4db3731c7df46ac5b7605734842a5a6051c4415/README.md#L143
func rancher(t *testing.T, url, version string) []byte {
	resource := download(t, fmt.Sprintf(url+"%[1]s/csi-proxy-%[1]s.tar.gz", version))
	uncompressed, err := gzip.NewReader(bytes.NewReader(resource))
	must(t, err)
	var program bytes.Buffer
	for archive := tar.NewReader(uncompressed); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return program.Bytes()
		}
		must(t, err)
		if strings.Contains(entry.Name, "csi-proxy.exe") {
			_, err := io.Copy(&program, archive)
			must(t, err)
		}
	}
}

// kubeUp installs as DownloadAndInstall-CSIProxyBinaries does, with CSI_PROXY_STORAGE_PATH and
// CSI_PROXY_VERSION:
// https://github.com/kubernetes/kubernetes/blob/v1.37.2/cluster/gce/windows/k8s-node-setup.psm1#L403
// https://github.com/kubernetes/kubernetes/blob/v1.37.2/cluster/gce/config-common.sh#L157
func kubeUp(t *testing.T, url, version string) []byte {
	storagePath := strings.TrimSuffix(url, "/")
	return download(t, storagePath+"/"+version+"/csi-proxy.exe")
}

func download(t *testing.T, url string) []byte {
	t.Helper()
	response, err := http.Get(url)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", url, response.Status)
	}
	return body
}

func fromZip(t *testing.T, archive, name string) []byte {
	t.Helper()
	reader, err := zip.OpenReader(archive)
	must(t, err)
	defer reader.Close()
	file, err := reader.Open(name)
	must(t, err)
	defer file.Close()
	content, err := io.ReadAll(file)
	must(t, err)
	return content
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
