// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// failing is a test that notes whether it has failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Errorf(string, ...any) { f.failed = true }

func TestWantErrno(t *testing.T) {
	other := errors.New("other")
	wrapped := fmt.Errorf("open: %w", winerr.ErrorAccessDenied)
	for _, test := range []struct {
		err  error
		want []winerr.Errno
		ok   bool
	}{
		{nil, nil, true},
		{nil, []winerr.Errno{0}, true},
		{nil, []winerr.Errno{winerr.ErrorAccessDenied}, false},
		{wrapped, nil, false},
		{wrapped, []winerr.Errno{0}, false},
		{wrapped, []winerr.Errno{winerr.ErrorNotReady, winerr.ErrorAccessDenied}, true},
		{wrapped, []winerr.Errno{winerr.ErrorNotReady}, false},
		{other, nil, false},
		{other, []winerr.Errno{0}, false},
	} {
		f := failing{TB: t}
		if WantErrno(&f, "call", test.err, test.want...); f.failed == test.ok {
			t.Errorf("error %v, want %v: failed %t", test.err, test.want, f.failed)
		}
	}
}

// contract returns all comments of package win, as one line.
func contract(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("../../windows/win/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%q, %v", paths, err)
	}
	var all strings.Builder
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, b, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			all.WriteString(oneLine(group) + "\n")
		}
	}
	return all.String()
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// Each row that isn't a guess cites a sentence that stands in package win, and no guess
// does.
func TestPromises(t *testing.T) {
	text := contract(t)
	cited := func(what, promise string) {
		if promise == "" || !strings.Contains(text, promise) {
			t.Errorf("%s cites what package win doesn't say: %q", what, promise)
		}
	}
	names := map[string]bool{}
	for _, r := range rows() {
		name := r.method + "/" + r.name
		if names[name] {
			t.Errorf("%s comes twice", name)
		}
		names[name] = true
		if r.guess == "" {
			cited(name, r.promise)
		}
	}
}

// Each method of the seam has a row that isn't a guess, but those of the iSCSI initiator: the suite
// knows no target on Windows, and Wine has no initiator. Both sides have tests of their own, of package
// iscsitarget of the simulated node and of test/wine/iscsidsc.
func TestMethodsHaveRows(t *testing.T) {
	has := map[string]bool{}
	for _, r := range rows() {
		if r.guess == "" {
			has[r.method] = true
		}
	}
	interfaces := []reflect.Type{reflect.TypeFor[win.File](), reflect.TypeFor[win.Device]()}
	methods := reflect.TypeFor[win.ISCSIInitiator]().NumMethod()
	for _, i := range []reflect.Type{
		reflect.TypeFor[win.Devices](), reflect.TypeFor[win.Notices](), reflect.TypeFor[win.Volumes](),
		reflect.TypeFor[win.Files](), reflect.TypeFor[win.Processes](), reflect.TypeFor[win.SMBMappings](),
		reflect.TypeFor[win.Services](), reflect.TypeFor[win.Firmware](), reflect.TypeFor[win.Registry](),
	} {
		interfaces = append(interfaces, i)
		methods += i.NumMethod()
	}
	// An interface that the system has beside these.
	if got := reflect.TypeFor[win.System]().NumMethod(); got != methods {
		t.Errorf("the system has %d methods, and %d of them are looked at", got, methods)
	}
	for _, i := range interfaces {
		for m := range i.NumMethod() {
			if name := i.Name() + "." + i.Method(m).Name; !has[name] {
				t.Errorf("no row is about %s", name)
			}
		}
	}
}
