// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsidsc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winsys"
)

// double is the test's own way to the DLL.
type double struct {
	t   *testing.T
	dll *windows.LazyDLL
}

// load puts the DLL where Windows has its own, and makes it forget what it knew.
func load(t *testing.T) (*winsys.System, *double) {
	t.Helper()
	built := os.Getenv("CSI_PROXY_TEST_ISCSIDSC")
	if built == "" {
		t.Skip("CSI_PROXY_TEST_ISCSIDSC names no DLL")
	}
	dll := windows.NewLazySystemDLL("iscsidsc.dll")
	if dll.Load() != nil {
		install(t, built)
	}
	sys, err := winsys.Open(winsys.Options{Handles: handletrack.New()})
	must(t, err)
	t.Cleanup(func() {
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &double{t, dll}
	d.reset(winerr.ErrorInsufficientBuffer)
	return sys, d
}

// install copies the DLL into the system's directory, unless there is one.
func install(t *testing.T, built string) {
	t.Helper()
	dir, err := windows.GetSystemDirectory()
	must(t, err)
	b, err := os.ReadFile(built)
	must(t, err)
	f, err := os.OpenFile(filepath.Join(dir, "iscsidsc.dll"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		t.Fatal("this Windows has an iSCSI initiator: ", err)
	}
	must(t, err)
	_, err = f.Write(b)
	must(t, errors.Join(err, f.Close()))
}

// wide is a text that a function gets in UTF-16. It gets a string as its bytes.
type wide string

// call calls a function of the double for the test.
func (d *double) call(function string, args ...any) uintptr {
	d.t.Helper()
	proc := d.dll.NewProc(function)
	if err := proc.Find(); err != nil {
		d.t.Fatal(err) // not the double
	}
	var words []uintptr
	var texts runtime.Pinner
	defer texts.Unpin()
	for _, arg := range args {
		var text unsafe.Pointer
		switch arg := arg.(type) {
		case int:
			words = append(words, uintptr(arg))
			continue
		case wide:
			p, err := windows.UTF16PtrFromString(string(arg))
			must(d.t, err)
			text = unsafe.Pointer(p)
		case string:
			p, err := windows.BytePtrFromString(arg)
			must(d.t, err)
			text = unsafe.Pointer(p)
		case []byte:
			text = unsafe.Pointer(&arg[0])
		}
		texts.Pin(text)
		words = append(words, uintptr(text))
	}
	r, _, _ := proc.Call(words...)
	return r
}

func (d *double) reset(tooSmall winerr.Errno) {
	d.t.Helper()
	d.call("DoubleReset", int(tooSmall))
}

// target is one that the double offers. With a secret it demands CHAP.
type target struct {
	name                 string
	portal               win.ISCSIPortal
	luns                 int
	user, secret, mutual string
}

func (d *double) addTarget(x target) {
	d.t.Helper()
	if d.call("DoubleAddTarget", wide(x.name), wide(x.portal.Address), int(x.portal.Port), x.luns,
		x.user, x.secret, x.mutual) == 0 {
		d.t.Fatal("the double takes no more targets")
	}
}

func (d *double) addPersistentLogin(l win.ISCSIPersistentLogin, symbolic string) {
	d.t.Helper()
	if d.call("DoubleAddPersistentLogin", wide(l.Target), wide(l.Initiator), int(l.InitiatorPort),
		wide(symbolic), wide(l.Portal.Address), int(l.Portal.Port)) == 0 {
		d.t.Fatal("the double takes no more logins")
	}
}

// fail lets the next call of a function fail.
func (d *double) fail(function string, status winerr.Errno) {
	d.t.Helper()
	d.call("DoubleFail", function, int(status), 1)
}

// discover adds a portal.
func (d *double) discover(sys *winsys.System, p win.ISCSIPortal) {
	d.t.Helper()
	must(d.t, sys.AddISCSISendTargetPortal(d.t.Context(), p))
	d.take()
}

// take takes the lines that the double has written down.
func (d *double) take() string {
	d.t.Helper()
	text := make([]byte, 16<<10)
	n := d.call("DoubleTakeRecord", text, len(text))
	return string(text[:n])
}

// wantRecord asserts what the double has written down.
func (d *double) wantRecord(lines ...string) {
	d.t.Helper()
	got := strings.FieldsFunc(d.take(), func(r rune) bool { return r == '\n' })
	if !slices.Equal(lines, got) {
		d.t.Errorf("the double was told (-want +got):\n%s", cmp.Diff(lines, got))
	}
}

// want asserts the error of a call.
func (d *double) want(call string, got, want error) {
	d.t.Helper()
	if !errors.Is(got, want) {
		d.t.Errorf("%s: %v, want %v", call, got, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
