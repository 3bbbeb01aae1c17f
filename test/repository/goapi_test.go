// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the Go API as it is now")

// goAPI lists what the public packages export, with a line for each name. Its history shows
// what changed from release to release.
const goAPI = "api/go.txt"

// publicPackages are those that other modules may import. The generated code below api isn't
// listed: it follows the .proto files, and api/testdata/wire.json keeps the published ones.
var publicPackages = []string{
	".", "api", "client", "node", "published", "simnode", "simnode/hardware",
	// Of modules of their own.
	"driver/csinode", "driver/mounter",
}

// A change of the Go API has to be meant: it is listed, and CHANGELOG.md names it.
func TestGoAPI(t *testing.T) {
	var got []string
	for _, dir := range publicPackages {
		got = append(got, exportedBy(t, dir)...)
	}
	text := strings.Join(got, "\n") + "\n"
	if *update {
		if err := os.WriteFile(goAPI, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listed := strings.Split(strings.TrimSuffix(readText(t, goAPI), "\n"), "\n")
	var changes []string
	for _, line := range listed {
		if !slices.Contains(got, line) {
			changes = append(changes, "- "+line)
		}
	}
	for _, line := range got {
		if !slices.Contains(listed, line) {
			changes = append(changes, "+ "+line)
		}
	}
	if len(changes) > 0 {
		t.Errorf("the exported Go API isn't the one that %s lists; if that is meant, name the change in CHANGELOG.md and "+
			"run "+
			"go test ./test/repository -run TestGoAPI -update:\n%s", goAPI, strings.Join(changes, "\n"))
	}
}

// Each package that other modules can import is listed.
func TestPublicPackages(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		dir := filepath.ToSlash(filepath.Dir(file))
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || slices.Contains(publicPackages, dir) {
			continue
		}
		t.Errorf("package %s is public, and its API isn't listed in %s", dir, goAPI)
	}
}

// exportedBy lists what a package exports, on any system.
func exportedBy(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files: %v", dir, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			for _, line := range exported(d) {
				lines = append(lines, "package "+f.Name.Name+", "+line)
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// exported lists the exported names of a declaration, with their types.
func exported(d ast.Decl) (lines []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() {
			return nil
		}
		if d.Recv == nil {
			return []string{"func " + d.Name.Name + signature(d.Type)}
		}
		of := d.Recv.List[0].Type
		if !ast.IsExported(strings.TrimLeft(source(of), "*")) {
			return nil
		}
		return []string{"method (" + source(of) + ") " + d.Name.Name + signature(d.Type)}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					lines = append(lines, exportedType(s)...)
				}
			case *ast.ValueSpec:
				lines = append(lines, exportedValues(d.Tok, s)...)
			}
		}
	}
	return lines
}

func exportedType(s *ast.TypeSpec) (lines []string) {
	name := "type " + s.Name.Name
	if s.TypeParams != nil {
		name += "[" + types(s.TypeParams) + "]"
	}
	if s.Assign.IsValid() {
		name += " ="
	}
	var members *ast.FieldList
	switch typ := s.Type.(type) {
	case *ast.StructType:
		members, name = typ.Fields, name+" struct"
	case *ast.InterfaceType:
		members, name = typ.Methods, name+" interface"
	default:
		return []string{name + " " + source(typ)}
	}
	lines = []string{name}
	for _, m := range members.List {
		if len(m.Names) == 0 {
			lines = append(lines, name+", embedded "+source(m.Type))
		}
		for _, n := range m.Names {
			if f, ok := m.Type.(*ast.FuncType); ok && n.IsExported() && strings.HasSuffix(name, " interface") {
				lines = append(lines, name+", "+n.Name+signature(f))
			} else if n.IsExported() {
				line := name + ", " + n.Name + " " + source(m.Type)
				if m.Tag != nil {
					line += " " + m.Tag.Value
				}
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func exportedValues(kind token.Token, s *ast.ValueSpec) (lines []string) {
	for i, n := range s.Names {
		if !n.IsExported() {
			continue
		}
		line := fmt.Sprint(kind, " ", n.Name)
		if s.Type != nil {
			line += " " + source(s.Type)
		}
		if kind == token.CONST && i < len(s.Values) {
			line += " = " + source(s.Values[i])
		}
		lines = append(lines, line)
	}
	return lines
}

// signature is that of a function without the names of its parameters.
func signature(f *ast.FuncType) string {
	text := "(" + types(f.Params) + ")"
	if f.TypeParams != nil {
		text = "[" + types(f.TypeParams) + "]" + text
	}
	if f.Results == nil {
		return text
	}
	results := types(f.Results)
	if strings.Contains(results, ", ") {
		results = "(" + results + ")"
	}
	return text + " " + results
}

func types(list *ast.FieldList) string {
	var all []string
	for _, f := range list.List {
		for range max(1, len(f.Names)) {
			all = append(all, source(f.Type))
		}
	}
	return strings.Join(all, ", ")
}

// source is an expression as Go code in one line.
func source(e ast.Expr) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), e); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
