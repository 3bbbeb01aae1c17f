// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonfile decodes files in JSON that people write, and reports all that is wrong with one at once, each
// problem with its line and column.
package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/text/didyoumean"
)

// Position is where something begins in a file. Lines and columns begin with 1; a column counts characters.
type Position struct{ Line, Column int }

// Problem is what is wrong at a position.
type Problem struct {
	Position
	Path string // of the value: drivers[1].disks[0].bus; empty for the file
	Text string
}

// File says where the values of a file are, and what is wrong with their form.
type File struct {
	Problems  []Problem
	positions map[string]Position // by path
}

// utf8BOM is what PowerShell writes before a text.
var utf8BOM = []byte("\xef\xbb\xbf")

// Decode decodes a file into the struct that into points to, by the tags that package json has. What has a problem
// of its form is left out. Keys are compared exactly, and an object has each key once: package json mixes the two values.
//
// The types may be structs, slices, strings, bools, ints of 0 or more, uint32s, and pointers to these.
func Decode(data []byte, into any) *File {
	data = bytes.TrimPrefix(data, utf8BOM)
	f := &File{positions: make(map[string]Position)}
	if err := json.Unmarshal(data, new(any)); err != nil {
		f.Problems = []Problem{syntaxProblem(data, err)}
		return f
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	d := decoding{file: f, data: data, decoder: decoder}
	d.value("", reflect.ValueOf(into).Elem())
	return f
}

// At returns the position of a value; of what has it, if there is no such value.
func (f *File) At(path string) Position {
	for {
		if at, ok := f.positions[path]; ok || path == "" {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// syntaxProblem says what is wrong with JSON that package json refuses.
func syntaxProblem(data []byte, err error) Problem {
	var syntax *json.SyntaxError
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return Problem{Position: Position{1, 1}, Text: "the file is empty; it must be a JSON object"}
	case !errors.As(err, &syntax):
		return Problem{Position: Position{1, 1}, Text: err.Error()}
	case int(syntax.Offset) >= len(data) && strings.Contains(err.Error(), "unexpected end"):
		return Problem{Position: position(data, len(data)), Text: "the file isn't JSON: it ends too soon"}
	}
	text := "the file isn't JSON: " + err.Error()
	if strings.Contains(err.Error(), "after top-level value") {
		text = "there is more than one JSON value in the file"
	}
	return Problem{Position: position(data, int(syntax.Offset)-1), Text: text}
}

// position returns that of a byte.
func position(data []byte, offset int) Position {
	before := data[:max(0, min(offset, len(data)))]
	lineStart := bytes.LastIndexByte(before, '\n') + 1
	return Position{1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[lineStart:])}
}

// decoding is the decoding of a file whose syntax is right, so tokens always come.
type decoding struct {
	file    *File
	data    []byte
	decoder *json.Decoder

	last            int // where the last token begins
	line, lineStart int // of that
}

// next returns the next token, and its position.
func (d *decoding) next() (json.Token, Position) {
	begin := int(d.decoder.InputOffset())
	begin += len(d.data[begin:]) - len(bytes.TrimLeft(d.data[begin:], " \t\r\n,:"))
	between := d.data[d.last:begin] // the token before, in which no line ends, and what follows it
	if i := bytes.LastIndexByte(between, '\n'); i >= 0 {
		d.line, d.lineStart = d.line+bytes.Count(between, []byte("\n")), d.last+i+1
	}
	d.last = begin
	token, err := d.decoder.Token()
	if err != nil && err != io.EOF {
		panic(err) // of a text that json.Unmarshal takes
	}
	return token, Position{1 + d.line, 1 + utf8.RuneCount(d.data[d.lineStart:begin])}
}

func (d *decoding) problem(at Position, path, format string, args ...any) {
	d.file.Problems = append(d.file.Problems, Problem{at, path, fmt.Sprintf(format, args...)})
}

// value decodes the next value into a Go value; without one it passes it over.
func (d *decoding) value(path string, into reflect.Value) {
	token, at := d.next()
	d.file.positions[path] = at
	if into.IsValid() && into.Kind() == reflect.Pointer {
		element := reflect.New(into.Type().Elem())
		problems := len(d.file.Problems)
		defer func() {
			if len(d.file.Problems) == problems {
				into.Set(element)
			}
		}()
		d.assign(path, token, at, element.Elem())
		return
	}
	d.assign(path, token, at, into)
}

// assign decodes the value that begins with a token.
func (d *decoding) assign(path string, token json.Token, at Position, into reflect.Value) {
	fits := d.set(token, into)
	if !fits && into.IsValid() {
		d.problem(at, path, "%s must be %s, not %s", describe(path), wanted(into.Type()), given(token))
		into = reflect.Value{}
	}
	switch token {
	case json.Delim('['):
		if into.IsValid() {
			into.Set(reflect.MakeSlice(into.Type(), 0, 0)) // an empty list isn't a missing one
		}
		for i := 0; d.decoder.More(); i++ {
			element := reflect.Value{}
			if into.IsValid() {
				into.Set(reflect.Append(into, reflect.Zero(into.Type().Elem())))
				element = into.Index(i)
			}
			d.value(fmt.Sprintf("%s[%d]", path, i), element)
		}
		d.next()
	case json.Delim('{'):
		d.object(path, into)
	}
}

// set sets a Go value to that of a token, and reports whether it could: lists and objects are set later.
func (d *decoding) set(token json.Token, into reflect.Value) bool {
	if !into.IsValid() {
		return true
	}
	switch token := token.(type) {
	case json.Delim:
		return token == '[' && into.Kind() == reflect.Slice || token == '{' && into.Kind() == reflect.Struct
	case string:
		if into.Kind() == reflect.String {
			into.SetString(token)
			return true
		}
	case bool:
		if into.Kind() == reflect.Bool {
			into.SetBool(token)
			return true
		}
	case json.Number:
		switch into.Kind() {
		case reflect.Uint32:
			if n, err := strconv.ParseUint(token.String(), 10, 32); err == nil {
				into.SetUint(n)
				return true
			}
		case reflect.Int:
			if n, err := strconv.Atoi(token.String()); err == nil && n >= 0 {
				into.SetInt(int64(n))
				return true
			}
		}
	}
	return false
}

// object decodes the rest of an object.
func (d *decoding) object(path string, into reflect.Value) {
	fields := make(map[string]reflect.Value)
	if into.IsValid() {
		for i := range into.NumField() {
			if name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ","); name != "-" && name != "" {
				fields[name] = into.Field(i)
			}
		}
	}
	seen := make(map[string]Position)
	for d.decoder.More() {
		token, at := d.next()
		key := token.(string)
		field, isKnown := fields[key]
		switch first, isTwice := seen[key]; {
		case isTwice:
			d.problem(at, path, "the key %q is there already, in line %d", key, first.Line)
			field = reflect.Value{}
		case into.IsValid() && !isKnown:
			known := slices.Sorted(maps.Keys(fields))
			hint := didyoumean.Hint("", key, known)
			if hint == "" {
				hint = "; the keys are " + strings.Join(known, ", ")
			}
			d.problem(at, path, "unknown key %q%s", key, hint)
		}
		seen[key] = at
		name := strings.TrimPrefix(path+"."+key, ".")
		if !field.IsValid() {
			name = path + ".?" // not one that At has
		}
		d.value(name, field)
	}
	d.next()
}

// describe names a value by its key.
func describe(path string) string {
	if path == "" {
		return "the file"
	}
	return path[strings.LastIndexByte(path, '.')+1:]
}

// wanted describes what JSON a type takes.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "an object"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	}
	return "a whole number, 0 or more"
}

// given describes the JSON that begins with a token.
func given(token json.Token) string {
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return "a list"
		}
		return "an object"
	case string:
		return "a text"
	case bool:
		return strconv.FormatBool(token)
	case json.Number:
		return "the number " + token.String()
	}
	return "null"
}
