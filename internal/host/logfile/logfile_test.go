// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// crashVariable makes the test binary a program that panics; it is the name of
// its log.
const crashVariable = "CSI_PROXY_TEST_CRASH"

func TestMain(m *testing.M) {
	if name := os.Getenv(crashVariable); name != "" {
		crash(name)
	}
	os.Exit(m.Run())
}

func crash(name string) {
	f, err := Open(Config{Name: name, MaxBytes: 1, CrashOutput: true})
	if err != nil {
		panic(err)
	}
	f.Write([]byte("rotated\n"))
	f.Write([]byte("current\n"))
	panic("as planned")
}

func openTest(t *testing.T, config Config) *File {
	t.Helper()
	f, err := Open(config)
	must(t, err)
	t.Cleanup(func() {
		must(t, f.Close())
	})
	return f
}

func write(t *testing.T, f *File, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if n, err := f.Write([]byte(line + "\n")); n != len(line)+1 || err != nil {
			t.Errorf("Write(%q) = %d, %v", line, n, err)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	must(t, err)
	return string(content)
}

// files returns the content of the files in a directory, by name, with a space
// in place of each line's end.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	all := make(map[string]string)
	for _, e := range entries {
		all[e.Name()] = strings.ReplaceAll(read(t, filepath.Join(dir, e.Name())), "\n", " ")
	}
	return all
}

func wantFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, files(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func wantMatch(t *testing.T, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(got) {
		t.Errorf("got %q, want match for %s", got, pattern)
	}
}

func TestRotation(t *testing.T) {
	for name, test := range map[string]struct {
		maxBytes int64
		before   string
		lines    string
		want     map[string]string
	}{
		"no bound":               {0, "", "aaa bbb ccc", map[string]string{"log": "aaa bbb ccc "}},
		"just filled":            {8, "", "aaa bbb", map[string]string{"log": "aaa bbb "}},
		"one byte too many":      {7, "", "aaa bbb", map[string]string{"log": "bbb ", "log.1": "aaa "}},
		"twice":                  {2, "", "a b c d e", map[string]string{"log": "e ", "log.1": "d "}},
		"line larger than bound": {2, "", "aaa bbb", map[string]string{"log": "bbb ", "log.1": "aaa "}},
		"continued":              {8, "old\n", "aaa", map[string]string{"log": "old aaa "}},
		"full when opened":       {2, "old\n", "a", map[string]string{"log": "a ", "log.1": "old "}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "log")
			if test.before != "" {
				must(t, os.WriteFile(file, []byte(test.before), 0o600))
			}
			f := openTest(t, Config{Name: file, MaxBytes: test.maxBytes})
			write(t, f, strings.Fields(test.lines)...)
			wantFiles(t, dir, test.want)
		})
	}
}

func TestHeader(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "log")
	headers := 0
	config := Config{Name: name, MaxBytes: 12, Header: func() []byte {
		headers++
		return fmt.Appendf(nil, "header%d\n", headers)
	}}
	write(t, openTest(t, config), "a")
	f := openTest(t, config)
	write(t, f, "b", "c")
	wantFiles(t, dir, map[string]string{"log": "header2 c ", "log.1": "header1 a b "})
	must(t, os.Truncate(name, 0))
	f.checked = time.Time{} // as if a second had passed
	write(t, f, "d")
	wantFiles(t, dir, map[string]string{"log": "header3 d ", "log.1": "header1 a b "})
}

func TestOpenMakesDirectory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a", "b", "log")
	write(t, openTest(t, Config{Name: name}), "line")
	if got := read(t, name); got != "line\n" {
		t.Errorf("the log holds %q", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for name, config := range map[string]Config{
		"no name":        {},
		"negative bound": {Name: file, MaxBytes: -1},
	} {
		if f, err := Open(config); err == nil {
			t.Errorf("%s: no error", name)
			f.Close()
		}
	}
}

// What can't be opened is opened by a later write, once it can be.
func TestOpensLater(t *testing.T) {
	for name, block := range map[string]func(log string) (unblock func() error, err error){
		"directory": func(log string) (func() error, error) {
			return func() error { return os.Remove(log) }, os.Mkdir(log, 0o700)
		},
		"below a file": func(log string) (func() error, error) {
			dir := filepath.Dir(log)
			return func() error { return errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)) },
				errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			must(t, os.Mkdir(dir, 0o700))
			unblock, err := block(filepath.Join(dir, "log"))
			must(t, err)
			f := openTest(t, Config{Name: filepath.Join(dir, "log")})
			if f.Err() == nil {
				t.Error("no error")
			}
			if _, err := f.Write([]byte("lost\n")); err == nil {
				t.Error("Write succeeds")
			}
			must(t, unblock())
			write(t, f, "after")
			must(t, f.Err())
			if got := read(t, f.config.Name); got != "after\n" {
				t.Errorf("the log holds %q", got)
			}
		})
	}
}

// What is no file is never written to.
func TestNoFile(t *testing.T) {
	for _, name := range []string{os.DevNull, filepath.Join(t.TempDir(), "log\x00")} {
		f := openTest(t, Config{Name: name})
		if n, err := f.Write([]byte("line\n")); n != 0 || err == nil {
			t.Errorf("%q: Write = %d, %v", name, n, err)
		}
	}
}

// What an operator or a collector does to the file is noticed within a second,
// and at the latest when the file is rotated.
func TestChangedUnderneath(t *testing.T) {
	for name, test := range map[string]struct {
		maxBytes int64
		change   func(dir string) error
		wait     time.Duration
		want     map[string]string
	}{
		"removed": {
			change: func(dir string) error { return os.Remove(filepath.Join(dir, "log")) },
			wait:   checkInterval,
			want:   map[string]string{"log": "after "},
		},
		"renamed": {
			change: func(dir string) error { return os.Rename(filepath.Join(dir, "log"), filepath.Join(dir, "mine")) },
			wait:   checkInterval,
			want:   map[string]string{"log": "after ", "mine": "before "},
		},
		"renamed before rotation": {
			maxBytes: 8,
			change: func(dir string) error {
				return errors.Join(os.Rename(filepath.Join(dir, "log"), filepath.Join(dir, "mine")),
					os.WriteFile(filepath.Join(dir, "log"), []byte("x\n"), 0o600))
			},
			want: map[string]string{"log": "x after ", "mine": "before "},
		},
		"emptied": {
			maxBytes: 8,
			change:   func(dir string) error { return os.Truncate(filepath.Join(dir, "log"), 0) },
			want:     map[string]string{"log": "after "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				f := openTest(t, Config{Name: filepath.Join(dir, "log"), MaxBytes: test.maxBytes})
				write(t, f, "before")
				must(t, test.change(dir))
				if _, err := os.Stat(f.config.Name); err == nil && name == "removed" {
					t.Skip("here a removed file looks usable until it is closed, as in Wine")
				}
				time.Sleep(test.wait)
				write(t, f, "after")
				wantFiles(t, dir, test.want)
			})
		})
	}
}

// A handle that stops working, like that of a volume that was dismounted, is
// replaced.
func TestBrokenHandle(t *testing.T) {
	f := openTest(t, Config{Name: filepath.Join(t.TempDir(), "log")})
	must(t, f.file.Close())
	if _, err := f.Write([]byte("lost\n")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Write = %v", err)
	}
	write(t, f, "after")
	if got := read(t, f.config.Name); got != "after\n" {
		t.Errorf("the log holds %q", got)
	}
}

// What can't be made the old file grows to twice its limit, and is then emptied.
func TestRotationInTheWay(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	must(t, os.MkdirAll(filepath.Join(name+".1", "precious"), 0o700))
	f := openTest(t, Config{Name: name, MaxBytes: 4})
	write(t, f, "aaa", "bbb")
	wantMatch(t, read(t, name), `^aaa\nbbb\n$`)
	write(t, f, "ccc")
	wantMatch(t, read(t, name), `^ccc\n$`)

	must(t, os.RemoveAll(name+".1"))
	write(t, f, "ddd")
	wantMatch(t, read(t, name), `^ddd\n$`)
	wantMatch(t, read(t, name+".1"), `^ccc\n$`)
}

func TestConcurrentWrites(t *testing.T) {
	const writers, lines, maxBytes = 5, 20, 1200 // all lines fit into the file and the old one
	name := filepath.Join(t.TempDir(), "log")
	f := openTest(t, Config{Name: name, MaxBytes: maxBytes})
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for l := range lines {
				write(t, f, fmt.Sprintf("writer %d line %d", w, l))
			}
		})
	}
	all.Wait()

	seen := make(map[string]int)
	files, err := filepath.Glob(name + "*")
	must(t, err)
	for _, file := range files {
		content := read(t, file)
		if len(content) > maxBytes {
			t.Errorf("%s has %d bytes", file, len(content))
		}
		for line := range strings.Lines(content) {
			seen[line]++
		}
	}
	want := make(map[string]int)
	for w := range writers {
		for l := range lines {
			want[fmt.Sprintf("writer %d line %d\n", w, l)] = 1
		}
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestCrashOutput(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashVariable+"="+name)
	if out, err := cmd.CombinedOutput(); cmd.ProcessState == nil || cmd.ProcessState.Success() {
		t.Fatalf("the crash gives %v: %s", err, out)
	}
	wantMatch(t, read(t, name), `(?s)^current\n.*panic: as planned.*logfile\.crash`)
	if got := read(t, name+".1"); got != "rotated\n" {
		t.Errorf("the old file holds %q", got)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
