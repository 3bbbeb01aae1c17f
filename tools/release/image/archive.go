// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeArchive writes an index as a tar of an OCI image layout, which `ctr images import`,
// skopeo and podman read. The name of the index in it is its version.
//
// https://github.com/opencontainers/image-spec/blob/main/image-layout.md
func writeArchive(w io.Writer, index v1.ImageIndex, about description) (err error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	err = path.AppendIndex(index, layout.WithAnnotations(
		map[string]string{"org.opencontainers.image.ref.name": about.version}))
	if err != nil {
		return err
	}

	archive := tar.NewWriter(w)
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeDir, Name: relative + "/", Mode: 0o755, ModTime: about.created}
		if d.IsDir() {
			return archive.WriteHeader(header)
		}
		contents, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		header.Typeflag, header.Name, header.Mode, header.Size = tar.TypeReg, relative, 0o644, int64(len(contents))
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(contents)
		return err
	})
	return errors.Join(err, archive.Close())
}

// readArchive returns the index that writeArchive has written to a file. It needs dir, an
// empty directory, for as long as the image is in use.
func readArchive(file, dir string) (v1.ImageIndex, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing is written
	if err := extract(tar.NewReader(f), dir); err != nil {
		return nil, err
	}
	archive, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := archive.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("the archive has %d indexes of images, and must have 1", len(manifest.Manifests))
	}
	return archive.ImageIndex(manifest.Manifests[0].Digest)
}

// extract writes the directories and files of a tar into a directory, and nothing outside
// of it.
func extract(archive *tar.Reader, dir string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag == tar.TypeDir {
			if err := root.MkdirAll(header.Name, 0o755); err != nil {
				return err
			}
			continue
		}
		contents, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if err := root.WriteFile(header.Name, contents, 0o644); err != nil {
			return err
		}
	}
}
