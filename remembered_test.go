// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// remembering are the packages that operations run through.
var remembering = []string{
	"internal/ops", "internal/windows/device", "internal/serve/rpc", "internal/serve/wire", "internal/serve/server",
	"internal/serve/admin",
}

// What these packages keep in fields that can grow, be exchanged or become old (maps, atomics
// and times) is in the list of docs/architecture.md, and nothing else is. A new cache fails here
// until the page says what is remembered, until when, and what happens if it is outdated.
func TestWhatIsRemembered(t *testing.T) {
	page := readText(t, "docs/architecture.md")
	_, section, ok := strings.Cut(page, "## What is remembered\n")
	if !ok {
		t.Fatal("docs/architecture.md has no section of what is remembered")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z]+\\.\\w+\\.\\w+)`").FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
	}
	found := map[string]bool{}
	for _, root := range remembering {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return fieldsThatRemember(path, found)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !listed[name] {
			t.Errorf("%s isn't in docs/architecture.md: what does it remember, until when, and what if it is outdated?", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !found[name] {
			t.Errorf("docs/architecture.md lists %s, which isn't a field any more", name)
		}
	}
}

// fieldsThatRemember adds package.type.field for each field or variable of a file that may
// remember something, but for those that only functions have.
func fieldsThatRemember(path string, found map[string]bool) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				s, ok := spec.Type.(*ast.StructType)
				for i := 0; ok && i < len(s.Fields.List); i++ {
					if field := s.Fields.List[i]; remembers(field.Type) {
						for _, name := range field.Names {
							found[file.Name.Name+"."+spec.Name.Name+"."+name.Name] = true
						}
					}
				}
			case *ast.ValueSpec: // a table that is filled where it is declared is no memory
				if general.Tok == token.VAR && spec.Type != nil && remembers(spec.Type) {
					for _, name := range spec.Names {
						found[file.Name.Name+".var."+name.Name] = true
					}
				}
			}
		}
	}
	return nil
}

// remembers reports whether a type has a map, an atomic or a time in it.
func remembers(t ast.Expr) (found bool) {
	ast.Inspect(t, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			return false
		case *ast.MapType:
			found = true
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				name := x.Name + "." + n.Sel.Name
				found = found || x.Name == "atomic" || name == "sync.Map" || name == "time.Time"
			}
		}
		return true
	})
	return found
}
