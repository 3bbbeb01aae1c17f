// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const code = `package x

func limit(n, most int) (int, error) {
	if n > most {
		return 0, errTooMany
	}
	calls++
	if n > 0 {
		l.log.Info("counted", "left", most-n)
	}
	return n, nil
}
`

func TestInstrument(t *testing.T) {
	changes, changed, err := instrument("x.go", code, 7, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.String())
	}
	want := []string{
		"x.go limit: n > most → false",
		"x.go limit: n > most → n >= most",
		"x.go limit: n > most → n <= most",
		"x.go limit: errTooMany → nil",
		"x.go limit: calls++ → (nothing)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("changes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	wantChanged := `package x

func limit(n, most int) (int, error) {
	if (mutantCompare(8, ">", n , most)) && !mutantOn(7) {
		if mutantOn(10) { return 0, nil }; return 0, errTooMany
	}
	if !mutantOn(11) { calls++ }
	if n > 0 {
		l.log.Info("counted", "left", most-n)
	}
	return n, nil
}
`
	if changed != wantChanged {
		t.Errorf("got:\n%s\nwant:\n%s", changed, wantChanged)
	}
}

const testsOfY = `package y

import (
	"os"
	"path/filepath"
	"testing"

	"example.org/m/x"
)

func Test(t *testing.T) {
	if x.Larger(1, 2) != 2 || x.Larger(2, 1) != 2 {
		t.Error()
	}
	if name := filepath.Base(os.Args[0]); name != "y.test" { // as go test names it
		t.Error(name)
	}
}

func TestThatFails(t *testing.T) { t.Error("as ever") }
`

// A module in which a test of another package notices all but one change, which is listed as
// equivalent, and one that the caller is told of, as of a test that fails by itself. Changes that
// don't compile are left out.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.26\n",
		"x/x.go": "package x\n\nvar calls int\n\nfunc Larger(a, b int) int {\n\tcalls++\n\tif a > b {\n\t\treturn " +
			"a\n\t}\n\treturn b\n}\n\n" +
			"// Its changes don't compile.\nfunc Untyped() (_, _ int64) { const n = 2; return n * 3, n * 4 }\n",
		"y/y_test.go": testsOfY,
		"known":       "# a comment\nx/x.go Larger: a > b → a >= b\tof two that are equal either is the larger one\n",
		"unexplained": "x/x.go Larger: a > b → a >= b\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-trimpath")
	var out bytes.Buffer
	if err := run(&out, []string{"./x"}, 100, 1, time.Hour, "known", "", []string{"./..."}); err != nil {
		t.Fatal(err)
	}
	want := `TestThatFails of example.org/m/y is left out, since it fails without any change: --- FAIL: TestThatFails (0.00s)
    y_test.go:20: as ever
FAIL

x/x.go:6: not noticed by 1 packages: x/x.go Larger: calls++ → (nothing)

noticed  tried  score  equivalent  package
2        3      66 %   1           example.org/m/x
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &out, want)
	}
	if err := run(&out, []string{"./x"}, 100, 1, time.Hour, "unexplained", "", []string{"./..."}); err == nil {
		t.Error("an equivalent change without a reason is taken")
	}
}
