// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// A release's tags have all modules that drivers import. One outside of the repository gets them
// from a module proxy that has nothing but the tags, without a replace but that of the
// published library, with all packages that they import on Windows.
func TestReleasedModules(t *testing.T) {
	// The tree as it is, also what isn't committed, in a repository of its own.
	tree := t.TempDir()
	listed := string(run(t, exec.Command("git", "-C", "../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard")))
	for name := range strings.SplitSeq(listed, "\x00") {
		data, err := os.ReadFile(filepath.Join("../..", name))
		if name == "" || err != nil { // deleted
			continue
		}
		must(t, os.MkdirAll(filepath.Join(tree, filepath.Dir(name)), 0o755))
		must(t, os.WriteFile(filepath.Join(tree, name), data, 0o755))
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir = tree
		cmd.Env = append(cmd.Environ(), "TAG=git tag -a", "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.org",
			"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.org", "GIT_CONFIG_GLOBAL="+os.DevNull)
		return cmd
	}
	in := func(name string, args ...string) string { return string(run(t, command(name, args...))) }
	in("git", "init", "--quiet")
	in("git", "add", "--all", "--force")
	in("git", "commit", "--quiet", "--message=all")
	remote := t.TempDir()
	in("git", "init", "--quiet", "--bare", remote)

	// A failure leaves the tags as they were, so that the command can be repeated.
	missing := filepath.Join(remote, "missing")
	for _, existing := range []string{"other", "driver/v0.7.1"} {
		in("git", "tag", existing)
		if out, err := command("deploy/packaging/tag", "v0.7.1", missing).Output(); err == nil || len(out) > 0 {
			t.Errorf("beside the tag %s, a push to a missing repository: %v, tags %q", existing, err, out)
		}
		if left := in("git", "tag", "--list"); left != existing+"\n" {
			t.Errorf("tags %q, want %s alone", left, existing)
		}
		in("git", "tag", "--delete", existing)
	}
	tags := strings.Fields(in("deploy/packaging/tag", "v0.7.1", remote))
	want := "v0.7.1 driver/v0.7.1 cmd/kubectl-csi_proxy/v0.7.1 driver/compat/csi-proxy/v2.7.1"
	if strings.Join(tags, " ") != want {
		t.Fatalf("the tags are %q, want %q", tags, want)
	}

	// One command has released: the changelog has the section, and the branch and all tags are pushed.
	if notes := in("deploy/packaging/release-notes", "v0.7.1", "CHANGELOG.md"); len(notes) < 1000 {
		t.Errorf("the notes of the release are %q", notes)
	}
	in("deploy/packaging/release-notes", "v0.7.1-1-gabc", "CHANGELOG.md")
	branch := strings.TrimSpace(in("git", "symbolic-ref", "HEAD"))
	pushed := in("git", "ls-remote", remote)
	for _, ref := range append([]string{branch}, tags...) {
		if !strings.Contains(pushed, "/"+strings.TrimPrefix(ref, "refs/")+"\n") {
			t.Errorf("%s isn't pushed, but these are:\n%s", ref, pushed)
		}
	}
	if head := strings.TrimSpace(in("git", "rev-parse", "HEAD")); in("git", "rev-parse", "v0.7.1^{commit}") != head+"\n" ||
		!strings.Contains(pushed, head+"\t"+branch+"\n") {
		t.Errorf("the release isn't HEAD, %s, which is pushed:\n%s", head, pushed)
	}

	proxy := t.TempDir()
	for _, tag := range tags {
		folder, version := filepath.Split(tag)
		folder = strings.TrimSuffix(folder, "/")
		if strings.HasPrefix(version, "v2") {
			folder += "/v2"
		}
		m := module.Version{Path: strings.TrimSuffix(repository+"/"+folder, "/"), Version: version}
		dir := filepath.Join(proxy, m.Path, "@v")
		must(t, os.MkdirAll(dir, 0o755))
		archive, err := os.Create(filepath.Join(dir, version+".zip"))
		must(t, err)
		must(t, zip.CreateFromVCS(archive, m, tree, tag, folder)) // as the go command does
		must(t, archive.Close())
		text := in("git", "show", tag+":"+strings.TrimPrefix(folder+"/go.mod", "/"))
		write(t, filepath.Join(dir, version+".mod"), text)
		write(t, filepath.Join(dir, version+".info"), fmt.Sprintf(`{"Version":%q}`, version))
		file, err := modfile.Parse("go.mod", []byte(text), nil)
		must(t, err)
		if len(file.Replace) > 0 {
			t.Errorf("%s: go.mod replaces %s", tag, file.Replace[0].Old)
		}
		for _, r := range file.Require {
			if strings.HasPrefix(r.Mod.Path, repository) && r.Mod.Version != "v0.7.1" {
				t.Errorf("%s: go.mod requires %s", tag, r.Mod)
			}
		}
	}

	driver := t.TempDir()
	write(t, filepath.Join(driver, "go.mod"), "module example.org/driver\n\ngo 1.26.0\n\n"+
		"require (\n\tgithub.com/kubernetes-csi/csi-proxy/v2 v2.0.0-alpha.1\n\t"+repository+"/driver v0.7.1\n)\n\n"+
		"replace github.com/kubernetes-csi/csi-proxy/v2 => "+repository+"/driver/compat/csi-proxy/v2 v2.7.1\n")
	source, err := os.ReadFile("testdata/driver/main.go")
	must(t, err)
	write(t, filepath.Join(driver, "main.go"), string(source))
	write(t, filepath.Join(driver, "modules.go"), "package main\n\nimport (\n\t_ \""+repository+"/driver/csinode\"\n\t_ \""+
		repository+"/driver/mounter\"\n)\n")
	fromProxy(t, driver, proxy, []string{"list", "-deps", "."}) // fails if a package isn't found
}
