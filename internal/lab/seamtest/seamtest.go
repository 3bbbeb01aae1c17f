// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seamtest is the suite of tests over the contract of the seam, which stands in
// package win: what win.System and what it opens promise. It runs on each system behind
// the seam: on the simulated node, on Windows, and on what Wine has of Windows.
//
// Each row cites the sentence of the contract that it shows. A row that shows what nobody
// has promised is a guess. Guesses run apart, by RunGuesses: where one is wrong, the
// simulated node is, and not the system that refutes it. RunQuick tests the most important guesses
// on one disk.
package seamtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Fixture is a system with what it offers to tests. What is its zero value isn't there,
// and rows that need it are skipped.
type Fixture struct {
	System win.System
	// Directory is an empty directory of the test's own, a full path with a drive letter,
	// on a file system that has what NTFS has.
	Directory string
	// SetReadOnly sets or clears the read-only attribute of a file.
	SetReadOnly func(t *testing.T, path string, readOnly bool)
	// WriteFile makes a file with contents.
	WriteFile func(t *testing.T, path, contents string)
	// Settle waits until all is done that has been begun. Without it rows ask again until
	// it is, for half a minute at most.
	Settle func()
	// NewDisk attaches a raw disk of 1 GiB for a test, which may do with it what it wants.
	NewDisk func(t *testing.T) Disk
	// Blocked returns a call that only reads and that doesn't end before ctx does. begun is closed once the call waits; it
	// is nil where nobody can know.
	Blocked func(t *testing.T) (call func(ctx context.Context) error, begun <-chan struct{})
	// NewServices adds services for a test.
	NewServices func(t *testing.T) Services
	// StringsValue is the key and the name of a value with strings.
	StringsValue [2]string
	// NumberValue is the key and the name of a value with a number.
	NumberValue [2]string
}

// Disk is a disk that belongs to a test.
type Disk struct {
	Number csiproxy.DiskNumber
	Detach func() // takes it away from the node
	// Grow makes the disk larger, as a cloud does, and returns its new number.
	Grow func(t testing.TB, sizeBytes uint64) (csiproxy.DiskNumber, error)
}

// Services are the names of stopped services. Plain can be started, Disabled can't. Each service of Chain depends on the next.
type Services struct {
	Plain, Disabled string
	Chain           []string // of three
}

// Config says how the suite runs on a system.
type Config struct {
	// New returns a system for one row. It must be closed when the test ends, and then
	// report handles that are left open, with where they were opened.
	New func(t *testing.T) *Fixture
	// Skip has a reason for each row that the system can't show. The key is the row's
	// method, or its method and name with a slash between.
	Skip map[string]string
	// Around runs a row, such as synctest.Test; nil for as it is.
	Around func(t *testing.T, row func(t *testing.T))
	// Which says which of several errors that a fact allows the system must give; nil allows
	// each of them.
	Which func(t *testing.T, allowed []winerr.Errno) winerr.Errno
}

func (c Config) around(t *testing.T, row func(t *testing.T)) {
	if c.Around == nil {
		row(t)
		return
	}
	c.Around(t, row)
}

// Run runs all rows but the guesses.
func Run(t *testing.T, c Config) { run(t, c, func(r row) bool { return r.guess == "" }) }

// RunGuesses runs the rows that nobody has promised.
func RunGuesses(t *testing.T, c Config) { run(t, c, func(r row) bool { return r.guess != "" }) }

// row is one promise with what shows it.
type row struct {
	// method is what the row is about: a method of win.System, or one of what it opens,
	// such as File.OpenAt, or "System" for what holds for all.
	method, name string
	// promise is a sentence of the contract, or what it is a guess about.
	promise string
	guess   string // why the row is one; "" if the contract has the sentence
	needs   []need
	test    func(t *testing.T, f *Fixture)
}

// need is something of a Fixture that a row can't do without.
type need string

const (
	aDirectory need = "a directory"
	aReadOnly  need = "a way to make files read-only"
	aWriter    need = "a way to make files with contents"
	aDisk      need = "an expendable disk"
	aBlocked   need = "a call that doesn't end"
	services   need = "services"
	aValue     need = "a value of the registry"
	aNumber    need = "a number in the registry"
)

func (f *Fixture) has(n need) bool {
	switch n {
	case aDirectory:
		return f.Directory != ""
	case aReadOnly:
		return f.SetReadOnly != nil
	case aWriter:
		return f.WriteFile != nil
	case aDisk:
		return f.NewDisk != nil
	case aBlocked:
		return f.Blocked != nil
	case services:
		return f.NewServices != nil
	case aValue:
		return f.StringsValue[0] != ""
	case aNumber:
		return f.NumberValue[0] != ""
	}
	return false
}

// skipWithout skips a row that needs what the system doesn't offer.
func (f *Fixture) skipWithout(t *testing.T, needs []need) {
	for _, n := range needs {
		if !f.has(n) {
			t.Skipf("this system doesn't offer %s", n)
		}
	}
}

// Names returns the names of all rows.
func Names() (all []string) {
	for _, r := range rows() {
		all = append(all, r.method, r.name)
	}
	return all
}

// rows are all rows.
func rows() []row {
	return slices.Concat(generalRows, fileRows, deviceRows, diskRows, volumeRows, healthRows, machineRows, plainRows())
}

func run(t *testing.T, c Config, which func(row) bool) {
	t.Helper()
	for key := range c.Skip {
		if !slices.ContainsFunc(rows(), func(r row) bool { return key == r.method || key == r.method+"/"+r.name }) {
			t.Errorf("no row is skipped by %q", key)
		}
	}
	for _, r := range rows() {
		if !which(r) {
			continue
		}
		t.Run(r.method+"/"+r.name, func(t *testing.T) {
			for _, key := range []string{r.method + "/" + r.name, r.method} {
				if why, ok := c.Skip[key]; ok {
					t.Skip(why)
				}
			}
			c.around(t, func(t *testing.T) { r.run(t, c.New(t)) })
		})
	}
}

func (r row) run(t *testing.T, f *Fixture) {
	f.skipWithout(t, r.needs)
	r.test(t, f)
	if t.Failed() {
		promise := "promised"
		if r.guess != "" {
			promise = "guessed, since " + r.guess
		}
		t.Logf("%s: %q is %s", r.method, r.promise, promise)
	}
}

const (
	shareAll  = win.ShareRead | win.ShareWrite | win.ShareDelete
	readWrite = win.GenericRead | win.GenericWrite
	openLink  = win.FileOpenReparsePoint | win.FileOpenForBackup
)

// Must ends the test if a step of its preparation fails.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantErrno wants one of some errors; 0, or none of them, is success.
func WantErrno(t testing.TB, what string, err error, want ...winerr.Errno) {
	t.Helper()
	if len(want) == 0 {
		want = []winerr.Errno{0}
	}
	var errno winerr.Errno
	ok := errors.As(err, &errno)
	if !slices.Contains(want, errno) || !ok && err != nil {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// errorOf is the error of a call, of which nothing else counts.
func errorOf[T any](_ T, err error) error { return err }

// Short names for the rows.
var (
	must      = Must
	wantErrno = WantErrno
)

// missing are errors that the contract names together.
var missing = []winerr.Errno{winerr.ErrorFileNotFound, winerr.ErrorPathNotFound}

// closing closes what a test has opened.
func closing(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// await waits until done. A system without Settle is asked again and again.
func (f *Fixture) await(t testing.TB, what string, done func() bool) {
	t.Helper()
	if f.Settle != nil {
		f.Settle()
		if !done() {
			t.Fatalf("%s: not so after all was done", what)
		}
		return
	}
	for deadline := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so within half a minute", what)
		}
		must(t, win.Sleep(t.Context(), 20*time.Millisecond))
	}
}

// Options of opens.
func open(access win.Access, options ...win.CreateOptions) win.OpenOptions {
	o := win.OpenOptions{Access: access, Share: shareAll, Disposition: win.FileOpen}
	for _, option := range options {
		o.Options |= option
	}
	return o
}

func creating(d win.Disposition, options win.CreateOptions) win.OpenOptions {
	return win.OpenOptions{Access: win.FileReadAttributes, Share: shareAll, Disposition: d, Options: options}
}

// dir opens the test's directory.
func (f *Fixture) dir(t *testing.T) win.File {
	t.Helper()
	return f.openFile(t, f.Directory, open(win.FileListDirectory|win.FileTraverse|win.FileReadAttributes,
		win.FileDirectoryFile))
}

func (f *Fixture) openFile(t testing.TB, path string, o win.OpenOptions) win.File {
	t.Helper()
	h, err := f.System.OpenFile(t.Context(), path, o)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { _ = h.Close() }) // unless the test has done so
	return h
}

// make makes files, and directories, whose paths end in a backslash.
func (f *Fixture) make(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		options := win.FileNonDirectoryFile
		if trimmed := strings.TrimSuffix(path, `\`); trimmed != path {
			path, options = trimmed, win.FileDirectoryFile
		}
		h, err := f.System.OpenFile(t.Context(), path, creating(win.FileCreate, options))
		if err != nil {
			t.Fatalf("make %s: %v", path, err)
		}
		closing(t, h)
	}
}

// at opens a file and closes it, and returns the error of that.
func at(t *testing.T, dir win.File, name string, o win.OpenOptions) error {
	t.Helper()
	h, err := dir.OpenAt(t.Context(), name, o)
	if err != nil {
		return err
	}
	return h.Close()
}

func (f *Fixture) device(t testing.TB, path string, access win.Access) win.Device {
	t.Helper()
	d, err := f.System.OpenDevice(t.Context(), path, access)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { _ = d.Close() }) // unless the test has done so
	return d
}

// systemVolume returns the name of C:'s volume.
func (f *Fixture) systemVolume(t *testing.T) string {
	t.Helper()
	name, err := f.System.VolumeNameForMountPoint(t.Context(), `C:\`)
	must(t, err)
	return name
}
