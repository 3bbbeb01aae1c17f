// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Without git and VERSION, nothing is built or pushed: every build would have the same tag.
func TestVersionIsKnown(t *testing.T) {
	for _, target := range []string{"image", "chart", "publish", "publish-image"} {
		cmd := exec.Command("make", "-C", "../../..", target, "VERSION=unknown", "REGISTRY=localhost:1", "IMAGE=localhost:1/a:b")
		output, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(output), "git knows no version here") || strings.Contains(string(output), "bin/") {
			t.Errorf("make %s: %v\n%s", target, err, output)
		}
	}
}

// TestPublish runs make publish with a registry of its own, looks at what is there, and runs
// the simulated node from its image as a container would. make test-publish runs it.
func TestPublish(t *testing.T) {
	repository := os.Getenv("CSI_PROXY_PUBLISH")
	if repository == "" {
		t.Skip("builds what is released: run make test-publish")
	}
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true),
		registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	cmd := exec.Command("make", "-C", repository, "publish", "REGISTRY="+host, "VERSION=v0.0.1-test")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	must(t, cmd.Run())

	tag := func(image string) name.Tag {
		tag, err := name.NewTag(host + "/" + image)
		must(t, err)
		return tag
	}
	if _, err := remote.Image(tag("charts/csi-proxy:0.0.1-test")); err != nil {
		t.Error(err)
	}
	windows := pulled(t, tag("csi-proxy:v0.0.1-test"))
	linux := pulled(t, tag("csi-proxy-sim:v0.0.1-test"))
	if windows["windows/amd64"] == nil || linux["linux/arm64"] == nil {
		t.Errorf("the images are for %v and %v", windows, linux)
	}
	image := linux["linux/"+runtime.GOARCH]
	if image == nil {
		t.Skipf("there is no image for %s", runtime.GOARCH)
	}
	root := t.TempDir()
	layers, err := image.Layers()
	must(t, err)
	for _, layer := range layers {
		for _, e := range entriesOf(t, layer) {
			path := filepath.Join(root, e.header.Name)
			if e.header.Typeflag == tar.TypeDir {
				err = os.Mkdir(path, e.header.FileInfo().Mode().Perm())
			} else {
				err = os.WriteFile(path, e.contents, e.header.FileInfo().Mode().Perm())
			}
			must(t, err)
		}
	}
	config, err := image.ConfigFile()
	must(t, err)
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", config.Config.Env, &syscall.SysProcAttr{Chroot: root}
		return cmd
	}
	var output bytes.Buffer
	node := inside(append(config.Config.Entrypoint, config.Config.Cmd...)...)
	node.Stdout, node.Stderr = &output, &output
	must(t, node.Start())
	stop := func() error {
		if err := node.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return node.Wait()
	}

	healthy := config.Config.Healthcheck.Test[1:]
	for tries := 0; inside(healthy...).Run() != nil; tries++ {
		if tries == 600 {
			t.Fatalf("the image isn't healthy: %v\n%s", stop(), &output)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if out, err := inside("/csi-proxyctl", "sim", "disk", "attach", "--size=10GiB",
		"--serial=vol-1").CombinedOutput(); err != nil {
		t.Errorf("attach a disk: %v\n%s", err, out)
	}
	if out, err := inside("/csi-proxyctl", "disk", "list").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "vol-1") {
		t.Errorf("the disk that was attached isn't listed: %v\n%s", err, out)
	}
	if err := stop(); err != nil {
		t.Errorf("stopped as Docker stops it: %v", err)
	}
	if inside(healthy...).Run() == nil {
		t.Error("the image is healthy without its daemon")
	}
}

// pulled returns the images of an index by their platforms, each with bills of materials
// of two programs and what it was built from.
func pulled(t *testing.T, tag name.Tag) map[string]v1.Image {
	t.Helper()
	index, err := remote.Index(tag)
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	images := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		if m.Platform.OS == "unknown" {
			continue
		}
		if images[m.Platform.String()], err = index.Image(m.Digest); err != nil {
			t.Fatal(err)
		}
		statements := attached(t, tag.Digest(m.Digest.String()))
		if len(statements[predicateBill]) != 2 ||
			!strings.Contains(string(statements[predicateBill][0].Predicate), "pkg:golang/google.golang.org/grpc@") ||
			len(statements[predicateOrigin]) != 1 {
			t.Errorf("%s for %s has the statements %v", tag, m.Platform, statements)
		}
	}
	return images
}
