// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package abitest gives tests the sizes, offsets and values that a C compiler computed
// from the headers of Windows: the output of print.go in internal/windows/win/testdata/abi.
package abitest

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// ABI has the values from the headers. Its methods end the test if they don't have the
// value asked for.
type ABI struct {
	t       testing.TB
	numbers map[string]uint64
	samples map[string][]byte
}

// Load reads layout.txt and samples.txt from dir.
func Load(t testing.TB, dir string) *ABI {
	t.Helper()
	a := &ABI{t, map[string]uint64{}, map[string][]byte{}}
	a.read(filepath.Join(dir, "layout.txt"), func(key, text string) (err error) {
		a.numbers[key], err = strconv.ParseUint(text, 0, 64)
		return err
	})
	a.read(filepath.Join(dir, "samples.txt"), func(key, text string) (err error) {
		a.samples[key], err = hex.DecodeString(text)
		return err
	})
	return a
}

// read passes each line's last word, and the words before it, to add.
func (a *ABI) read(path string, add func(key, text string) error) {
	a.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		a.t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		i := strings.LastIndexByte(lines.Text(), ' ')
		if i < 0 {
			a.t.Fatalf("%s: a line of one word: %s", path, lines.Text())
		}
		if err := add(lines.Text()[:i], lines.Text()[i+1:]); err != nil {
			a.t.Fatalf("%s: %v", path, err)
		}
	}
	if err := lines.Err(); err != nil {
		a.t.Fatal(err)
	}
}

func (a *ABI) number(kind, name string) uint64 {
	a.t.Helper()
	n, ok := a.numbers[fmt.Sprintf("%s %s", kind, name)]
	if !ok {
		a.t.Fatalf("layout.txt has no %s %s", kind, name)
	}
	return n
}

// Size returns the size of a structure.
func (a *ABI) Size(structure string) int {
	a.t.Helper()
	return int(a.number("size", structure))
}

// Offset returns the offset of a field, STRUCTURE.Field.
func (a *ABI) Offset(field string) int {
	a.t.Helper()
	return int(a.number("offset", field))
}

// Slot returns the slot of a method, Interface.Method.
func (a *ABI) Slot(method string) int {
	a.t.Helper()
	return int(a.number("slot", method))
}

// Value returns the value of a constant.
func (a *ABI) Value(name string) uint64 {
	a.t.Helper()
	return a.number("value", name)
}

// Sample returns the bytes of a structure or GUID.
func (a *ABI) Sample(name string) []byte {
	a.t.Helper()
	b, ok := a.samples[name]
	if !ok {
		a.t.Fatalf("samples.txt has no %s", name)
	}
	return append([]byte(nil), b...)
}

// Constants is a set of constants under their names in the headers.
type Constants map[string]uint64

// Check compares constants with the headers'.
func (a *ABI) Check(constants Constants) {
	a.t.Helper()
	for name, got := range constants {
		if want := a.Value(name); got != want {
			a.t.Errorf("%s is %#x; want %#x", name, got, want)
		}
	}
}

// CheckSizes compares the sizes of structures with the headers'.
func (a *ABI) CheckSizes(sizes map[string]uintptr) {
	a.t.Helper()
	for structure, got := range sizes {
		if want := a.Size(structure); int(got) != want {
			a.t.Errorf("%s takes %d bytes; want %d", structure, got, want)
		}
	}
}

// CheckOffsets compares the offsets of fields with the headers'.
func (a *ABI) CheckOffsets(offsets map[string]uintptr) {
	a.t.Helper()
	for field, got := range offsets {
		if want := a.Offset(field); int(got) != want {
			a.t.Errorf("%s is at %d; want %d", field, got, want)
		}
	}
}

// CheckStructure compares the size of a structure, and the offsets of its fields but blank ones. A
// field has the headers' name, in any case. One that they don't have must be a structure whose fields
// they have.
func (a *ABI) CheckStructure(name string, structure any) {
	a.t.Helper()
	t := reflect.TypeOf(structure)
	a.CheckSizes(map[string]uintptr{name: t.Size()})
	a.checkFields(name, t, 0)
}

func (a *ABI) checkFields(name string, t reflect.Type, at uintptr) {
	a.t.Helper()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue
		}
		known := false
		for key, want := range a.numbers {
			if strings.EqualFold(key, "offset "+name+"."+f.Name) {
				known = true
				if got := uint64(at + f.Offset); got != want {
					a.t.Errorf("%s.%s is at %d; want %d", name, f.Name, got, want)
				}
			}
		}
		switch {
		case known:
		case f.Type.Kind() == reflect.Struct:
			a.checkFields(name, f.Type, at+f.Offset)
		default:
			a.t.Errorf("%s has no %s", name, f.Name)
		}
	}
}
