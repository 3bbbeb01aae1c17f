// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command winres copies a Windows program of this repository and gives the copy file
// properties, which Windows shows: version, commit, description. From the repository's
// root:
//
//	go -C tools build -o ../bin/winres ./winres
//	bin/winres -version v1.2.3 -commit 0123abc -description "what it does" linked.exe program.exe
//
// The same program and flags give the same bytes.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/tc-hib/winres"
	"github.com/tc-hib/winres/version"
)

func main() {
	var p properties
	flag.StringVar(&p.version, "version", "", "the version, such as v1.2.3 or the output of git describe")
	flag.StringVar(&p.commit, "commit", "", "the commit that the program was built from")
	flag.StringVar(&p.description, "description", "", "what the program does, in one line")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: winres [flag]... linked.exe program.exe")
		os.Exit(2)
	}
	if err := stamp(flag.Arg(0), flag.Arg(1), p); err != nil {
		fmt.Fprintln(os.Stderr, "winres:", err)
		os.Exit(1)
	}
}

// properties are those of a file that depend on the build and the program.
type properties struct {
	version, commit, description string
}

// stamp writes the program linked as the file program, which has the properties.
func stamp(linked, program string, p properties) error {
	info, err := p.info(filepath.Base(program))
	if err != nil {
		return err
	}
	var resources winres.ResourceSet
	resources.SetVersionInfo(*info)

	in, err := os.Open(linked)
	if err != nil {
		return err
	}
	defer in.Close() // nothing was written
	var out bytes.Buffer
	if err := resources.WriteToEXE(&out, in); err != nil {
		return fmt.Errorf("add resources to %s: %w", linked, err)
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	return os.WriteFile(program, out.Bytes(), 0o755)
}

// info returns the version resource of a program whose file has the name.
//
// https://learn.microsoft.com/en-us/windows/win32/menurc/versioninfo-resource
func (p properties) info(name string) (*version.Info, error) {
	numbers, err := versionNumbers(p.version)
	if err != nil {
		return nil, err
	}
	info := &version.Info{FileVersion: numbers, ProductVersion: numbers, Type: version.App}
	for key, value := range map[string]string{
		version.ProductName:      "CSI Proxy",
		version.CompanyName:      "The CSI Proxy Authors",
		version.LegalCopyright:   "Copyright The CSI Proxy Authors. Apache License 2.0.",
		version.FileDescription:  p.description,
		version.FileVersion:      p.version,
		version.ProductVersion:   p.version,
		version.Comments:         "commit " + p.commit,
		version.InternalName:     strings.TrimSuffix(name, filepath.Ext(name)),
		version.OriginalFilename: name,
	} {
		if err := info.Set(version.LangDefault, key, value); err != nil {
			return nil, fmt.Errorf("%s %q: %w", key, value, err)
		}
	}
	return info, nil
}

var release = regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)`)

// versionNumbers returns the four numbers by which Windows compares versions, the
// last of which is always 0. They are all 0 for a text that doesn't begin with a
// version, as in a repository without tags.
func versionNumbers(v string) (numbers [4]uint16, err error) {
	for i, digits := range release.FindStringSubmatch(v) {
		if i == 0 {
			continue // the whole match
		}
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil {
			return [4]uint16{}, fmt.Errorf("version %q: each number must fit into 16 bits", v)
		}
		numbers[i-1] = uint16(n)
	}
	return numbers, nil
}
