// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
)

// repository is the path of its root.
const repository = "../../.."

func readPage(t *testing.T) (text string, rows []Row) {
	t.Helper()
	b, err := os.ReadFile(repository + "/docs/windows-proof.md")
	must(t, err)
	rows, err = parsePage(string(b))
	must(t, err)
	return string(b), rows
}

// source is what the tests of the page need of a package.
type source struct {
	tests    map[string]bool // functions
	literals map[string]bool // strings, with underscores for spaces
	suite    bool            // it runs the rows of suite
	skipping []string        // tests that skip themselves under Wine
}

// suite is the package whose rows other packages run as parts of tests of theirs.
const suite = "internal/lab/seamtest"

// sources returns all packages of the repository that have tests, by directory.
func sources(t *testing.T) map[string]*source {
	t.Helper()
	all := map[string]*source{}
	root := os.DirFS(repository)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." &&
				(strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" || base == "dist") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if all[dir] == nil {
			all[dir] = &source{tests: map[string]bool{}, literals: map[string]bool{}}
		}
		all[dir].add(f, strings.HasSuffix(name, "_test.go"))
		return nil
	})
	must(t, err)
	for _, o := range seamtest.Oracles() {
		all[suite].literals[o.Proof] = true
	}
	for _, name := range seamtest.Names() {
		all[suite].literals[strings.ReplaceAll(name, " ", "_")] = true
	}
	for _, s := range all {
		if s.suite {
			maps.Copy(s.literals, all[suite].literals)
		}
	}
	return all
}

func (s *source) add(f *ast.File, isTest bool) {
	s.suite = s.suite || slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return strings.HasSuffix(i.Path.Value, "/"+suite+`"`)
	})
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				s.literals[strings.ReplaceAll(text, " ", "_")] = true
			}
		}
		return true
	})
	for _, d := range f.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !isTest || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" {
			continue
		}
		s.tests[f.Name.Name] = true
		skips := false
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok &&
				slices.Contains([]string{"skipUnderWine", "notOnWine", "startOnStorage"}, id.Name) {
				skips = true
			}
			return true
		})
		if skips {
			s.skipping = append(s.skipping, f.Name.Name)
		}
	}
}

// named returns the packages that have a test of a pattern.
func named(all map[string]*source, p Pattern) (packages []string) {
	parts := strings.Split(p.Test, "/")
	for dir, s := range all {
		if p.Package != "" && p.Package != dir {
			continue
		}
		for test := range s.tests {
			ok, err := path.Match(parts[0], test)
			if err != nil || !ok || !s.hasParts(parts[1:]) {
				continue
			}
			packages = append(packages, dir)
			break
		}
	}
	return packages
}

func (s *source) hasParts(parts []string) bool {
	for _, part := range parts {
		if _, err := strconv.Atoi(part); err != nil && part != "*" && !s.literals[part] {
			return false
		}
	}
	return true
}

func TestPageNamesTests(t *testing.T) {
	text, rows := readPage(t)
	all := sources(t)
	for _, p := range Patterns(text) {
		if len(named(all, p)) == 0 {
			t.Errorf("the page names %s, which no package has", p)
		}
	}
	for _, row := range rows {
		for _, p := range Patterns(row.Check) {
			if packages := named(all, p); len(packages) > 1 {
				t.Errorf("row %s names %s, which the packages %q have: name one", row.ID, p, packages)
			}
		}
		if row.Check == "" && row.Result != "" || row.Check != "" && row.Result == "" {
			t.Errorf("row %s has the check %q and the result %q", row.ID, row.Check, row.Result)
		}
		if row.Check != "" && len(Patterns(row.Check)) == 0 && !strings.Contains(row.Check, "by hand") &&
			row.Result == NotRun {
			t.Errorf("row %s has a check that is neither a test nor by hand: %s", row.ID, row.Check)
		}
	}
	// What Wine can't show has to be settled by Windows, hence is of a row.
	for dir, s := range all {
		for _, test := range s.skipping {
			if !slices.ContainsFunc(rows, func(r Row) bool {
				return slices.ContainsFunc(Patterns(r.Check), func(p Pattern) bool {
					ok, err := path.Match(strings.Split(p.Test, "/")[0], test)
					return err == nil && ok && slices.Contains(named(all, p), dir)
				})
			}) {
				t.Errorf("%s of %s needs Windows, but no row names it as its check", test, dir)
			}
		}
	}
}

// csi-proxy-wintest has the tests of each package that a check is of.
func TestChecksArePacked(t *testing.T) {
	_, rows := readPage(t)
	makefile, err := os.ReadFile(repository + "/deploy/packaging/release.mk")
	must(t, err)
	m := regexp.MustCompile(`(?m)^WINTEST_PACKAGES = (.*)$`).FindStringSubmatch(string(makefile))
	if m == nil {
		t.Fatal("deploy/packaging/release.mk has no WINTEST_PACKAGES")
	}
	packed := append(strings.Fields(m[1]), "test/windows")
	all := sources(t)
	for _, row := range rows {
		for _, p := range Patterns(row.Check) {
			for _, pkg := range named(all, p) {
				if !slices.Contains(packed, pkg) {
					t.Errorf("the check of row %s is %s of %s, which csi-proxy-wintest lacks", row.ID, p, pkg)
				}
			}
		}
	}
}

var (
	procedure   = regexp.MustCompile(`NewProc\("([A-Za-z0-9_]+)"\)`)
	controlCode = regexp.MustCompile(`"((?:IOCTL|FSCTL)_[A-Z0-9_]+)"`)
	wrapped     = regexp.MustCompile(`\bwindows\.([A-Z][A-Za-z0-9_]*)\(`)
)

// Functions of golang.org/x/sys/windows that make no call worth a row: conversions, and
// those that can't fail.
var noCalls = []string{
	"Errno", "Handle", "NTStatus", "CONFIGRET", "GUID", "Token", "ByteSliceToString", "UTF16FromString",
	"UTF16PtrFromString",
	"UTF16PtrToString", "UTF16ToString", "StringToUTF16", "StringToUTF16Ptr", "NewLazySystemDLL", "NewNTUnicodeString",
	"NewCallback", "CloseHandle", "CloseServiceHandle", "CurrentProcess", "GetCurrentThreadId",
	"CoUninitialize", "FindVolumeClose",
}

// Each call to Windows that the code below the seam makes is on the page.
func TestPageHasCalls(t *testing.T) {
	text, _ := readPage(t)
	calls := map[string]string{} // and where
	collect := func(dir string, forms ...*regexp.Regexp) {
		files, err := filepath.Glob(filepath.Join(repository, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no code (%v)", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			b, err := os.ReadFile(file)
			must(t, err)
			for _, form := range forms {
				for _, m := range form.FindAllSubmatch(b, -1) {
					calls[string(m[1])] = dir
				}
			}
		}
	}
	collect("internal/windows/winsys", procedure, wrapped)
	collect("internal/windows/winsys/wmi", procedure, wrapped)
	collect("internal/windows/win", controlCode)
	if len(calls) < 50 {
		t.Fatalf("only %d calls found", len(calls))
	}
	for call, dir := range calls {
		if slices.Contains(noCalls, call) || regexp.MustCompile(`\b`+regexp.QuoteMeta(call)+`W?\b`).MatchString(text) {
			continue
		}
		t.Errorf("the page has no row for %s, which %s calls", call, dir)
	}
}

func TestParsePage(t *testing.T) {
	const head = "| id | facts | on Windows |\n|---|---|---|\n"
	const a, section = "| [a](#a) | 0 | e |\n", "### a\nAssumption: b\n\nProven by: c\n"
	if rows, err := parsePage(head + a + section + "\nCheck: d\nd\n"); err != nil || len(rows) != 1 ||
		rows[0].Check != "d d" {
		t.Errorf("%+v, %v", rows, err)
	}
	for name, page := range map[string]string{
		"cells":        head + "| [a](#a) | 0 |\n" + section,
		"id":           head + "| [a b](#a b) | 0 | e |\n",
		"no link":      head + "| a | 0 | e |\n" + section,
		"facts":        head + "| [a](#a) | many | e |\n" + section,
		"twice":        head + a + a + section,
		"other":        "| id | b |\n",
		"twice far":    head + a + "\n" + head + a + section,
		"no section":   head + a,
		"no row":       head + section,
		"no proof":     head + a + "### a\nAssumption: b\n",
		"two proofs":   head + a + section + "\nProven by: d\n",
		"another part": head + a + section + "\nResult: d\n",
	} {
		if rows, err := parsePage(page); err == nil {
			t.Errorf("%s: %+v, want an error", name, rows)
		}
	}
}

// Each row has as many facts as stand behind it, and its check runs them.
func TestPageHasFacts(t *testing.T) {
	_, rows := readPage(t)
	facts := map[string]int{}
	for _, o := range seamtest.Oracles() {
		facts[o.Proof]++
	}
	for _, row := range rows {
		n := facts[row.ID]
		delete(facts, row.ID)
		if row.Facts != n {
			t.Errorf("row %s has %d facts, and %d stand behind it", row.ID, row.Facts, n)
		}
		check := "`internal/windows/winsys.TestGuessFacts/" + row.ID + "/*/*`"
		if runs := strings.Contains(row.Check, check); runs != (n > 0) {
			t.Errorf("row %s has %d facts, and its check runs them with %s: %t", row.ID, n, check, runs)
		}
		if proof := regexp.MustCompile(`\bfacts\b`).MatchString(row.Proof); proof != (n > 0) {
			t.Errorf("row %s has %d facts, and they stand among its proofs: %t", row.ID, n, proof)
		}
	}
	for id, n := range facts {
		t.Errorf("%d facts are of the row %s, which the page lacks", n, id)
	}
}
