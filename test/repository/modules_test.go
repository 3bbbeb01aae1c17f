// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A driver that uses the library gets at least the versions that our go.mod names. Where they are
// newer than the driver's own, testdata/drivers.txt has the reason. Versions that our go.mod
// doesn't name aren't compared.
func TestDriversKeepTheirVersions(t *testing.T) {
	ours := map[string]string{}
	for line := range strings.Lines(readText(t, "go.mod")) {
		if f := strings.Fields(line); len(f) >= 2 && (f[0] == "go" || strings.HasPrefix(line, "\t")) {
			ours[f[0]] = f[1]
		}
	}
	var drivers []string
	for line := range strings.Lines(readText(t, "test/repository/testdata/drivers.txt")) {
		versions, reason, _ := strings.Cut(line, "#")
		f := strings.Fields(versions)
		if len(f) == 0 {
			continue
		}
		if drivers == nil {
			drivers = f[1:]
			continue
		}
		if len(f) != len(drivers)+1 {
			t.Fatalf("testdata/drivers.txt has a line %q, which isn't a module and %d versions", line, len(drivers))
		}
		our := ours[f[0]]
		if our == "" {
			t.Errorf("testdata/drivers.txt has %s, which go.mod doesn't have", f[0])
		}
		raised := slices.ContainsFunc(f[1:], func(theirs string) bool { return theirs != "-" && newer(our, theirs) })
		switch reason = strings.TrimSpace(reason); {
		case raised && reason == "":
			t.Errorf("go.mod raises %s to %s in the go.mod of drivers: take a lower version, or end its line in "+
				"testdata/drivers.txt with # and the reason", f[0], our)
		case !raised && reason != "":
			t.Errorf("testdata/drivers.txt has the reason %q for %s, which go.mod raises for no driver: remove the reason",
				reason, f[0])
		}
	}
	if len(ours) < 20 || len(drivers) != 4 {
		t.Fatalf("%d modules, %d drivers: not what these files have", len(ours), len(drivers))
	}
}

// newer reports whether version a is newer than b.
func newer(a, b string) bool {
	number := func(s string) int {
		digits := strings.TrimLeft(s, "v")
		if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			digits = digits[:i]
		}
		n, _ := strconv.Atoi(digits)
		return n
	}
	if order := slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		return number(a) - number(b)
	}); order != 0 {
		return order > 0
	}
	return a > b // versions without a tag, which have their time: v0.0.0-20260706201446-f0a921348800
}

func TestNewer(t *testing.T) {
	for _, versions := range [][]string{
		{"1.25.0", "1.26.0", "1.26.6"}, {"v1.9.0", "v1.10.0", "v2.0.0"},
		{"v0.0.0-20260203192932-546029d2fa20", "v0.0.0-20260706201446-f0a921348800"},
	} {
		for i, a := range versions {
			for j, b := range versions {
				if newer(a, b) != (i > j) {
					t.Errorf("newer(%s, %s) is %v", a, b, i <= j)
				}
			}
		}
	}
}

// The workflows build with the Go of .ci/go-version, which .ci/toolchain keeps at the newest patch release. No go.mod names
// that, or any Go but the lowest: whoever builds from source with that one downloads no other.
func TestToolchain(t *testing.T) {
	const lowest = "1.26.0"
	built := strings.TrimSpace(readText(t, ".ci/go-version"))
	if newer(lowest, built) || strings.Count(built, ".") != 2 {
		t.Errorf(".ci/go-version has %s, want a patch release from %s on", built, lowest)
	}
	workflows, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil || len(workflows) < 4 {
		t.Fatalf("there are the workflows %q, %v", workflows, err)
	}
	for _, path := range workflows {
		text := readText(t, path)
		if setUp := strings.Count(text, "uses: actions/setup-go@"); setUp == 0 || setUp != strings.Count(text, "go-version-file: .ci/go-version\n") {
			t.Errorf("%s: a step with setup-go doesn't take the Go of .ci/go-version", path)
		}
	}
	for _, path := range filesNamed(t, "go.mod") {
		text := readText(t, path)
		if !strings.Contains(text, "\ngo "+lowest+"\n") || strings.Contains(text, "\ntoolchain ") {
			t.Errorf("%s: want the line go %s, and none with toolchain", path, lowest)
		}
	}
}

// filesNamed returns the paths of our files with one of some names.
func filesNamed(t *testing.T, names ...string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(notOurs, d.Name()):
			return fs.SkipDir
		case slices.Contains(names, d.Name()):
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil || len(paths) < 8 {
		t.Fatalf("the files named %q are %q, %v", names, paths, err)
	}
	return paths
}

// Dependabot looks at each module and lock file, but for what is old on purpose.
func TestDependabotSeesAll(t *testing.T) {
	config := readText(t, ".github/dependabot.yml")
	for _, path := range filesNamed(t, "go.mod", "package-lock.json") {
		folder := strings.TrimSuffix("/"+filepath.ToSlash(filepath.Dir(path)), "/.")
		if folder == "" {
			folder = "/"
		}
		if listed := strings.Contains(config, "\n      - "+folder+"\n"); listed == (folder == "/test/windows") {
			t.Errorf(".github/dependabot.yml: %s: listed: %v", folder, listed)
		}
	}
}
