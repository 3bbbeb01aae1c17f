// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Published writes Go code that compiles only if the packages of the drop-in module export all
// that those of the published library do, with the same types. It reads the published module,
// whose directory is its argument.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"go/types"
	"log"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/kubernetes-csi/csi-proxy/v2"

// groups are the packages that drivers use. Each has its host side below it.
var groups = []string{"disk", "filesystem", "iscsi", "smb", "system", "volume"}

func main() {
	log.SetFlags(0)
	patterns := []string{"./pkg/utils"}
	for _, g := range groups {
		patterns = append(patterns, "./pkg/"+g, "./pkg/"+g+"/hostapi")
	}
	loaded, err := packages.Load(&packages.Config{
		Dir: os.Args[1],
		Env: append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=-mod=mod"),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypesInfo | packages.NeedSyntax,
	}, patterns...)
	if err != nil {
		log.Fatal(err)
	}
	if packages.PrintErrors(loaded) > 0 || len(loaded) != len(patterns) {
		log.Fatal("the published module can't be read")
	}
	w := &writer{imports: make(map[string]bool)}
	for _, p := range loaded {
		w.pkg(p.Types)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "// Copyright The CSI Proxy Authors.\n// SPDX-License-Identifier: Apache-2.0\n\n")
	fmt.Fprintf(&out, "// Code generated from %s by ./published. DO NOT EDIT.\n\npackage dropin\n\nimport (\n",
		path.Base(os.Args[1]))
	for _, i := range slices.Sorted(maps.Keys(w.imports)) {
		if strings.Contains(w.body.String(), name(i)+".") {
			fmt.Fprintf(&out, "%s %q\n", name(i), i)
		}
	}
	fmt.Fprintf(&out, ")\n%s", w.body.String())
	source, err := format.Source(out.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	os.Stdout.Write(source)
}

// name is what a package is called in the code: disk, diskapi, context.
func name(importPath string) string {
	if dir, ok := strings.CutSuffix(importPath, "/hostapi"); ok {
		return path.Base(dir) + "api"
	}
	return path.Base(importPath)
}

type writer struct {
	imports map[string]bool
	body    strings.Builder
}

func (w *writer) qualify(p *types.Package) string {
	w.imports[p.Path()] = true
	return name(p.Path())
}

func (w *writer) text(t types.Type) string { return types.TypeString(t, w.qualify) }

// line writes a line. Lines that mention an unexported name are left out: other packages can't use them.
func (w *writer) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !unexported.MatchString(text) {
		fmt.Fprintln(&w.body, text)
	}
}

var unexported = regexp.MustCompile(`\b[a-z]+\.[a-z]+[A-Z]`)

// pkg writes a line for each exported name of a package.
func (w *writer) pkg(p *types.Package) {
	w.line("\n// %s", strings.TrimPrefix(p.Path(), module+"/"))
	scope := p.Scope()
	for _, n := range scope.Names() {
		o := scope.Lookup(n)
		if !o.Exported() {
			continue
		}
		full := w.qualify(p) + "." + n
		switch o := o.(type) {
		case *types.Const:
			w.line("var _ = map[bool]%s{false: %s, %s == %s: %[2]s}", w.text(types.Default(o.Type())), full, full, o.Val().ExactString())
		case *types.Var, *types.Func:
			w.line("var _ %s = %s", w.text(o.Type()), full)
		case *types.TypeName:
			w.typeName(full, o.Type())
		}
	}
}

func (w *writer) typeName(full string, t types.Type) {
	// A conversion of pointers is one of identical types.
	if u, ok := t.Underlying().(*types.Struct); ok && hidden(u) {
		w.line("var _ %s", full)
	} else {
		w.line("var _ = (*%s)((*%s)(nil))", w.text(t.Underlying()), full)
	}
	pointer := types.NewMethodSet(types.NewPointer(t))
	value := types.NewMethodSet(t)
	for i := range pointer.Len() {
		m := pointer.At(i)
		if !m.Obj().Exported() {
			continue
		}
		receiver, of := "*"+full, types.Type(types.NewPointer(t))
		if value.Lookup(m.Obj().Pkg(), m.Obj().Name()) != nil {
			receiver, of = full, t
		}
		w.line("var _ %s = (%s).%s", w.text(expression(of, m.Type().(*types.Signature))), receiver, m.Obj().Name())
	}
}

// expression is the type of a method expression: the receiver is its first parameter.
func expression(receiver types.Type, s *types.Signature) *types.Signature {
	parameters := []*types.Var{types.NewParam(0, nil, "", receiver)}
	for i := range s.Params().Len() {
		parameters = append(parameters, types.NewParam(0, nil, "", s.Params().At(i).Type()))
	}
	return types.NewSignatureType(nil, nil, nil, types.NewTuple(parameters...), s.Results(), s.Variadic())
}

// hidden reports whether a structure has fields that aren't exported, or none that could differ.
func hidden(s *types.Struct) bool {
	for i := range s.NumFields() {
		if !s.Field(i).Exported() {
			return true
		}
	}
	return s.NumFields() == 0
}
