// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// answers finds, in the code of the node, which errors each method of the seam can give:
// those that stand in a function which the method may call.
type answers struct {
	info  types.Info
	funcs map[*types.Func]*ast.FuncDecl
	named map[string][]*types.Func // methods by name, for calls through interfaces
}

const (
	module = "github.com/csi-proxy/csi-proxy/"
	simDir = module + "internal/sim/winsim"
)

// load reads the packages of the node.
func load(t *testing.T) *answers {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles",
		simDir+"/...").Output()
	must(t, err)
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	export, own := map[string]string{}, []listed(nil)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else {
			must(t, err)
		}
		export[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, simDir) && !strings.HasSuffix(p.ImportPath, "/simtest") {
			own = append(own, p) // after what it imports
		}
	}
	a := &answers{
		info:  types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}},
		funcs: map[*types.Func]*ast.FuncDecl{}, named: map[string][]*types.Func{},
	}
	fset, checked := token.NewFileSet(), map[string]*types.Package{}
	gc := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(export[path]) })
	for _, p := range own {
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			must(t, err)
			files = append(files, f)
		}
		config := types.Config{Importer: importerFunc(func(path string) (*types.Package, error) {
			if done, ok := checked[path]; ok {
				return done, nil
			}
			return gc.Import(path)
		})}
		checked[p.ImportPath], err = config.Check(p.ImportPath, fset, files, &a.info)
		must(t, err)
		for _, f := range files {
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
					f := a.info.Defs[d.Name].(*types.Func)
					a.funcs[f] = d
					if d.Recv != nil {
						a.named[d.Name.Name] = append(a.named[d.Name.Name], f)
					}
				}
			}
		}
	}
	return a
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

// method finds the declaration of a method of winsim.
func (a *answers) method(receiver, name string) *types.Func {
	for _, f := range a.named[name] {
		r := f.Signature().Recv().Type()
		if p, ok := r.(*types.Pointer); ok {
			r = p.Elem()
		}
		if n, ok := r.(*types.Named); ok && n.Obj().Name() == receiver && f.Pkg().Path() == simDir {
			return f
		}
	}
	return nil
}

// errors returns the errors that stand in what f may call, with the function of one.
func (a *answers) errors(f *types.Func, seen map[*types.Func]bool, found map[win.Errno]string) {
	if seen[f] {
		return
	}
	seen[f] = true
	compared := map[ast.Node]bool{}
	ast.Inspect(a.funcs[f].Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr: // an error that is compared isn't given
			if n.Op == token.EQL || n.Op == token.NEQ {
				compared[n.X], compared[n.Y] = true, true
			}
		case *ast.SelectorExpr, *ast.CallExpr:
			if compared[n] {
				return false
			}
		case *ast.Ident:
			switch o := a.info.Uses[n].(type) {
			case *types.Const:
				if named, ok := o.Type().(*types.Named); ok && named.Obj().Name() == "Errno" && !compared[n] {
					var e win.Errno
					if _, err := fmt.Sscan(o.Val().ExactString(), &e); err == nil && found[e] == "" {
						found[e] = f.Name()
					}
				}
			case *types.Func:
				for _, callee := range a.callees(o) {
					a.errors(callee, seen, found)
				}
			}
		}
		return true
	})
}

// callees are the functions of the node that a use of a function may call.
func (a *answers) callees(f *types.Func) []*types.Func {
	if a.funcs[f] != nil {
		return []*types.Func{f}
	}
	r := f.Signature().Recv()
	if r == nil || f.Pkg() == nil || !types.IsInterface(r.Type()) || !strings.HasPrefix(f.Pkg().Path(), simDir) {
		return nil
	}
	var callees []*types.Func
	for _, m := range a.named[f.Name()] {
		if types.Implements(m.Signature().Recv().Type(), r.Type().Underlying().(*types.Interface)) {
			callees = append(callees, m)
		}
	}
	return callees
}

// statusOf is an error that a method of the seam gives.
type statusOf struct {
	method string
	errno  win.Errno
}

func (a statusOf) String() string { return fmt.Sprintf("%s %d", a.method, uint32(a.errno)) }

// ofNode finds all answers of the node, each with a function in which it stands.
func (a *answers) ofNode(t *testing.T) map[statusOf]string {
	t.Helper()
	all := map[statusOf]string{}
	add := func(prefix string, i reflect.Type, receivers ...string) {
		for n := range i.NumMethod() {
			name := i.Method(n).Name
			var f *types.Func
			for _, r := range receivers {
				f = cmp.Or(f, a.method(r, name))
			}
			if f == nil {
				t.Errorf("the node has no method %s", name)
				continue
			}
			found := map[win.Errno]string{}
			a.errors(f, map[*types.Func]bool{}, found)
			for e, where := range found {
				all[statusOf{prefix + "." + name, e}] = where
			}
		}
	}
	add("Devices", reflect.TypeFor[win.Devices](), "System")
	add("Notices", reflect.TypeFor[win.Notices](), "System")
	add("Volumes", reflect.TypeFor[win.Volumes](), "System")
	add("Files", reflect.TypeFor[win.Files](), "System")
	add("Processes", reflect.TypeFor[win.Processes](), "System")
	add("SMBMappings", reflect.TypeFor[win.SMBMappings](), "System")
	add("ISCSIInitiator", reflect.TypeFor[win.ISCSIInitiator](), "System")
	add("Services", reflect.TypeFor[win.Services](), "System")
	add("Firmware", reflect.TypeFor[win.Firmware](), "System")
	add("Registry", reflect.TypeFor[win.Registry](), "System")
	add("File", reflect.TypeFor[win.File](), "file", "handle")
	add("Device", reflect.TypeFor[win.Device](), "device", "handle")
	return all
}

// kinds of answers in testdata/answers.txt, for which there is no fact of somebody else's.
var kinds = []string{
	"ours",   // the seam says it before Windows is asked
	"doc",    // Microsoft's documentation says it, which the contract in package win cites
	"code",   // public code or a report shows it where no fact can: the line names it
	"open",   // the call opens a path as Files.OpenFile or File.OpenAt does, of which the error is known
	"guess",  // nobody says it; the line names what was searched
	"switch", // Settings have other answers
	"never",  // the node can't give it for this call, though the code says it may
}

// readAnswers reads lines of a kind, methods, errors, and after ": " why. A method may end in
// ".*".
func readAnswers(t *testing.T, known func(kind, method string, e win.Errno)) {
	t.Helper()
	b, err := os.ReadFile("testdata/answers.txt")
	must(t, err)
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		head, why, ok := strings.Cut(line, ": ")
		words := strings.Fields(head)
		if !ok || why == "" || len(words) < 3 || !slices.Contains(kinds, words[0]) {
			t.Fatalf("answers.txt, line %d: %q", i+1, line)
		}
		methods := slices.DeleteFunc(slices.Clone(words[1:]), func(w string) bool { return !strings.Contains(w, ".") })
		for _, w := range words[1+len(methods):] {
			e, err := strconv.ParseUint(w, 0, 32)
			if err != nil {
				t.Fatalf("answers.txt, line %d: %v", i+1, err)
			}
			for _, m := range methods {
				known(words[0], m, win.Errno(e))
			}
		}
	}
}

// Each error that the node can give for a call of the seam is a fact that somebody has found
// out about Windows (seamtest/oracle.txt), or stands in testdata/answers.txt with what is
// known of it.
func TestAnswersAreKnown(t *testing.T) {
	given := load(t).ofNode(t)
	known := map[statusOf]bool{}
	for _, o := range seamtest.Oracles() {
		for _, s := range o.Steps {
			for _, e := range s.Errnos() {
				known[statusOf{s.Method(), e}] = true
			}
		}
	}
	guessed, opened := map[statusOf]bool{}, map[statusOf]statusOf{}
	readAnswers(t, func(kind, method string, e win.Errno) {
		used := false
		for a := range given {
			prefix, all := strings.CutSuffix(method, "*")
			if a.errno != e || known[a] || a.method != method && (!all || !strings.HasPrefix(a.method, prefix)) {
				continue
			}
			known[a], used = true, true
			switch {
			case kind == "guess":
				guessed[a] = true
			case kind == "open" && strings.HasPrefix(method, "File."):
				opened[a] = statusOf{"File.OpenAt", e}
			case kind == "open":
				opened[a] = statusOf{"Files.OpenFile", e}
			}
		}
		if !used {
			t.Errorf("answers.txt: %s %s %d: the node doesn't give it, or it is known already", kind, method, uint32(e))
		}
	})
	for a, of := range opened {
		if !known[of] || guessed[of] {
			t.Errorf("answers.txt: %v: nothing is known of %v either", a, of)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(given),
		func(a, b statusOf) int { return strings.Compare(a.String(), b.String()) }) {
		if !known[a] {
			t.Errorf("%v, which stands in %s: nothing is known of it", a, given[a])
		}
	}
}
