// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const source = "https://github.com/csi-proxy/csi-proxy"

// file is one at the root of the container's file system.
type file struct {
	name     string
	contents []byte
}

// description is what the image says of itself.
type description struct {
	version, commit string
	created         time.Time
}

// hives are the files without which Windows doesn't unpack a layer that has no other
// below it. Since Windows Server 2025 they must be valid registry hives. As in Microsoft's base image,
// which has such constants too, the name of the root key doesn't matter.
//
// https://github.com/microsoft/windows-host-process-containers-base-image
var hives = []string{"DEFAULT", "SAM", "SECURITY", "SOFTWARE", "SYSTEM"}

// emptyHive has one key, the root, without values: O:BAG:SYD:(A;CI;KA;;;BA)(A;CI;KA;;;SY).
//
//go:embed empty.hive
var emptyHive []byte

// programAccess is a binary security descriptor: only SYSTEM and the Administrators may replace the
// programs, and the users of the node may run them. In SDDL it is
// O:BAG:BAD:(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU).
const programAccess = "AQAEgGAAAABwAAAAAAAAABQAAAACAEwAAwAAAAADFAD/AR8AAQEAAAAAAAUSAAAAAAMYAP8BHwABAgAAAAAABSAAAAAgAgAA" +
	"AAMYAKkAEgABAgAAAAAABSAAAAAhAgAAAQIAAAAAAAUgAAAAIAIAAAECAAAAAAAFIAAAACACAAA="

// entryPoint is the program, by the name that every containerd has for the place of the
// container's volume. Before version 1.7 that place is another for each container.
//
// https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/
const entryPoint = `%CONTAINER_SANDBOX_MOUNT_POINT%\csi-proxy.exe`

// newImage returns the image of one system.
//
// https://github.com/opencontainers/image-spec/blob/main/config.md
func newImage(system v1.Platform, files []file, about description) (v1.Image, error) {
	created := v1.Time{Time: about.created}
	config := &v1.ConfigFile{Architecture: system.Architecture, OS: system.OS, Created: created,
		RootFS: v1.RootFS{Type: "layers"}}
	programs := layerOf{"CSI Proxy's programs", linuxEntries(files)}
	layers := []layerOf{programs}
	title := "A simulated Windows node with CSI Proxy, for tests of CSI drivers"
	switch system.OS {
	case "windows":
		// The config names no version of Windows, so the image runs on all.
		config.Config = v1.Config{Entrypoint: []string{entryPoint}, User: `NT AUTHORITY\SYSTEM`}
		programs.entries = windowsEntries(files)
		layers = []layerOf{{"empty registry hives", baseEntries()}, programs}
		title = "The storage operations of a Windows node, for CSI drivers. For HostProcess containers only"
	case "linux":
		config.Config = v1.Config{
			Entrypoint: []string{"/csi-proxy-sim"},
			Env:        []string{"PATH=/"},
			Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/csi-proxyctl", "versions"}, Interval: 2 * time.Second,
				Timeout: 10 * time.Second},
			Volumes: map[string]struct{}{"/run/csi-proxy": {}},
		}
	default:
		return nil, fmt.Errorf("%s: there are only images for windows and linux", system)
	}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title":       "CSI Proxy",
		"org.opencontainers.image.description": title,
		"org.opencontainers.image.version":     about.version,
		"org.opencontainers.image.revision":    about.commit,
		"org.opencontainers.image.created":     about.created.Format(time.RFC3339),
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.vendor":      "The CSI Proxy Authors",
	}
	image, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), config)
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	for _, l := range layers {
		layer, err := newLayer(l.entries)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{Created: created, CreatedBy: l.what}})
		if err != nil {
			return nil, err
		}
	}
	return image, nil
}

// layerOf is a layer, and what the image's history says of it.
type layerOf struct {
	what    string
	entries []entry
}

// entry is a directory or a file of a layer. All have the same time, so that the same
// contents give the same layer.
type entry struct {
	name     string // with slashes; a layer for Windows has its files below Files/
	contents []byte // nil for a directory
	extended map[string]string
}

// baseEntries are those of the layer without programs. Like Microsoft's base image, they
// say nothing of who may do what.
func baseEntries() []entry {
	entries := []entry{{name: "Files"}, {name: "Files/Windows"}, {name: "Files/Windows/System32"},
		{name: "Files/Windows/System32/config"}}
	for _, name := range hives {
		entries = append(entries, entry{name: "Files/Windows/System32/config/" + name, contents: emptyHive})
	}
	return entries
}

// linuxEntries are the files of an image for Linux, with the directory of the sockets.
func linuxEntries(files []file) []entry {
	entries := []entry{{name: "run"}, {name: "run/csi-proxy"}}
	for _, f := range files {
		entries = append(entries, entry{name: f.name, contents: f.contents})
	}
	return entries
}

// windowsEntries are those of the layer with the programs. Windows wants Hives, for
// changes to the registry, in each layer but the first.
//
// The names of the extended records are those of Microsoft's hcsshim, which unpacks the
// layer: https://github.com/microsoft/go-winio/blob/main/backuptar/tar.go
func windowsEntries(files []file) []entry {
	directory := map[string]string{"MSWINDOWS.fileattr": "16", "MSWINDOWS.rawsd": programAccess}
	regular := map[string]string{"MSWINDOWS.fileattr": "32", "MSWINDOWS.rawsd": programAccess}
	entries := []entry{{name: "Files", extended: directory}, {name: "Hives", extended: directory}}
	for _, f := range files {
		entries = append(entries, entry{"Files/" + f.name, f.contents, regular})
	}
	return entries
}

func newLayer(entries []entry) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		header := &tar.Header{Format: tar.FormatPAX, Name: e.name, Typeflag: tar.TypeDir, Mode: 0o555,
			ModTime: time.Unix(0, 0), PAXRecords: e.extended}
		if e.contents != nil {
			header.Typeflag, header.Size = tar.TypeReg, int64(len(e.contents))
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.contents); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
