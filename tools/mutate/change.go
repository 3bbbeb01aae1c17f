// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// change is a change of the code in one place.
type change struct {
	id       int
	file     string // from the working directory
	function string
	line     int
	old, new string
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

// compared are the operators that take the place of others, and the second ones are their opposites.
var compared = map[token.Token][2]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
}

// calculated are the operators on numbers that take the place of others.
var calculated = map[token.Token]token.Token{
	token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.AND: token.OR, token.OR: token.AND,
}

// logs are the statements that aren't changed: tests of what is logged would be tests of words.
var logs = regexp.MustCompile(`^\w+(\.\w+)*\.(log|Logger)\.(Debug|Info|Warn|Error)\(`)

// helper is what changed code calls: the package's name is to be put before it.
const helper = `
import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync"
)

var (
	mutant, _     = strconv.Atoi(os.Getenv("MUTANT"))
	mutantsFile   = os.Getenv("MUTANTS_REACHED")
	mutantsReached sync.Map
)

// mutantOn reports whether a change is made, and notes that a test has reached it.
func mutantOn(id int) bool {
	if mutantsFile != "" {
		if _, noted := mutantsReached.LoadOrStore(id, true); !noted {
			f, err := os.OpenFile(mutantsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(f, id)
			f.Close()
		}
	}
	return id == mutant
}

func mutantCompare[T cmp.Ordered](id int, op string, x, y T) bool {
	r := op == "<" && x < y || op == "<=" && x <= y || op == ">" && x > y || op == ">=" && x >= y
	changed := mutantOn(id) && x == y
	return r != (mutantOn(id+1) || changed)
}

func mutantAnd(id int, x bool, y func() bool) bool {
	if mutantOn(id) {
		return x || y()
	}
	return x && y()
}

func mutantOr(id int, x bool, y func() bool) bool {
	if mutantOn(id) {
		return x && y()
	}
	return x || y()
}

// mutantAdd is for texts as well, which the syntax doesn't tell from numbers.
func mutantAdd[T cmp.Ordered](id int, x, y T) T {
	if mutantOn(id) {
		return x
	}
	return x + y
}

func mutantNumber[T ~int | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64](id int, op, other string, x, y T) T {
	if mutantOn(id) {
		op = other
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "%":
		return x % y
	case "&":
		return x & y
	}
	return x | y
}
`

// instrument returns all changes of a file, and its text with all of them in it, each made only
// if the test's environment names its number: a condition is turned round, a check or a statement
// left out, an operator replaced, an error not returned. Lines keep their numbers. Generated code has no
// changes, and lines that are to be left alone have none.
func instrument(file, text string, firstID int, alone map[int]bool) (all []change, changed string, err error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(f) {
		return nil, text, err
	}
	offset := func(p token.Pos) int { return set.Position(p).Offset }
	type edit struct {
		at, removed int
		text        string
	}
	var before, after []edit // of what is at the same place, the outer one is the first, or the last
	wrap := func(n ast.Node, prefix, suffix string) {
		before = append(before, edit{at: offset(n.Pos()), text: prefix})
		after = append(after, edit{at: offset(n.End()), text: suffix})
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		code := func(n ast.Node) string { return text[offset(n.Pos()):offset(n.End())] }
		// add adds a change, and returns its number.
		add := func(n ast.Node, old, new string) string {
			c := change{firstID + len(all), file, fn.Name.Name, set.Position(n.Pos()).Line, old, new}
			all = append(all, c)
			return strconv.Itoa(c.id)
		}
		var functions []*ast.FuncType // the last is the one that a return is of
		fixed := map[ast.Node]bool{}  // statements that can't be left out
		var visit func(n ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case nil:
				return false
			case *ast.FuncLit:
				functions = append(functions, n.Type)
				ast.Inspect(n.Body, visit)
				functions = functions[:len(functions)-1]
				return false
			case *ast.GenDecl:
				return n.Tok == token.VAR
			case *ast.ArrayType:
				return false
			case *ast.ForStmt:
				fixed[n.Init], fixed[n.Post] = true, true
			case *ast.SwitchStmt:
				fixed[n.Init] = true
			case *ast.TypeSwitchStmt:
				fixed[n.Init], fixed[n.Assign] = true, true
			case *ast.CommClause:
				fixed[n.Comm] = true
			case *ast.IfStmt:
				fixed[n.Init] = true
				if len(n.Body.List) == 1 && n.Else == nil && logs.MatchString(code(n.Body.List[0])) {
					if n.Init != nil {
						ast.Inspect(n.Init, visit)
					}
					return false
				}
			}
			if fixed[n] || alone[set.Position(n.Pos()).Line] {
				return true
			}
			switch n := n.(type) {
			case *ast.IfStmt:
				condition, suffix := code(n.Cond), ""
				// or it is turned round below
				if b, ok := n.Cond.(*ast.BinaryExpr); !ok || b.Op == token.LAND || b.Op == token.LOR {
					suffix = " != mutantOn(" + add(n.Cond, condition, "!("+condition+")") + ")"
				}
				if n.Else == nil && (n.Init != nil || condition != "err != nil") {
					suffix += " && !mutantOn(" + add(n.Cond, condition, "false") + ")"
				}
				wrap(n.Cond, "(", ")"+suffix)
			case *ast.BinaryExpr:
				with := func(op token.Token) string {
					return add(n, code(n), code(n.X)+" "+op.String()+" "+code(n.Y))
				}
				operator := func(by string) {
					after = append(after, edit{offset(n.OpPos), len(n.Op.String()), by})
				}
				op := n.Op.String()
				switch others, isCompared := compared[n.Op]; {
				case isCompared:
					wrap(n, "mutantCompare("+with(others[0])+`, "`+op+`", `, ")")
					operator(",")
					with(others[1])
				case n.Op == token.EQL:
					wrap(n, "((", ") != mutantOn("+with(token.NEQ)+"))")
				case n.Op == token.NEQ:
					wrap(n, "((", ") != mutantOn("+with(token.EQL)+"))")
				case n.Op == token.ADD:
					if !hasText(n) {
						wrap(n, "mutantAdd("+add(n, code(n), code(n.X))+", ", ")")
						operator(",")
					}
				case n.Op == token.LAND:
					wrap(n, "mutantAnd("+with(token.LOR)+", ", ")})")
					operator(", func() bool { return (")
				case n.Op == token.LOR:
					wrap(n, "mutantOr("+with(token.LAND)+", ", ")})")
					operator(", func() bool { return (")
				default:
					if other, ok := calculated[n.Op]; ok && !hasText(n) {
						wrap(n, "mutantNumber("+with(other)+`, "`+op+`", "`+other.String()+`", `, ")")
						operator(",")
					}
				}
			case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
				if logs.MatchString(code(n)) {
					return false
				}
				wrap(n, "if !mutantOn("+add(n, code(n), "")+") { ", " }")
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					wrap(n, "if !mutantOn("+add(n, code(n), "")+") { ", " }")
				}
			case *ast.BranchStmt:
				if n.Tok == token.CONTINUE || n.Tok == token.BREAK {
					wrap(n, "if !mutantOn("+add(n, code(n), "")+") { ", " }")
				}
			case *ast.ReturnStmt:
				if len(n.Results) == 0 || !returnsError(functions[len(functions)-1], len(n.Results)) {
					break
				}
				last := n.Results[len(n.Results)-1]
				values := text[offset(n.Results[0].Pos()):offset(last.Pos())]
				if code(last) != "nil" && !strings.Contains(values, "\n") {
					wrap(n, "if mutantOn("+add(last, code(last), "nil")+") { return "+values+"nil }; ", "")
				}
			}
			return true
		}
		functions = append(functions, fn.Type)
		ast.Inspect(fn.Body, visit)
	}
	slices.Reverse(after)
	edits := append(after, before...)
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	at := 0
	for _, e := range edits {
		b.WriteString(text[at:e.at])
		b.WriteString(e.text)
		at = e.at + e.removed
	}
	return all, b.String() + text[at:], nil
}

// hasText reports whether an expression has a text in it: tests of it would be tests of words.
func hasText(n ast.Node) (has bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		has = has || ok && literal.Kind == token.STRING
		return !has
	})
	return has
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
