// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command notices prints the licences and notices of the modules in programs of this
// repository, which a release must contain. It reads the list of modules from the
// programs. From the repository's root:
//
//	go -C tools build -o ../bin/ ./release/notices
//	bin/notices program… list.modules…
//
// Test programs have no list of their modules. For these, give a file with a line "path
// version" for each module.
//
// A module without a licence is an error. The same programs give the same output.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/tools/release/modules"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: notices program…")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, programs []string) error {
	var all []*debug.Module
	for _, program := range programs {
		more, err := modules.Of(program)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		all = append(all, more...)
	}
	return write(out, all, directory)
}

// directory returns the folder of a module, or of Go itself for "std".
func directory(module string) (string, error) {
	args := []string{"list", "-m", "-f", "{{.Dir}}", module}
	if module == "std" {
		args = []string{"env", "GOROOT"}
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	dir, err := cmd.Output()
	return strings.TrimSpace(string(dir)), err
}

// write writes the notices of modules, each once, and of Go, in the order of their
// names.
func write(out io.Writer, modules []*debug.Module, directory func(string) (string, error)) error {
	modules = append(slices.Clone(modules), &debug.Module{Path: "std"})
	slices.SortFunc(modules, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	modules = slices.CompactFunc(modules, func(a, b *debug.Module) bool { return a.Path == b.Path })

	fmt.Fprintln(out, "CSI Proxy's programs contain the following software under its own licences.")
	for _, module := range modules {
		dir, err := directory(module.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", module.Path, err)
		}
		texts, err := notices(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", module.Path, err)
		}
		name := module.Path + " " + module.Version
		if module.Path == "std" {
			name = "Go and its standard library"
		}
		line := strings.Repeat("=", 80)
		fmt.Fprintf(out, "\n%s\n%s\n%s\n\n%s", line, strings.TrimSpace(name), line, texts)
	}
	return nil
}

// noticeFile are the names under which modules have their licences and notices.
var noticeFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// notices returns the texts of a module, of which one must be a licence.
func notices(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	licensed := false
	for _, e := range entries {
		if !e.Type().IsRegular() || !noticeFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		lower := strings.ToLower(e.Name())
		licensed = licensed || strings.HasPrefix(lower, "licen") || strings.HasPrefix(lower, "copying")
		fmt.Fprintf(&all, "%s\n\n", bytes.TrimSpace(text))
	}
	if !licensed {
		return nil, errors.New("the module has no licence file")
	}
	return all.Bytes(), nil
}
