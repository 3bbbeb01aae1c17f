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

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const repository = "github.com/csi-proxy/csi-proxy"

var buildCommand = []string{"build", "-trimpath", "-o", os.DevNull, "."}

// A driver that names the replacement by version, as docs/go-authors.md says, gets it from a module
// proxy, and builds for Windows: neither module needs a folder beside it.
func TestFetchedByVersion(t *testing.T) {
	proxy := t.TempDir()
	offer(t, proxy, module.Version{Path: repository, Version: "v0.1.0"}, "")
	offer(t, proxy, module.Version{Path: repository + "/driver/compat/csi-proxy/v2", Version: "v2.0.0"}, "driver/compat/csi-proxy/v2/")

	replaces := linesOfPage(t, "## A driver on the published v2 library, unchanged", `(?m)^replace .* main$`)
	if len(replaces) != 2 {
		t.Fatalf("docs/go-authors.md has the lines %q, want two that replace a module by a version", replaces)
	}
	driver := t.TempDir()
	write(t, filepath.Join(driver, "go.mod"), "module example.org/driver\n\ngo 1.25.0\n\n"+
		"require github.com/kubernetes-csi/csi-proxy/v2 v2.0.0-alpha.1\n\n"+strings.Join(replaces, "\n")+"\n")
	source, err := os.ReadFile("testdata/driver/main.go")
	must(t, err)
	write(t, filepath.Join(driver, "main.go"), string(source))

	fromProxy(t, driver, proxy, []string{"mod", "tidy"}, buildCommand)
	text, err := os.ReadFile(filepath.Join(driver, "go.mod"))
	must(t, err)
	after, err := modfile.Parse("go.mod", text, nil)
	must(t, err)
	var needs []string
	for _, r := range after.Require {
		needs = append(needs, r.Mod.Path)
	}
	want := []string{repository, "github.com/kubernetes-csi/csi-proxy/v2", "golang.org/x/sys"}
	if slices.Sort(needs); !slices.Equal(needs, want) {
		t.Errorf("after go mod tidy the driver requires %q, want %q", needs, want)
	}
}

// The example of csinode as a driver of its own, with the lines of docs/go-authors.md in its go.mod,
// builds beside a clone of this repository.
func TestNewDriverBesideClone(t *testing.T) {
	lines := linesOfPage(t, "## Get it", `(?m)^(require|replace) .*$`)
	if len(lines) != 4 {
		t.Fatalf("docs/go-authors.md has the lines %q, want two that require and two that replace", lines)
	}
	folder := t.TempDir()
	clone, err := filepath.Abs("../..")
	must(t, err)
	must(t, os.Symlink(clone, filepath.Join(folder, "csi-proxy")))
	driver := filepath.Join(folder, "driver")
	must(t, os.Mkdir(driver, 0o700))
	write(t, filepath.Join(driver, "go.mod"), "module example.org/driver\n\ngo 1.25.0\n\n"+strings.Join(lines, "\n")+"\n")
	example, err := os.ReadFile("../../driver/csinode/example_test.go")
	must(t, err)
	asProgram := strings.NewReplacer("package csinode_test", "package main", "func Example()", "func main()")
	write(t, filepath.Join(driver, "main.go"), asProgram.Replace(string(example)))
	fromProxy(t, driver, t.TempDir(), []string{"mod", "tidy"}, buildCommand)
}

// linesOfPage returns the lines of a section of docs/go-authors.md that match an expression.
func linesOfPage(t *testing.T, heading, expression string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/go-authors.md")
	must(t, err)
	_, section, ok := strings.Cut(string(page), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/go-authors.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return regexp.MustCompile(expression).FindAllString(section, -1)
}

// fromProxy runs go commands for a driver for Windows, with the modules that a proxy in a directory has.
func fromProxy(t *testing.T, driver, proxy string, commands ...[]string) {
	t.Helper()
	// A module cache of its own, so that these versions don't get into anybody else's.
	cache := strings.TrimSpace(string(run(t, exec.Command("go", "env", "GOMODCACHE"))))
	proxies := strings.TrimSpace(string(run(t, exec.Command("go", "env", "GOPROXY"))))
	own := t.TempDir()
	for _, args := range commands {
		cmd := exec.Command("go", args...)
		cmd.Dir = driver
		cmd.Env = append(cmd.Environ(), "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+own, "GOSUMDB=off", "GOWORK=off",
			"GOPROXY=file://"+proxy+",file://"+cache+"/cache/download,"+proxies, "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
		run(t, cmd)
	}
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
