// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sbom prints the software bill of materials of a program of this repository, in
// CycloneDX's JSON: the modules that the linker has recorded in it. From the repository's
// root:
//
//	go -C tools build -o ../bin/ ./release/sbom
//	bin/sbom -version v1.2.3 program.exe [packed.exe | list.modules]...
//
// A program may have others packed into it, whose modules count as its own. Test programs
// have no record of their modules. For these, give a file with a line "path version" for
// each module.
//
// The same program and flags give the same output, so it has no time and no serial
// number.
//
// https://cyclonedx.org/docs/1.6/json/
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"

	"github.com/csi-proxy/csi-proxy/tools/release/modules"
)

func main() {
	version := flag.String("version", "", "the version of the program")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: sbom [flag]... program [packed]...")
		os.Exit(2)
	}
	if err := write(os.Stdout, flag.Arg(0), flag.Args()[1:], *version); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write writes the bill of materials of a program that has others packed into it.
func write(out io.Writer, program string, packed []string, version string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	for _, name := range packed {
		packed, err := modules.Of(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		info.Deps = append(info.Deps, packed...)
	}
	contents, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	bom := describe(info, version, sha256.Sum256(contents))
	return cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom,
		cyclonedx.SpecVersion1_6)
}

func describe(info *debug.BuildInfo, version string, sum [sha256.Size]byte) *cyclonedx.BOM {
	purl := modulePURL(info.Main.Path, version) + "#" + strings.TrimPrefix(info.Path, info.Main.Path+"/")
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type:       cyclonedx.ComponentTypeApplication,
		BOMRef:     purl,
		Name:       path.Base(info.Path),
		Version:    version,
		PackageURL: purl,
		Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses:   &cyclonedx.Licenses{{Expression: "Apache-2.0"}},
	}}
	var components []cyclonedx.Component
	var references []string
	add := func(module, version string) {
		purl := modulePURL(module, version)
		references = append(references, purl)
		components = append(components, cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: module, Version: version, PackageURL: purl,
		})
	}
	add("std", strings.TrimPrefix(info.GoVersion, "go"))
	seen := map[string]bool{}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if name := module.Path + "@" + module.Version; !seen[name] {
			seen[name] = true
			add(module.Path, module.Version)
		}
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: purl, Dependencies: &references}}
	return bom
}

// modulePURL returns the package URL of a Go module.
//
// https://github.com/package-url/purl-spec
func modulePURL(module, version string) string {
	return "pkg:golang/" + strings.ToLower(module) + "@" + url.QueryEscape(version)
}
