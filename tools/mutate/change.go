// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// change is a change of the code in one place.
type change struct {
	file       string // from the working directory
	function   string
	line       int
	start, end int // of what is replaced, in bytes
	old, new   string
}

// String names the change so that it stays the same when other lines change.
func (c change) String() string {
	return fmt.Sprintf("%s %s: %s → %s", filepath.ToSlash(c.file), c.function, oneLine(c.old), oneLine(c.new))
}

func oneLine(text string) string {
	if text == "" {
		return "(nothing)"
	}
	return strings.Join(strings.Fields(text), " ")
}

// apply returns the changed file.
func (c change) apply() ([]byte, error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return nil, err
	}
	return []byte(string(text[:c.start]) + c.new + string(text[c.end:])), nil
}

// changes returns all changes of a package's code.
func (p *goPackage) changes() (all []change, err error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for _, name := range p.GoFiles {
		file, err := filepath.Rel(here, filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		changes, err := changesOf(file, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	return all, nil
}

// swapped are the operators that take the place of others.
var swapped = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
}

// changesOf returns all changes of a file: a condition is turned round, an operator replaced, a
// statement left out, an error not returned. Generated code has none.
func changesOf(file, text string) (all []change, err error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(f) {
		return nil, err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		// replace replaces the code from one place to another.
		replace := func(from, to token.Pos, by string) {
			all = append(all, change{file, fn.Name.Name, set.Position(from).Line, offset(from), offset(to), text[offset(from):offset(to)], by})
		}
		code := func(n ast.Node) string { return text[offset(n.Pos()):offset(n.End())] }
		// The function that a return is of.
		var functions []*ast.FuncType
		var visit func(n ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				functions = append(functions, n.Type)
				ast.Inspect(n.Body, visit)
				functions = functions[:len(functions)-1]
				return false
			case *ast.BinaryExpr:
				for _, op := range swapped[n.Op] {
					replace(n.Pos(), n.End(), code(n.X)+" "+op.String()+" "+code(n.Y))
				}
			case *ast.IfStmt:
				replace(n.Cond.Pos(), n.Cond.End(), "!("+code(n.Cond)+")")
			case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
				replace(n.Pos(), n.End(), "")
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					replace(n.Pos(), n.End(), "")
				}
			case *ast.BranchStmt:
				if n.Tok == token.CONTINUE || n.Tok == token.BREAK {
					replace(n.Pos(), n.End(), "")
				}
			case *ast.ReturnStmt:
				if len(n.Results) == 0 || !returnsError(functions[len(functions)-1], len(n.Results)) {
					break
				}
				if last := n.Results[len(n.Results)-1]; code(last) != "nil" {
					replace(last.Pos(), last.End(), "nil")
				}
			}
			return true
		}
		functions = append(functions, fn.Type)
		ast.Inspect(fn.Body, visit)
	}
	return all, nil
}

// returnsError reports whether the last of a function's results is an error, and a return names
// all of them.
func returnsError(f *ast.FuncType, named int) bool {
	if f.Results == nil || f.Results.NumFields() != named {
		return false
	}
	last, ok := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error"
}
