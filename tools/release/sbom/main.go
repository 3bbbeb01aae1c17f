// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sbom prints the software bill of materials of a program of this repository, in
// CycloneDX's JSON: the modules that the linker has recorded in it. From the repository's
// root:
//
//	go -C tools build -o ../bin/sbom ./sbom
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
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"strings"

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

type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	PURL     string    `json:"purl"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []license `json:"licenses,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	Expression string `json:"expression"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
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
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(describe(info, version, sha256.Sum256(contents)))
}

func describe(info *debug.BuildInfo, version string, sum [sha256.Size]byte) bom {
	purl := modulePURL(info.Main.Path, version) + "#" + strings.TrimPrefix(info.Path, info.Main.Path+"/")
	b := bom{
		Format:      "CycloneDX",
		SpecVersion: "1.6",
		Version:     1,
		Metadata: metadata{component{
			Type:     "application",
			Ref:      purl,
			Name:     path.Base(info.Path),
			Version:  version,
			PURL:     purl,
			Hashes:   []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
			Licenses: []license{{"Apache-2.0"}},
		}},
	}
	add := func(module, version string) {
		purl := modulePURL(module, version)
		b.Components = append(b.Components, component{Type: "library", Ref: purl, Name: module, Version: version, PURL: purl})
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
	all := dependency{Ref: purl}
	for _, c := range b.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{all}
	return b
}

// modulePURL returns the package URL of a Go module.
//
// https://github.com/package-url/purl-spec
func modulePURL(module, version string) string {
	return "pkg:golang/" + strings.ToLower(module) + "@" + url.QueryEscape(version)
}
