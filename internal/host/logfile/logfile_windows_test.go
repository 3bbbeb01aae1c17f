// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package logfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// os.Open doesn't share deletion, like many a program that reads a log: Windows
// doesn't rename what it has opened.
func TestRotationWithReaders(t *testing.T) {
	for _, opened := range []string{"log", "log.1"} {
		t.Run(opened, func(t *testing.T) {
			dir := t.TempDir()
			f := openTest(t, Config{Name: filepath.Join(dir, "log"), MaxBytes: 4})
			write(t, f, "aaa", "bbb")
			reader, err := os.Open(filepath.Join(dir, opened))
			must(t, err)
			defer reader.Close()
			if err := os.Rename(reader.Name(), reader.Name()); err == nil {
				t.Fatal("the reader doesn't keep the file from being renamed")
			}
			write(t, f, "ccc")
			wantFiles(t, dir, map[string]string{"log": "bbb ccc ", "log.1": "aaa "})
			write(t, f, "ddd")
			wantFiles(t, dir, map[string]string{"log": "ddd ", "log.1": "aaa "})
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
	f := openTest(t, Config{Name: name})
	if n, err := f.Write([]byte("line\n")); n != 0 || err == nil || read(t, victim) != "" {
		t.Errorf("Write = %d, %v; the link's target holds %q", n, err, read(t, victim))
	}
}

func TestReaderSeesCurrentLines(t *testing.T) {
	f := openTest(t, Config{Name: filepath.Join(t.TempDir(), "log")})
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
	f := openTest(t, Config{Name: filepath.Join(t.TempDir(), "log"), CrashOutput: true})
	must(t, os.Remove(f.config.Name))
	must(t, f.Close())
	if _, err := os.Stat(f.config.Name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the removed file is there: %v", err)
	}
}
