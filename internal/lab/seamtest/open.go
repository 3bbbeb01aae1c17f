// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// relative has the opens relative to a directory, one after the other, that find and
// create: each step needs what those before it have made. The same promises hold for whole
// paths, with which they are made as well.
var relative = []struct {
	name    string
	o       win.OpenOptions
	want    win.Errno // 0 is success
	promise string
}{
	{"sub", open(win.FileReadAttributes), win.ErrorFileNotFound, "of the last element that is missing"},
	{"sub", creating(win.FileCreate, win.FileDirectoryFile), 0, "create it; fail if it is there"},
	{"sub", creating(win.FileCreate, win.FileDirectoryFile), win.ErrorAlreadyExists, "183 FileCreate of what is there"},
	{"SUB", creating(win.FileCreate, win.FileDirectoryFile), win.ErrorAlreadyExists,
		"Names of devices, volumes and files compare without regard to case."},
	{"Sub", open(win.FileReadAttributes), 0, "Names of devices, volumes and files compare without regard to case."},
	{"sub", creating(win.FileOpenIf, win.FileDirectoryFile), 0, "open it or create it"},
	{"new", creating(win.FileOpenIf, win.FileDirectoryFile), 0, "open it or create it"},
	{"sub", creating(win.FileOpen, win.FileNonDirectoryFile), win.ErrorAccessDenied,
		"5 is also said of a directory where FileNonDirectoryFile wants a file"},
	{"file", creating(win.FileCreate, win.FileNonDirectoryFile), 0, "must not be a directory"},
	{"file", creating(win.FileOpen, win.FileDirectoryFile), win.ErrorDirectory,
		"267 a file where FileDirectoryFile wants a directory"},
	{`sub\x`, open(win.FileReadAttributes), win.ErrorFileNotFound, "of the last element that is missing"},
	{`sub\x`, creating(win.FileCreate, win.FileDirectoryFile), 0, "or below it if name has several elements"},
	{`sub\X`, open(win.FileReadAttributes), 0, "or below it if name has several elements"},
	{`missing\x`, open(win.FileReadAttributes), win.ErrorPathNotFound, "3 of one before it, which may be a file"},
	{`file\x`, open(win.FileReadAttributes), win.ErrorPathNotFound, "3 of one before it, which may be a file"},
	{"a?b", open(win.FileReadAttributes), win.ErrorInvalidName, "123 a name that no file can have"},
	{"a\x01b", open(win.FileReadAttributes), win.ErrorInvalidName, "123 a name that no file can have"},
	{"nul\x00", open(win.FileReadAttributes), win.ErrorInvalidName,
		"A path or a name with a NUL within gives [ErrorInvalidName]."},
}

// astray are names that lead elsewhere or nowhere.
var astray = []string{"", ".", "..", `sub\..\sub`, `sub\\x`, `\sub`, `sub\`, "sub/x", "file:stream", `sub\.\x`}

func eachStep(t *testing.T, open func(name string, o win.OpenOptions) error) {
	t.Helper()
	for _, step := range relative {
		what := fmt.Sprintf("%q with %+v, of which %q is promised", step.name, step.o, step.promise)
		if step.want == 0 {
			wantErrno(t, what, open(step.name, step.o))
		} else {
			wantErrno(t, what, open(step.name, step.o), step.want)
		}
	}
}

// wantTree checks which of the names of eachStep are there, by what the directory lists.
func wantTree(t *testing.T, f *Fixture) {
	t.Helper()
	got := map[string]bool{}
	for _, e := range list(t, f.dir(t), true) {
		got[e.Name] = e.IsDir()
	}
	for name, isDir := range map[string]bool{"sub": true, "new": true, "file": false} {
		if is, ok := got[name]; !ok || is != isDir {
			t.Errorf("%s: there %t, a directory %t", name, ok, is)
		}
	}
	if len(got) != 3 {
		t.Errorf("there are %v", got)
	}
}

var openRows = []row{
	{
		method: "File.OpenAt", name: "finds and creates", needs: []need{aDirectory},
		promise: "opens or creates the file name in this directory",
		test: func(t *testing.T, f *Fixture) {
			dir := f.dir(t)
			eachStep(t, func(name string, o win.OpenOptions) error { return at(t, dir, name, o) })
			wantTree(t, f)
		},
	},
	{
		method: "Files.OpenFile", name: "finds and creates", needs: []need{aDirectory},
		promise: "is NtCreateFile of a full path",
		test: func(t *testing.T, f *Fixture) {
			eachStep(t, func(name string, o win.OpenOptions) error {
				h, err := f.System.OpenFile(t.Context(), f.Directory+`\`+name, o)
				if err != nil {
					return err
				}
				return h.Close()
			})
			wantTree(t, f)
		},
	},
	{
		method: "File.OpenAt", name: "refuses names that lead astray", needs: []need{aDirectory},
		promise: `as do elements that are empty, "." or "..", or that have a slash, a colon, or a character that no name can have`,
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `sub\`, `sub\x\`, "file")
			dir := f.dir(t)
			for _, name := range astray {
				for _, o := range []win.OpenOptions{open(win.FileReadAttributes), creating(win.FileOpenIf, win.FileDirectoryFile)} {
					wantErrno(t, fmt.Sprintf("%q", name), at(t, dir, name, o), win.ErrorInvalidName)
				}
			}
		},
	},
	{
		method: "Files.OpenFile", name: "long paths", needs: []need{aDirectory},
		promise: "without the limit of 260 characters and without changes to its elements",
		test: func(t *testing.T, f *Fixture) {
			path := f.Directory
			for len(path) < 600 {
				path += `\` + strings.Repeat("long", 20)
				h, err := f.System.OpenFile(t.Context(), path, creating(win.FileCreate, win.FileDirectoryFile))
				must(t, err)
				closing(t, h)
			}
			if a, err := f.System.FileAttributes(t.Context(), path); err != nil || a&win.AttributeDirectory == 0 {
				t.Errorf("attributes %#x, %v", a, err)
			}
			if _, err := f.System.DiskFreeSpace(t.Context(), path); err != nil {
				t.Errorf("DiskFreeSpace: %v", err)
			}
		},
	},
	{
		method: "Files.OpenFile", name: "shares", needs: []need{aDirectory},
		promise: "32 the sharing of o and of others' handles don't agree",
		test: func(t *testing.T, f *Fixture) {
			const read, write, del, attributes = win.FileListDirectory, win.FileAddSubdirectory, win.Delete,
				win.FileReadAttributes
			f.make(t, `held\`)
			path := f.Directory + `\held`
			with := func(a win.Access, s win.Share) win.OpenOptions {
				return win.OpenOptions{Access: a, Share: s, Disposition: win.FileOpen, Options: win.FileDirectoryFile}
			}
			for _, c := range []struct {
				first, second win.OpenOptions
				refused       bool
			}{
				{with(read, shareAll), with(del, shareAll), false},
				{with(read, shareAll&^win.ShareDelete), with(del, shareAll), true},
				{with(win.FileTraverse, shareAll&^win.ShareDelete), with(del, shareAll), true},
				{with(attributes, 0), with(del, shareAll), false},
				{with(read, 0), with(attributes, 0), false},
				{with(del, shareAll), with(read, shareAll&^win.ShareDelete), true},
				{with(read, win.ShareRead), with(read, win.ShareRead), false},
				{with(read, win.ShareRead), with(read, 0), true},
				{with(read, win.ShareRead), with(write, shareAll), true},
				{with(write, win.ShareRead), with(read, win.ShareRead), true},
				{with(write, shareAll), with(read, win.ShareWrite), false},
			} {
				held := f.openFile(t, path, c.first)
				second, err := f.System.OpenFile(t.Context(), path, c.second)
				if c.refused {
					wantErrno(t, fmt.Sprintf("%+v beside %+v", c.second, c.first), err, win.ErrorSharingViolation)
				} else {
					wantErrno(t, fmt.Sprintf("%+v beside %+v", c.second, c.first), err)
				}
				if err == nil {
					closing(t, second)
				}
				closing(t, held)
				closing(t, f.openFile(t, path, c.second)) // when the other is gone
			}
		},
	},
	{
		method: "Files.FileAttributes", name: "of files and directories", needs: []need{aDirectory, aReadOnly},
		promise: "is GetFileAttributesW: of the last element itself",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, "file", `dir\`, "read-only")
			f.SetReadOnly(t, f.Directory+`\read-only`, true)
			t.Cleanup(func() { f.SetReadOnly(t, f.Directory+`\read-only`, false) })
			const bits = win.AttributeDirectory | win.AttributeReadOnly | win.AttributeReparsePoint
			for name, want := range map[string]win.FileAttributes{
				"file": 0, "FILE": 0, "dir": win.AttributeDirectory, "read-only": win.AttributeReadOnly,
			} {
				if a, err := f.System.FileAttributes(t.Context(), f.Directory+`\`+name); err != nil || a&bits != want {
					t.Errorf("%s: %#x, %v", name, a, err)
				}
			}
		},
	},
	{
		method: "Files.FileAttributes", name: "of a link", needs: []need{aDirectory},
		promise: "not of what a link there leads to",
		test: func(t *testing.T, f *Fixture) {
			f.link(t, "dangling", win.NewSymlink(f.Directory+`\missing`))
			a, err := f.System.FileAttributes(t.Context(), f.Directory+`\dangling`)
			if err != nil || a&win.AttributeReparsePoint == 0 {
				t.Errorf("attributes %#x, %v", a, err)
			}
		},
	},
}
