// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oci makes what registries keep that isn't an image, such as charts and
// bills of materials, and pushes to registries.
package oci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer is a part of an artefact.
type Layer struct {
	Type        types.MediaType
	Content     []byte
	Annotations map[string]string
}

// Artefact returns a manifest with a config and layers. It is an image to go-containerregistry,
// and to nobody else. What the given manifest says of its config and layers doesn't count.
//
// https://github.com/opencontainers/image-spec/blob/main/manifest.md#guidelines-for-artifact-usage
func Artefact(manifest v1.Manifest, configType types.MediaType, config []byte, layers ...Layer) (v1.Image, error) {
	manifest.SchemaVersion, manifest.MediaType, manifest.Layers = 2, types.OCIManifestSchema1, nil
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	manifest.Config = v1.Descriptor{MediaType: configType, Size: size, Digest: digest}
	a := &artefact{config: config, layers: map[v1.Hash]v1.Layer{}}
	for _, l := range layers {
		layer := static.NewLayer(l.Content, l.Type)
		descriptor, err := partial.Descriptor(layer)
		if err != nil {
			return nil, err
		}
		descriptor.Annotations = l.Annotations
		manifest.Layers = append(manifest.Layers, *descriptor)
		a.layers[descriptor.Digest] = layer
	}
	if a.manifest, err = json.Marshal(manifest); err != nil {
		return nil, err
	}
	return partial.CompressedToImage(a)
}

// Push pushes an image, an index or an artefact under repository:tag, with the credentials that
// docker or podman has for the registry, and prints its reference by digest.
func Push(reference string, pushed remote.Taggable, stdout io.Writer) error {
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return err
	}
	if err := remote.Push(tag, pushed, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push to %s: %w", tag, err)
	}
	digest, err := partial.Digest(pushed)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s@%s\n", tag, digest)
	return err
}

// CheckPush asks the registries whether they would take a push to the references, with the same
// credentials as Push. It begins an upload to each repository, and sends nothing.
func CheckPush(references []string) error {
	for _, reference := range references {
		parsed, err := name.ParseReference(reference)
		if err != nil {
			return err
		}
		if err := remote.CheckPushPermission(parsed, authn.DefaultKeychain, remote.DefaultTransport); err != nil {
			return fmt.Errorf("%s can't be pushed to; is the registry's name right, does it run, and is there a login (docker login)? %w",
				parsed.Context(), err)
		}
	}
	return nil
}

type artefact struct {
	config, manifest []byte
	layers           map[v1.Hash]v1.Layer
}

func (a *artefact) RawConfigFile() ([]byte, error)      { return a.config, nil }
func (a *artefact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a *artefact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a *artefact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	if layer, ok := a.layers[digest]; ok {
		return layer, nil
	}
	return partial.ConfigLayer(a)
}
