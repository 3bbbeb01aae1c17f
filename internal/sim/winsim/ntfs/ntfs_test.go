// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package ntfs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/google/go-cmp/cmp"
)

const (
	shareAll = win.ShareRead | win.ShareWrite | win.ShareDelete
	mebi     = 1 << 20
)

var (
	openDir = win.OpenOptions{
		Access: win.FileListDirectory | win.FileTraverse, Share: shareAll,
		Disposition: win.FileOpen, Options: win.FileDirectoryFile | win.FileOpenReparsePoint,
	}
	makeDir   = with(openDir, func(o *win.OpenOptions) { o.Disposition = win.FileCreate })
	writeFile = win.OpenOptions{
		Access: win.GenericRead | win.GenericWrite, Share: shareAll,
		Disposition: win.FileOpenIf, Options: win.FileNonDirectoryFile,
	}
	any0      = win.OpenOptions{Share: shareAll, Disposition: win.FileOpen, Options: win.FileOpenReparsePoint}
	toDelete  = with(any0, func(o *win.OpenOptions) { o.Access = win.Delete })
	toReparse = with(any0, func(o *win.OpenOptions) { o.Access = win.FileWriteAttributes })
)

func with(o win.OpenOptions, change func(*win.OpenOptions)) win.OpenOptions {
	change(&o)
	return o
}

// mustOpen opens the entry at a path from the root and closes it at the end of
// the test.
func mustOpen(t *testing.T, f *FS, path string, o win.OpenOptions) *Handle {
	t.Helper()
	h, _, err := f.Open(parentOf(t, f, path), base(path), o)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() {
		if slices.Contains(h.node.handles, h) {
			h.Close()
		}
	})
	return h
}

func openErr(t *testing.T, f *FS, path string, o win.OpenOptions) error {
	t.Helper()
	h, _, err := f.Open(parentOf(t, f, path), base(path), o)
	if err == nil {
		h.Close()
	}
	return err
}

func parentOf(t *testing.T, f *FS, path string) *Node {
	t.Helper()
	n := f.Root()
	elements := strings.Split(path, `\`)
	for _, e := range elements[:len(elements)-1] {
		child, ok := n.Lookup(e)
		if !ok {
			t.Fatalf("%s: no %s", path, e)
		}
		n = child
	}
	return n
}

func base(path string) string { return path[strings.LastIndexByte(path, '\\')+1:] }

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestNames(t *testing.T) {
	f := New(64*mebi, 0)
	mustOpen(t, f, "Käse", makeDir).Close()

	for _, alias := range []string{"käse", "KÄSE", "kÄsE"} {
		n, ok := f.Root().Lookup(alias)
		if !ok || n.Name() != "Käse" {
			t.Errorf("Lookup(%q) = %v, %v", alias, n, ok)
		}
		wantErr(t, "create "+alias, openErr(t, f, alias, makeDir), winerr.ErrorAlreadyExists)
	}
	// Simple upper case only, and never from another block into ASCII.
	for _, other := range []string{"\u212Aäse", "kase", "käſe"} {
		if _, ok := f.Root().Lookup(other); ok {
			t.Errorf("Lookup(%q) found Käse", other)
		}
	}

	for name, want := range map[string]error{
		"a..b":                            nil,
		"ends in dot.":                    nil, // refused by Win32, not by NTFS
		strings.Repeat("ä", 255):          nil,
		strings.Repeat("ä", 256):          winerr.ErrorInvalidName,
		strings.Repeat("\U00010400", 128): winerr.ErrorInvalidName,
		`a\b`:                             winerr.ErrorInvalidName,
		"a\x1fb":                          winerr.ErrorInvalidName,
		"a\xffb":                          winerr.ErrorInvalidName,
		"a\xed\xa0\xbdb":                  nil,                     // half a surrogate pair
		"\xed\xa0\xbd\xed\xb2\xbe":        winerr.ErrorInvalidName, // two halves that are a whole one
	} {
		h, _, err := f.Open(f.Root(), name, makeDir)
		if err != want {
			t.Errorf("create %q: %v, want %v", name, err, want)
		}
		if err == nil {
			h.Close()
		}
	}
}

func TestDelete(t *testing.T) {
	f := New(64*mebi, 0)
	mustOpen(t, f, "dir", makeDir).Close()
	file := mustOpen(t, f, `dir\file`, writeFile)
	must(t, file.SetContents([]byte("abc")))
	dir := mustOpen(t, f, "dir", toDelete)
	root, _, err := f.Open(f.Root(), "", toDelete)
	must(t, err)
	wantErr(t, "root", root.Delete(), winerr.ErrorAccessDenied)
	root.Close()

	used := f.Used()
	other := mustOpen(t, f, `dir\file`, toDelete)
	wantErr(t, "delete", other.Delete(), nil)
	wantErr(t, "again", other.Delete(), nil)
	wantErr(t, "rename what is being deleted", other.Rename(f.Root(), "x", false), winerr.ErrorDeletePending)
	other.Close()
	if f.Used() >= used {
		t.Errorf("used %d bytes before and %d after", used, f.Used())
	}
	if b, err := file.Contents(); err != nil || string(b) != "abc" {
		t.Errorf("read through an older handle: %q, %v", b, err)
	}
	wantErr(t, "delete empty directory", dir.Delete(), nil)
	h, _, err := f.Open(dir.Node(), "new", makeDir)
	if err != winerr.ErrorDeletePending {
		t.Errorf("create in a deleted directory: %v, %v", h, err)
	}
}

func TestRename(t *testing.T) {
	f := New(64*mebi, 0)
	for _, dir := range []string{"a", `a\b`, "c"} {
		mustOpen(t, f, dir, makeDir).Close()
	}
	mustOpen(t, f, "file", writeFile).Close()
	a, c := f.Root().children[0], f.Root().children[1]
	h := mustOpen(t, f, "a", toDelete)

	wantErr(t, "below itself", h.Rename(a.children[0], "x", false), winerr.ErrorInvalidParameter)
	wantErr(t, "replace a directory", h.Rename(f.Root(), "C", true), winerr.ErrorAccessDenied)
	wantErr(t, "bad name", h.Rename(f.Root(), "x:y", false), winerr.ErrorInvalidName)
	wantErr(t, "another volume", h.Rename(New(mebi, 0).Root(), "x", false), winerr.ErrorNotSameDevice)

	held := mustOpen(t, f, "c", with(openDir, func(o *win.OpenOptions) { o.Share = win.ShareRead }))
	wantErr(t, "into a directory not shared for writing", h.Rename(c, "x", false), winerr.ErrorSharingViolation)
	held.Close()

	wantErr(t, "replace a file", h.Rename(f.Root(), "file", true), nil)
	wantErr(t, "into another directory", h.Rename(c, "x", false), nil)
	if got := a.Path(); got != `\c\x` {
		t.Errorf("path %s", got)
	}
	if n, _ := f.Root().Lookup("a"); n != nil {
		t.Error("the old name is still there")
	}
	checkInvariants(t, f)
}

// What the facts of others about Windows don't say.
func TestReparse(t *testing.T) {
	f := New(64*mebi, 0)
	junction := win.NewJunction(`C:\x`).Encode()
	mustOpen(t, f, "d", makeDir).Close()
	h := mustOpen(t, f, "d", toReparse)
	wantErr(t, "delete, cut off", h.DeleteReparse(junction[:4:4]), winerr.ErrorInvalidReparseData)
	wantErr(t, "set, cut off", h.SetReparse(junction[:len(junction)-1]), winerr.ErrorInvalidReparseData)
	wantErr(t, "too large", h.SetReparse(make([]byte, win.MaximumReparseDataSize+1)), winerr.ErrorInvalidReparseData)
	wantErr(t, "reserved tag", h.SetReparse(make([]byte, 8)), winerr.ErrorReparseTagInvalid)
	// A holder without ShareDelete can't keep it from becoming a link.
	mustOpen(t, f, "d", with(openDir, func(o *win.OpenOptions) { o.Share = win.ShareRead }))
	wantErr(t, "set", h.SetReparse(junction), nil)
	wantErr(t, "set another target", h.SetReparse(win.NewJunction(`C:\z`).Encode()), nil)
	data, err := h.GetReparse()
	if diff := cmp.Diff(win.NewJunction(`C:\z`).Encode(), data); diff != "" || err != nil {
		t.Error(diff, err)
	}
	wantErr(t, "delete", h.DeleteReparse(header0(junction)), nil)
	if got := h.Info(); got != (win.FileInfo{Attributes: win.AttributeDirectory}) {
		t.Errorf("info after delete: %v", got)
	}
}

// header0 is the input of a deletion: the tag of data, without data.
func header0(data []byte) []byte { return append(slices.Clone(data[:4]), 0, 0, 0, 0) }

// A listing continues correctly after the entries of its first batch were deleted.
func TestReadDir(t *testing.T) {
	f := New(64*mebi, 0)
	var want []string
	for i := range 3*readDirBatch + 1 {
		name := fmt.Sprintf("%c%02d", "bA"[i%2], i)
		mustOpen(t, f, name, writeFile).Close()
		want = append(want, name)
	}
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(strings.ToUpper(a), strings.ToUpper(b)) })

	h, _, err := f.Open(f.Root(), "", openDir)
	must(t, err)
	defer h.Close()
	_, err = h.ReadDir(true)
	must(t, err)
	for _, name := range want[:readDirBatch] {
		entry := mustOpen(t, f, name, toDelete)
		wantErr(t, name, entry.Delete(), nil)
		entry.Close()
	}
	var got []string
	for {
		entries, err := h.ReadDir(false)
		if err == winerr.ErrorNoMoreFiles {
			break
		}
		must(t, err)
		for _, e := range entries {
			got = append(got, e.Name)
		}
	}
	if diff := cmp.Diff(want[readDirBatch:], got); diff != "" {
		t.Error(diff)
	}
}

func TestContentsAndSpace(t *testing.T) {
	f := New(10*mebi+4095, 4096)
	if f.Capacity() != 10*mebi {
		t.Errorf("capacity %d", f.Capacity())
	}
	empty := f.Used()
	if empty <= 0 || empty%4096 != 0 {
		t.Errorf("used when empty %d", empty)
	}
	h := mustOpen(t, f, "file", writeFile)
	base := f.Used()
	text := make([]byte, 4099)
	must(t, h.SetContents(text))
	text[0] = 'x' // the caller's own
	if got := f.Used() - base; got != 2*4096 {
		t.Errorf("4099 bytes take %d", got)
	}
	wantErr(t, "more than there is room for", h.SetContents(make([]byte, 9*mebi)), winerr.ErrorDiskFull)
	if got, err := h.Contents(); err != nil || len(got) != 4099 || got[0] != 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	must(t, h.SetContents(make([]byte, 7*mebi))) // with what it has had, there is room
	must(t, h.SetContents([]byte("x")))
	if got := f.Used() - base; got != 4096 {
		t.Errorf("a byte takes %d", got)
	}
	reader := mustOpen(t, f, "file", with(writeFile, func(o *win.OpenOptions) { o.Access = win.GenericRead }))
	wantErr(t, "write without the right", reader.SetContents(nil), winerr.ErrorAccessDenied)
	deleted := mustOpen(t, f, "file", toDelete)
	_, err := deleted.Contents()
	wantErr(t, "read without the right", err, winerr.ErrorAccessDenied)
	wantErr(t, "delete", deleted.Delete(), nil)
	deleted.Close()
	must(t, h.SetContents(make([]byte, mebi)))
	if f.Used() != empty {
		t.Errorf("used %d after deletion, %d before", f.Used(), empty)
	}

	f = New(4*mebi, 4096)
	var full error
	files := 0
	for ; full == nil && files < 1e5; files++ {
		full = openErr(t, f, fmt.Sprint(files), writeFile)
	}
	wantErr(t, "one file too many", full, winerr.ErrorDiskFull)
	f.Extend(8 * mebi)
	wantErr(t, "after growth", openErr(t, f, fmt.Sprint(files), writeFile), nil)
	f.Extend(mebi)
	if f.Capacity() != 8*mebi {
		t.Errorf("capacity %d after shrinking", f.Capacity())
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
