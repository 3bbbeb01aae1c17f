// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command relnotes prints the notes of a release: the section of CHANGELOG.md for its
// version. From the repository's root:
//
//	go -C tools/release build -o ../../bin/ ./relnotes
//	bin/relnotes -version v1.2.3 CHANGELOG.md
//
// A release without a section, or with an empty one, is an error. Any version that isn't
// a release, such as that of a commit after one, has the section "Unreleased".
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
)

func main() {
	version := flag.String("version", "", "the version, such as v1.2.3 or the output of git describe")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: relnotes -version v1.2.3 CHANGELOG.md")
		os.Exit(2)
	}
	text, err := os.ReadFile(flag.Arg(0))
	if err == nil {
		var notes string
		if notes, err = section(string(text), *version); err == nil {
			_, err = fmt.Print(notes)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "relnotes:", err)
		os.Exit(1)
	}
}

// released is the form of the versions of releases, also of those before one, such as
// v1.2.3-rc.1. What git describe says of later commits doesn't have it.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// section returns the section of a changelog for a version, under a title of its own. The
// changelog's headings are "## Unreleased" and "## v1.2.3 - 2026-01-31".
func section(changelog, version string) (string, error) {
	wanted := "Unreleased"
	if released.MatchString(version) {
		wanted = version
	}
	var notes strings.Builder
	found := false
	for line := range strings.Lines(changelog) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			if found {
				break
			}
			name, _, _ := strings.Cut(strings.TrimSpace(heading), " - ")
			found = name == wanted
			continue
		}
		if found {
			notes.WriteString(line)
		}
	}
	body := strings.TrimSpace(notes.String())
	if body == "" {
		return "", fmt.Errorf("the changelog has nothing under the heading %q; write what has changed there", "## "+wanted)
	}
	return fmt.Sprintf("# CSI Proxy %s\n\n%s\n", version, body), nil
}
