// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const source = "../../../deploy/charts/csi-proxy"

func packed(t *testing.T, version string) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := run([]string{"pack", "-version", version, "-created", "1767225600", source}, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestPush packs the chart, pushes it to a registry, and pulls it again as Helm does.
func TestPush(t *testing.T) {
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	chart := packed(t, "v1.2.3")
	if !bytes.Equal(chart, packed(t, "v1.2.3")) {
		t.Error("the same chart gives other bytes")
	}
	file := filepath.Join(t.TempDir(), "chart.tgz")
	if err := os.WriteFile(file, chart, 0o600); err != nil {
		t.Fatal(err)
	}
	repository := strings.TrimPrefix(s.URL, "http://") + "/charts/csi-proxy"
	var out bytes.Buffer
	if err := run([]string{"push", file, repository}, &out); err != nil {
		t.Fatal(err)
	}
	reference, err := name.ParseReference(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), repository+":1.2.3@sha256:") {
		t.Errorf("pushed %s", &out)
	}
	image, err := remote.Image(reference)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil || manifest.Config.MediaType != configType || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != layerType {
		t.Fatalf("%+v, %v", manifest, err)
	}
	config, err := image.RawConfigFile()
	if err != nil || !strings.Contains(string(config), `"appVersion":"v1.2.3"`) || !strings.Contains(string(config), `"name":"csi-proxy"`) {
		t.Errorf("%s, %v", config, err)
	}
	layer, err := image.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := io.ReadAll(content)
	if err != nil || !bytes.Equal(pulled, chart) {
		t.Errorf("what was pulled differs: %v", err)
	}
}

func TestVersionOfABuildBetweenReleases(t *testing.T) {
	image, version, err := artefact(packed(t, "e87d536-dirty"))
	if err != nil || image == nil || version != "0.0.0-e87d536-dirty" {
		t.Errorf("version %q, %v", version, err)
	}
}

func TestMistakes(t *testing.T) {
	notAChart := filepath.Join(t.TempDir(), "chart.tgz")
	if err := os.WriteFile(notAChart, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{}, {"pack"}, {"pack", source}, {"pack", "-version", "v1", "missing"}, {"push", "missing", "localhost:1/a"},
		{"push", notAChart, "localhost:1/a"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
