// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/csi-proxy/csi-proxy/tools/release/oci"
)

// windowsVersions are those of Windows Server 2019, 2022, 23H2 and 2025. Before containerd 1.7,
// a node takes of an index only what names its own version; of a single image it takes all.
// So the index has the same image once for each, and once for every other version.
var windowsVersions = []string{"10.0.17763", "10.0.20348", "10.0.25398", "10.0.26100", ""}

// system is one that an index has an image for.
type system struct {
	platform v1.Platform
	files    []file
}

// newIndex returns an index of an image for each system, each with its attestation.
//
// https://github.com/opencontainers/image-spec/blob/main/image-index.md
func newIndex(systems []system, about description) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, s := range systems {
		image, err := newImage(s.platform, s.files, about)
		if err != nil {
			return nil, err
		}
		versions := []string{""}
		if s.platform.OS == "windows" {
			versions = windowsVersions
		}
		for _, version := range versions {
			platform := s.platform
			platform.OSVersion = version
			index = mutate.AppendManifests(index,
				mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
		}
		described, err := partial.Descriptor(image)
		if err != nil {
			return nil, err
		}
		attestation, err := attest(*described, s, about)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: attestation, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"},
			Annotations: map[string]string{"vnd.docker.reference.type": "attestation-manifest",
				"vnd.docker.reference.digest": described.Digest.String()},
		}})
	}
	return index, nil
}

// The form of attestations is BuildKit's. They are in the index, so that the index's signature
// counts for them, too; and they name their image as subject, so that registries list them for it.
//
// https://docs.docker.com/build/metadata/attestations/attestation-storage
const (
	attestationType   = "application/vnd.docker.attestation.manifest.v1+json"
	emptyType         = "application/vnd.oci.empty.v1+json"
	statementType     = "application/vnd.in-toto+json"
	billOfMaterials   = ".cdx.json"
	predicateBill     = "https://cyclonedx.org/bom"
	predicateOrigin   = "https://slsa.dev/provenance/v1"
	predicateTypeName = "in-toto.io/predicate-type"
)

// attest returns the bills of materials that are among the files of an image, and how it was built.
func attest(image v1.Descriptor, s system, about description) (v1.Image, error) {
	var layers []oci.Layer
	add := func(predicateType string, predicate any) error {
		content, err := json.Marshal(map[string]any{
			"_type":         "https://in-toto.io/Statement/v1",
			"predicateType": predicateType,
			"subject": []any{map[string]any{"name": "csi-proxy",
				"digest": map[string]string{image.Digest.Algorithm: image.Digest.Hex}}},
			"predicate": predicate,
		})
		layers = append(layers, oci.Layer{Type: statementType, Content: content,
			Annotations: map[string]string{predicateTypeName: predicateType}})
		return err
	}
	for _, f := range s.files {
		if strings.HasSuffix(f.name, billOfMaterials) {
			if err := add(predicateBill, json.RawMessage(f.contents)); err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	// https://slsa.dev/spec/v1.0/provenance
	err := add(predicateOrigin, map[string]any{
		"buildDefinition": map[string]any{
			"buildType":          source + "/blob/main/RELEASE.md#the-image",
			"externalParameters": map[string]string{"version": about.version, "platform": s.platform.String()},
			"resolvedDependencies": []any{map[string]any{"uri": "git+" + source,
				"digest": map[string]string{"gitCommit": about.commit}}},
		},
		// Who ran it makes no difference to the bytes, and is known of who signs them.
		"runDetails": map[string]any{"builder": map[string]string{"id": source + "/blob/" + about.commit +
			"/deploy/packaging/release.mk"}},
	})
	if err != nil {
		return nil, err
	}
	return oci.Artefact(v1.Manifest{ArtifactType: attestationType, Subject: &image}, emptyType, []byte("{}"), layers...)
}
