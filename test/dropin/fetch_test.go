// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const repository = "github.com/csi-proxy/csi-proxy"

// A driver that names the replacement by version, as docs/library.md says, gets it from a module
// proxy, and builds for Windows: neither module needs a folder beside it.
func TestFetchedByVersion(t *testing.T) {
	proxy := t.TempDir()
	offer(t, proxy, module.Version{Path: repository, Version: "v0.1.0"}, "")
	offer(t, proxy, module.Version{Path: repository + "/compat/csi-proxy/v2", Version: "v2.0.0"}, "compat/csi-proxy/v2/")

	driver := t.TempDir()
	page, err := os.ReadFile("../../docs/library.md")
	must(t, err)
	replaces := regexp.MustCompile(`(?m)^replace .* main$`).FindAllString(string(page), -1)
	if len(replaces) != 2 {
		t.Fatalf("docs/library.md has the lines %q, want two that replace a module by a version", replaces)
	}
	write(t, filepath.Join(driver, "go.mod"), "module example.org/driver\n\ngo 1.25.0\n\n"+
		"require github.com/kubernetes-csi/csi-proxy/v2 v2.0.0-alpha.1\n\n"+strings.Join(replaces, "\n")+"\n")
	source, err := os.ReadFile("testdata/driver/main.go")
	must(t, err)
	write(t, filepath.Join(driver, "main.go"), string(source))

	// A module cache of its own, so that these versions don't get into anybody else's.
	cache := strings.TrimSpace(string(run(t, exec.Command("go", "env", "GOMODCACHE"))))
	proxies := strings.TrimSpace(string(run(t, exec.Command("go", "env", "GOPROXY"))))
	cmd := exec.Command("go", "build", "-trimpath", "-o", os.DevNull, ".")
	cmd.Dir = driver
	cmd.Env = append(cmd.Environ(), "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+t.TempDir(), "GOSUMDB=off", "GOWORK=off",
		"GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+proxies, "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	run(t, cmd)
}

// offer puts the module in a folder of this repository, such as "a/", into a directory that is a
// module proxy, under a version and as the branch main.
func offer(t *testing.T, proxy string, m module.Version, folder string) {
	t.Helper()
	var files []zip.File
	var apart []string // folders with modules of their own
	listed := strings.Split(string(run(t,
		exec.Command("git", "-C", "../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard"))), "\x00")
	for _, name := range listed {
		if dir := path.Dir(name) + "/"; path.Base(name) == "go.mod" && dir != folder && dir != "./" &&
			strings.HasPrefix(dir, folder) {
			apart = append(apart, dir)
		}
	}
	for _, name := range listed {
		inside := func(dir string) bool { return strings.HasPrefix(name, dir) }
		if info, err := os.Lstat(filepath.Join("../..", name)); err == nil && info.Mode().IsRegular() &&
			name != "" && inside(folder) && !slices.ContainsFunc(apart, inside) {
			files = append(files, file{strings.TrimPrefix(name, folder), filepath.Join("../..", name)})
		}
	}
	dir := filepath.Join(proxy, m.Path, "@v")
	must(t, os.MkdirAll(dir, 0o755))
	archive, err := os.Create(filepath.Join(dir, m.Version+".zip"))
	must(t, err)
	defer archive.Close()
	must(t, zip.Create(archive, m, files))
	goMod, err := os.ReadFile(filepath.Join("../..", folder, "go.mod"))
	must(t, err)
	write(t, filepath.Join(dir, m.Version+".mod"), string(goMod))
	for _, query := range []string{m.Version, "main"} {
		write(t, filepath.Join(dir, query+".info"), fmt.Sprintf(`{"Version":%q}`, m.Version))
	}
}

// file is one of the repository.
type file struct{ name, path string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.path) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

func run(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
