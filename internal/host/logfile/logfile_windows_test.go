// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package logfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// os.Open doesn't share deletion, like many a program that reads a log: Windows
// doesn't rename what it has opened.
func TestRotationWithReaders(t *testing.T) {
	long := func(s string) string { return strings.Repeat(s, 1999) }
	both := func(s string) string { return long(s) + " " + long(s) + " " }
	for name, test := range map[string]struct {
		opened string
		log    string // pattern
		old    map[string]string
	}{
		"current file":  {"log", `^d+ e $`, map[string]string{"log.1": both("c"), "log.2": both("b")}},
		"old file":      {"log.1", `^log file: problems .* d+ e $`, map[string]string{"log.1": both("c"), "log.2": both("a")}},
		"file to leave": {"log.2", `^log file: problems .* d+ e $`, map[string]string{"log.1": both("c"), "log.2": both("a")}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f := openTest(t, Config{Name: filepath.Join(dir, "log"), MaxBytes: 4000, OldFiles: 2})
			write(t, f, long("a"), long("a"), long("b"), long("b"), long("c"), long("c"))
			reader, err := os.Open(filepath.Join(dir, test.opened))
			must(t, err)
			defer reader.Close()
			if err := os.Rename(reader.Name(), reader.Name()); err == nil {
				t.Fatal("the reader doesn't keep the file from being renamed")
			}
			write(t, f, long("d"), "e")
			got := files(t, dir)
			wantMatch(t, got["log"], test.log)
			delete(got, "log")
			if diff := cmp.Diff(test.old, got); diff != "" {
				t.Errorf("old files (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	victim, name := filepath.Join(dir, "victim"), filepath.Join(dir, "log")
	must(t, os.WriteFile(victim, nil, 0o600))
	if err := os.Symlink(victim, name); err != nil {
		t.Skip(err) // an account without the privilege
	}
	if _, err := os.Lstat(name); err != nil {
		t.Skip("no link was made, as in Wine: ", err)
	}
	f := openTest(t, Config{Name: name, OldFiles: 1})
	if n, err := f.Write([]byte("line\n")); n != 0 || err == nil || read(t, victim) != "" {
		t.Errorf("Write = %d, %v; the link's target holds %q", n, err, read(t, victim))
	}
}

func TestReaderSeesCurrentLines(t *testing.T) {
	f := openTest(t, Config{Name: filepath.Join(t.TempDir(), "log"), OldFiles: 1})
	reader, err := os.Open(f.config.Name)
	must(t, err)
	defer reader.Close()
	write(t, f, "line")
	if got, err := io.ReadAll(reader); err != nil || string(got) != "line\n" {
		t.Errorf("the reader has %q, %v", got, err)
	}
}

// What the runtime keeps for a crash must not keep a removed file.
func TestCloseFreesRemovedFile(t *testing.T) {
	f := openTest(t, Config{Name: filepath.Join(t.TempDir(), "log"), OldFiles: 1, CrashOutput: true})
	must(t, os.Remove(f.config.Name))
	must(t, f.Close())
	if _, err := os.Stat(f.config.Name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the removed file is there: %v", err)
	}
}
