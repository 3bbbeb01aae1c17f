// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart packs the Helm chart for a release, and pushes it as an OCI artefact. From
// the repository's root:
//
//	go -C tools build -o ../bin/ ./release/chart
//	bin/chart pack -version v1.2.3 -created 1767225600 deploy/charts/csi-proxy >chart.tgz
//	bin/chart push chart.tgz registry.example.org/charts/csi-proxy
//
// The same files and flags give the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-proxy/csi-proxy/tools/release/oci"
)

const usage = `usage: chart pack -version v1.2.3 [-created seconds] folder >chart.tgz
       chart push chart.tgz repository`

func main() {
	if err := run(os.Args[1:], os.Stdout); errors.Is(err, errUsage) {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New(usage)

func run(args []string, stdout io.Writer) error {
	switch {
	case len(args) > 1 && args[0] == "pack":
		flags := flag.NewFlagSet("pack", flag.ContinueOnError)
		version := flags.String("version", "", "the version of the release")
		created := flags.Int64("created", 0, "the time of the files, in seconds since 1970")
		if err := flags.Parse(args[1:]); err != nil || flags.NArg() != 1 || *version == "" {
			return errUsage
		}
		chart, err := pack(flags.Arg(0), *version, time.Unix(*created, 0).UTC())
		if err != nil {
			return err
		}
		_, err = stdout.Write(chart)
		return err
	case len(args) == 3 && args[0] == "push":
		return push(args[1], args[2], stdout)
	}
	return errUsage
}

const metadata = "Chart.yaml"

// pack returns the archive of the chart in dir, for a version of the release. A version that
// isn't one such as v1.2.3, which a build between releases has, comes after v0.0.0.
func pack(dir, version string, created time.Time) ([]byte, error) {
	var archive bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&archive, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	files := tar.NewWriter(zipped)
	add := func(name string, content []byte) error {
		header := &tar.Header{Name: path.Join("csi-proxy", name), Mode: 0o644, Size: int64(len(content)), ModTime: created}
		if err := files.WriteHeader(header); err != nil {
			return err
		}
		_, err := files.Write(content)
		return err
	}
	// In the order of their names, which is Helm's but for Chart.yaml, which comes first.
	about, err := os.ReadFile(filepath.Join(dir, metadata))
	if err != nil {
		return nil, err
	}
	if about, err = released(about, version); err != nil {
		return nil, err
	}
	if err := add(metadata, about); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil || name == metadata {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return add(filepath.ToSlash(name), content)
	})
	err = errors.Join(err, files.Close(), zipped.Close())
	return archive.Bytes(), err
}

// released returns Chart.yaml for a version of the release.
func released(about []byte, version string) ([]byte, error) {
	var fields map[string]any
	if err := yaml.UnmarshalStrict(about, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", metadata, err)
	}
	number, ok := strings.CutPrefix(version, "v")
	if !ok {
		number = "0.0.0-" + version
	}
	fields["version"], fields["appVersion"] = number, version
	return yaml.Marshal(fields)
}

// The media types of a chart in a registry.
const (
	configType = "application/vnd.cncf.helm.config.v1+json"
	layerType  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// push pushes a chart under its version.
func push(file, repository string, stdout io.Writer) error {
	chart, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	image, version, err := artefact(chart)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	// As Helm does: a tag can't have the + of a version.
	return oci.Push(repository+":"+strings.ReplaceAll(version, "+", "_"), image, stdout)
}

// artefact returns a packed chart as Helm keeps it in a registry, and its version.
func artefact(chart []byte) (v1.Image, string, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(chart))
	if err != nil {
		return nil, "", err
	}
	files := tar.NewReader(zipped)
	if first, err := files.Next(); err != nil || path.Base(first.Name) != metadata {
		return nil, "", fmt.Errorf("it doesn't begin with %s: %w", metadata, err)
	}
	about, err := io.ReadAll(files)
	if err != nil {
		return nil, "", err
	}
	config, err := yaml.YAMLToJSON(about)
	if err != nil {
		return nil, "", err
	}
	var fields struct{ Version, Description string }
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, "", err
	}
	image, err := oci.Artefact(v1.Manifest{Annotations: map[string]string{
		"org.opencontainers.image.title": "csi-proxy", "org.opencontainers.image.version": fields.Version,
		"org.opencontainers.image.description": fields.Description,
	}}, configType, config, oci.Layer{Type: layerType, Content: chart})
	return image, fields.Version, err
}
