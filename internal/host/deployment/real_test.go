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
	if err := os.Link(victim, b+".part"); err != nil { // which an earlier copy, or somebody else, has left
		t.Fatal(err)
	}
	if same, err := f.Same(a, b); same || err != nil {
		t.Errorf("same: %v, %v", same, err)
	}
	simtest.Must(t, f.Copy(ctx, a, b))
	if same, err := f.Same(a, b); !same || err != nil {
		t.Errorf("same after the copy: %v, %v", same, err)
	}
	simtest.Must(t, f.Write(ctx, b, []byte("two")))
	if content, err := os.ReadFile(b); string(content) != "two" || err != nil {
		t.Errorf("written: %q, %v", content, err)
	}
	paths, err := f.List(dir)
	if !slices.Equal(paths, []string{a, b}) || err != nil {
		t.Errorf("listed: %q, %v", paths, err)
	}
	if paths, err := f.List(c); len(paths) != 0 || err != nil {
		t.Errorf("listed where nothing is: %q, %v", paths, err)
	}
	if content, err := os.ReadFile(victim); string(content) != "of another user" || err != nil {
		t.Errorf("the copy has gone to another file: %q, %v", content, err)
	}
	simtest.Must(t, f.Rename(ctx, b, c))
	for file, want := range map[string]bool{a: true, b: false, b + ".part": false, c: true} {
		if exists, err := f.Exists(file); exists != want || err != nil {
			t.Errorf("%s exists: %v, %v", file, exists, err)
		}
	}
	for range 2 {
		simtest.Must(t, f.Remove(c))
	}
	_, same := f.Same(a, c)
	for what, err := range map[string]error{"copy": f.Copy(ctx, c, b), "rename": f.Rename(ctx, c, b), "same": same} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := f.Copy(ctx, a, filepath.Join(dir, "no", "b")); err == nil {
		t.Error("a copy to a directory that isn't there")
	}
	if entries, err := os.ReadDir(dir); len(entries) != 1 || err != nil {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}
