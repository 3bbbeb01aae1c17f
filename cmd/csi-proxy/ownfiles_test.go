// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The daemon's own files include what an upgrade keeps beside its program, and have all their names.
func TestOwnFiles(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	if err := errors.Join(os.Mkdir(in("config"), 0o700), os.WriteFile(in("config", "v1.json"), nil, 0o600),
		os.Symlink("v1.json", in("config", "drivers.json")), os.Symlink(in("config"), in("link"))); err != nil {
		t.Skip("links can't be made here: ", err)
	}
	if _, err := os.Lstat(in("link")); err != nil {
		t.Skip("no link was made, as in Wine: ", err)
	}
	o := &options{driversPath: in("link", "drivers.json"), logging: addLoggingFlags(flag.NewFlagSet("", flag.ContinueOnError))}
	if err := o.addOwnFiles(); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	extension := filepath.Ext(program)
	for _, want := range []string{program, strings.TrimSuffix(program, extension) + ".previous" + extension,
		in("link", "drivers.json"), in("config", "drivers.json"), in("config", "v1.json")} {
		if !slices.Contains(o.OwnFiles, want) {
			t.Errorf("%s isn't among %q", want, o.OwnFiles)
		}
	}
}

// The name of a directory is kept for its other files. It comes from the directory itself, and from no link in it to a file elsewhere.
func TestOwnFilesOfOneDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	if err := errors.Join(os.Mkdir(in("real"), 0o700), os.WriteFile(in("elsewhere"), nil, 0o600), os.WriteFile(in("real/file"), nil, 0o600),
		os.Symlink(in("elsewhere"), in("real/link")), os.Symlink(in("real"), in("dir"))); err != nil {
		t.Skip("links can't be made here: ", err)
	}
	if _, err := os.Lstat(in("dir")); err != nil {
		t.Skip("no link was made, as in Wine: ", err)
	}
	link, file := []string{in("dir/link"), in("elsewhere"), in("real/link")}, []string{in("dir/file"), in("real/file")}
	missing := []string{in("dir/missing"), in("real/missing")}
	for _, order := range [][][]string{{link, missing, file}, {file, link, missing}, {missing, file, link}} {
		directories := make(realDirectories)
		for _, want := range order {
			if got := directories.namesOf(want[0]); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}
