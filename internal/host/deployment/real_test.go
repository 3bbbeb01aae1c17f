// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// TestMain makes the test program a daemon that is run with -check.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-check" && os.Args[2] == "-o=json" {
		switch {
		case len(os.Args) > 3 && os.Args[3] == "-fail":
			fmt.Fprintln(os.Stderr, "it fails\nfor a second reason")
			os.Exit(2)
		case len(os.Args) > 3 && os.Args[3] == "-garbage":
			fmt.Println("no report")
		default:
			fmt.Printf(`{"version":"v1","endpoints":[%q],"stop_seconds":30,"later":1}`, strings.Join(os.Args[3:], " "))
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestCheck(t *testing.T) {
	self, err := os.Executable()
	simtest.Must(t, err)
	report, err := RealPrograms{}.Check(t.Context(), self, []string{"-a", "b c"})
	simtest.Must(t, err)
	if report.Version != "v1" || len(report.Endpoints) != 1 || report.Endpoints[0] != "-a b c" ||
		report.StopTimeout().Seconds() != 30 {
		t.Errorf("%+v", report)
	}
	for flag, want := range map[string]string{"-fail": "it fails; for a second reason", "-garbage": "no report"} {
		if _, err := (RealPrograms{}).Check(t.Context(), self, []string{flag}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	for _, program := range []string{"csi-proxy.exe", filepath.Join(t.TempDir(), "none.exe")} {
		if _, err := (RealPrograms{}).Check(t.Context(), program, nil); err == nil {
			t.Errorf("%s: no error", program)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (RealPrograms{}).Check(ctx, self, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

func TestOrigin(t *testing.T) {
	self, err := os.Executable()
	simtest.Must(t, err)
	text := filepath.Join(t.TempDir(), "csi-proxy.exe")
	simtest.Must(t, os.WriteFile(text, []byte("MZ"), 0o600))
	for program, want := range map[string]Origin{self: Ours, text: Unknown, text + "x": Unknown} {
		if got, err := (RealPrograms{}).Origin(program); got != want || err != nil {
			t.Errorf("%s: %v, %v", program, got, err)
		}
	}
	for path, want := range map[string]Origin{
		"github.com/csi-proxy/csi-proxy/cmd/csi-proxy":         Ours,
		"github.com/kubernetes-csi/csi-proxy/cmd/csi-proxy":    Published,
		"github.com/kubernetes-csi/csi-proxy/v2/cmd/csi-proxy": Published,
		"github.com/csi-proxy/csi-proxy-other/cmd/csi-proxy":   Unknown,
		"": Unknown,
	} {
		if got := originOf(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestFiles(t *testing.T) {
	f, ctx, dir := RealFiles{}, t.Context(), t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	victim := filepath.Join(t.TempDir(), "victim")
	for file, content := range map[string]string{a: "one", b: "another", victim: "of another user"} {
		simtest.Must(t, os.WriteFile(file, []byte(content), 0o600))
	}
	if err := os.Link(victim, b+".part"); err != nil { // which an earlier run, or somebody else, has left
		t.Fatal(err)
	}
	holds := func(want map[string]string) {
		t.Helper()
		for file, want := range want {
			if content, err := f.Read(file); string(content) != want || err != nil {
				t.Errorf("%s holds %q, %v, want %q", file, content, err, want)
			}
		}
	}
	simtest.Must(t, f.Write(ctx, b, []byte("two")))
	holds(map[string]string{a: "one", b: "two", c: "", victim: "of another user"})
	paths, err := f.List(dir)
	if !slices.Equal(paths, []string{a, b}) || err != nil {
		t.Errorf("listed: %q, %v", paths, err)
	}
	if paths, err := f.List(c); len(paths) != 0 || err != nil {
		t.Errorf("listed where nothing is: %q, %v", paths, err)
	}
	simtest.Must(t, f.Rename(ctx, b, c))
	holds(map[string]string{a: "one", b: "", b + ".part": "", c: "two"})
	for range 2 {
		simtest.Must(t, f.Remove(c))
	}
	if err := f.Rename(ctx, c, b); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename of a missing file: %v", err)
	}
	if err := f.Write(ctx, filepath.Join(dir, "no", "b"), nil); err == nil {
		t.Error("a file in a directory that isn't there")
	}
	if entries, err := os.ReadDir(dir); len(entries) != 1 || err != nil {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}
