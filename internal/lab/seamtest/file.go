// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// list reads a directory to its end.
func list(t *testing.T, dir win.File, restart bool) (all []win.DirEntry) {
	t.Helper()
	for ; ; restart = false {
		entries, err := dir.ReadDir(t.Context(), restart)
		if err == win.ErrorNoMoreFiles {
			return all
		}
		must(t, err)
		if len(entries) == 0 {
			t.Fatal("no entries, and no error")
		}
		all = append(all, entries...)
	}
}

// deletion deletes a name below the test's directory.
func deletion(t *testing.T, dir win.File, name string) error {
	t.Helper()
	h, err := dir.OpenAt(t.Context(), name, open(win.Delete|win.FileReadAttributes, openLink))
	if err != nil {
		return err
	}
	defer closing(t, h)
	return h.Delete(t.Context())
}

// link makes a link below the test's directory.
func (f *Fixture) link(t *testing.T, name string, r win.ReparsePoint) {
	t.Helper()
	o := creating(win.FileCreate, win.FileDirectoryFile|openLink)
	o.Access |= win.FileWriteAttributes
	h, err := f.dir(t).OpenAt(t.Context(), name, o)
	must(t, err)
	defer closing(t, h)
	_, err = h.Control(t.Context(), win.FsctlSetReparsePoint, r.Encode(), nil)
	must(t, err)
}

// security opens a directory below the test's own, or the reparse point in its place, for
// its access list.
func (f *Fixture) security(t *testing.T, name string, more win.Access) win.File {
	t.Helper()
	return f.openFile(t, f.Directory+`\`+name, open(win.ReadControl|win.WriteDAC|more, win.FileOpenReparsePoint))
}

var fileRows = []row{
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
		method: "File.OpenAt", name: "through a handle for attributes only", needs: []need{aDirectory},
		promise: "a directory's handle that was opened for attributes only is enough",
		guess:   "which right to a directory a relative open needs isn't documented",
		test: func(t *testing.T, f *Fixture) {
			must(t, at(t, f.dir(t), "below", creating(win.FileCreate, win.FileDirectoryFile)))
			kept := f.openFile(t, f.Directory, open(win.FileReadAttributes, win.FileDirectoryFile))
			if err := at(t, kept, "below", open(win.FileReadAttributes, openLink)); err != nil {
				t.Errorf("an open below it: %v", err)
			}
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
		method: "File.OpenAt", name: "isn't led astray", needs: []need{aDirectory},
		promise: "A reparse point on the way is refused with ErrorReparsePointEncountered; the last element is opened " +
			"itself with FileOpenReparsePoint and refused without.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `target\`, `target\x\`)
			f.link(t, "symlink", win.NewSymlink(f.Directory+`\target`))
			f.link(t, "junction", win.NewJunction(f.Directory+`\target`))
			dir := f.dir(t)
			for name, tag := range map[string]win.ReparseTag{"symlink": win.TagSymlink, "junction": win.TagMountPoint} {
				wantErrno(t, name+" followed", at(t, dir, name, open(win.FileReadAttributes, win.FileOpenForBackup)),
					win.ErrorReparsePointEncountered)
				wantErrno(t, "a path by "+name, at(t, dir, name+`\x`, open(win.FileReadAttributes, openLink)), win.ErrorReparsePointEncountered)
				h, err := dir.OpenAt(t.Context(), name, open(win.FileReadAttributes, openLink))
				must(t, err)
				info, err := h.Info(t.Context())
				if err != nil || !info.IsReparsePoint() || info.ReparseTag != tag {
					t.Errorf("%s itself: %+v, %v", name, info, err)
				}
				closing(t, h)
			}
		},
	},
	{
		method: "File.OpenAt", name: "below what has become a link", needs: []need{aDirectory},
		promise: "So is everything below a directory that has become a reparse point since it was opened.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `empty\`, `target\`, `target\x\`)
			held := f.openFile(t, f.Directory+`\empty`, open(win.FileListDirectory|win.FileWriteAttributes, openLink))
			_, err := held.Control(t.Context(), win.FsctlSetReparsePoint, win.NewJunction(f.Directory+`\target`).Encode(), nil)
			must(t, err)
			wantErrno(t, "below it", at(t, held, "x", open(win.FileReadAttributes)), win.ErrorReparsePointEncountered)
		},
	},
	{
		method: "Files.OpenFile", name: "full paths only",
		promise: "and a path that isn't full",
		test: func(t *testing.T, f *Fixture) {
			for _, path := range []string{"", "relative", `C:`, `C:relative`, `\rooted`, `1:\x`, `\\?\C:\x\..\y`} {
				_, err := f.System.OpenFile(t.Context(), path, open(win.FileReadAttributes))
				wantErrno(t, fmt.Sprintf("%q", path), err, win.ErrorInvalidName)
				_, err = f.System.FileAttributes(t.Context(), path)
				wantErrno(t, fmt.Sprintf("attributes of %q", path), err, win.ErrorInvalidName)
			}
		},
	},
	{
		method: "Files.OpenFile", name: "of drives and volumes that aren't there",
		promise: "2 and 3 no such file or directory",
		test: func(t *testing.T, f *Fixture) {
			for _, path := range []string{`Q:\x`, noVolume + "x"} {
				_, err := f.System.OpenFile(t.Context(), path, open(win.FileReadAttributes))
				wantErrno(t, path, err, missing...)
			}
		},
	},
	{
		method: "Files.OpenFile", name: "follows links", needs: []need{aDirectory},
		promise: "Links on the way are followed; o says whether the last one is.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `target\`, `target\x\`)
			f.link(t, "symlink", win.NewSymlink(f.Directory+`\target`))
			f.link(t, "junction", win.NewJunction(f.Directory+`\target`))
			f.link(t, "dangling", win.NewSymlink(f.Directory+`\missing`))
			for _, name := range []string{"symlink", "junction"} {
				f.openFile(t, f.Directory+`\`+name+`\x`, open(win.FileReadAttributes))
				for options, isLink := range map[win.CreateOptions]bool{win.FileOpenForBackup: false, openLink: true} {
					info, err := f.openFile(t, f.Directory+`\`+name, open(win.FileReadAttributes, options)).Info(t.Context())
					if err != nil || info.IsReparsePoint() != isLink {
						t.Errorf("%s with options %#x: %+v, %v", name, options, info, err)
					}
				}
			}
			_, err := f.System.OpenFile(t.Context(), f.Directory+`\dangling`, open(win.FileReadAttributes))
			wantErrno(t, "a link to nothing", err, missing...)
		},
	},
	{
		method: "Files.OpenFile", name: "of a link to itself", needs: []need{aDirectory},
		promise: "1920 and 1921 a link that can't be followed",
		test: func(t *testing.T, f *Fixture) {
			f.link(t, "loop", win.NewSymlink(f.Directory+`\loop`))
			_, err := f.System.OpenFile(t.Context(), f.Directory+`\loop\x`, open(win.FileReadAttributes))
			wantErrno(t, "a link to itself", err, 1920, 1921)
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
		method: "Files.FileAttributes", name: "errors", needs: []need{aDirectory},
		promise: "Errors are those of OpenFile.",
		test: func(t *testing.T, f *Fixture) {
			for name, want := range map[string]win.Errno{
				"missing": win.ErrorFileNotFound, `missing\x`: win.ErrorPathNotFound, "a?b": win.ErrorInvalidName, "x\x00": win.ErrorInvalidName,
			} {
				_, err := f.System.FileAttributes(t.Context(), f.Directory+`\`+name)
				wantErrno(t, fmt.Sprintf("%q", name), err, want)
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
	{
		method: "File.Info", name: "of files and directories", needs: []need{aDirectory, aReadOnly},
		promise: "ReparseTag is 0 where the attribute AttributeReparsePoint is not set",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, "file", `dir\`)
			f.SetReadOnly(t, f.Directory+`\file`, true)
			t.Cleanup(func() { f.SetReadOnly(t, f.Directory+`\file`, false) })
			for name, isDir := range map[string]bool{"file": false, "dir": true} {
				info, err := f.openFile(t, f.Directory+`\`+name, open(win.FileReadAttributes)).Info(t.Context())
				readOnly := info.Attributes&win.AttributeReadOnly != 0
				if err != nil || info.IsDir() != isDir || info.IsReparsePoint() || info.ReparseTag != 0 || readOnly == isDir {
					t.Errorf("%s: %+v, %v", name, info, err)
				}
			}
		},
	},
	{
		method: "File.Volume", name: "of a directory", needs: []need{aDirectory},
		promise: `the name of the volume that the file is on, \\?\Volume{guid}\.`,
		test: func(t *testing.T, f *Fixture) {
			want, err := f.System.VolumeNameForMountPoint(t.Context(), f.Directory[:3])
			must(t, err)
			if got, err := f.dir(t).Volume(t.Context()); err != nil || !strings.EqualFold(got, want) {
				t.Errorf("it is %s, %v, want %s", got, err, want)
			}
		},
	},
	{
		method: "File.FinalPath", name: "through a link", needs: []need{aDirectory},
		promise: `the path by which the file is found now without any link, \\?\Volume{guid}\directory\name`,
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `target\`, `target\x\`)
			f.link(t, "link", win.NewSymlink(f.Directory+`\target`))
			want, err := f.openFile(t, f.Directory+`\target\x`, open(win.FileReadAttributes)).FinalPath(t.Context())
			must(t, err)
			if got, err := f.openFile(t, f.Directory+`\link\x`, open(win.FileReadAttributes)).FinalPath(t.Context()); err != nil || got != want {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		},
	},
	{
		method: "File.FinalPath", name: "below its volume", needs: []need{aDirectory},
		promise: `the path by which the file is found now without any link, \\?\Volume{guid}\directory\name`,
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `Dir\`)
			h := f.openFile(t, f.Directory+`\dIR`, open(win.FileReadAttributes))
			volume, err := h.Volume(t.Context())
			must(t, err)
			path, err := h.FinalPath(t.Context())
			if err != nil || !strings.HasPrefix(path, volume) || !strings.HasSuffix(path, `\Dir`) {
				t.Errorf("%s, %v", path, err)
			}
			if _, err := f.System.FileAttributes(t.Context(), path); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		},
	},
	{
		method: "File.FinalPath", name: "of a deleted file", needs: []need{aDirectory},
		promise: "a deleted one ErrorFileNotFound or ErrorAccessDenied",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, "file")
			h := f.openFile(t, f.Directory+`\file`, open(win.Delete))
			must(t, h.Delete(t.Context()))
			_, err := h.FinalPath(t.Context())
			wantErrno(t, "it", err, win.ErrorFileNotFound, win.ErrorAccessDenied)
		},
	},
	{
		method: "File.Close", name: "of what goes with its handle", needs: []need{aDirectory},
		promise: "its name goes with the handle, also if the process dies; needs Delete",
		test: func(t *testing.T, f *Fixture) {
			dir := f.dir(t)
			o := creating(win.FileCreate, win.FileDirectoryFile|win.FileDeleteOnClose)
			o.Access |= win.Delete
			h, err := dir.OpenAt(t.Context(), "new", o)
			must(t, err)
			wantErrno(t, "while it is open", at(t, dir, "new", open(win.FileReadAttributes)))
			closing(t, h)
			wantErrno(t, "when it is closed", at(t, dir, "new", open(win.FileReadAttributes)), win.ErrorFileNotFound)
		},
	},
	{
		method: "File.ReadDir", name: "to the end and again", needs: []need{aDirectory},
		promise: `gives the next entries of this directory, without "." and "..", some at a time, and when each was made; after the last it returns ErrorNoMoreFiles.`,
		test: func(t *testing.T, f *Fixture) {
			want := []string{`directory\`}
			for i := range 600 { // two buffers full
				want = append(want, fmt.Sprintf("%04d%s", i, strings.Repeat("n", i%80)))
			}
			f.make(t, want...)
			dir := f.dir(t)
			check := func(what string, entries []win.DirEntry, want []string) {
				var got []string
				for _, e := range entries {
					name := e.Name
					if e.IsDir() {
						name += `\`
					}
					got = append(got, name)
					if ago := time.Since(e.Created.Time()); ago.Abs() > 24*time.Hour {
						t.Errorf("%s: %s was made %v ago", what, e.Name, ago)
					}
					if e.IsReparsePoint() || e.ReparseTag != 0 {
						t.Errorf("%s: entry %+v", what, e)
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %d entries, want %d: %q", what, len(got), len(want), got)
				}
			}
			check("from the beginning", list(t, dir, false), want)
			check("after the last", list(t, dir, false), nil)
			check("anew", list(t, dir, true), want)
			empty := f.openFile(t, f.Directory+`\directory`, open(win.FileListDirectory))
			check("an empty directory", list(t, empty, false), nil)
		},
	},
	{
		method: "File.ReadDir", name: "without the right", needs: []need{aDirectory},
		promise: "The handle needs FileListDirectory.",
		test: func(t *testing.T, f *Fixture) {
			_, err := f.openFile(t, f.Directory, open(win.FileReadAttributes)).ReadDir(t.Context(), true)
			wantErrno(t, "a handle for attributes", err, win.ErrorAccessDenied)
		},
	},
	{
		method: "File.ReadDir", name: "names of half pairs", needs: []need{aDirectory},
		promise: "Its name is WTF-8, as AppendUTF16 has it: half a surrogate pair in it isn't valid UTF-8, and " +
			"File.OpenAt takes it so.",
		test: func(t *testing.T, f *Fixture) {
			want := []string{"first half \xed\xa0\xbd", "second half \xed\xb2\xbe", "\U0001f4be"}
			f.make(t, want...)
			dir := f.dir(t)
			var names []string
			for _, e := range list(t, dir, true) {
				names = append(names, e.Name)
			}
			slices.Sort(names)
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Fatalf("names %q; want %q", names, want)
			}
			for _, name := range names {
				wantErrno(t, fmt.Sprintf("delete %q", name), deletion(t, dir, name))
			}
			if left := list(t, dir, true); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		},
	},
	{
		method: "File.ReadDir", name: "shows links", needs: []need{aDirectory},
		promise: "DirEntry is one entry of a directory.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `target\`)
			f.link(t, "symlink", win.NewSymlink(f.Directory+`\target`))
			f.link(t, "junction", win.NewJunction(f.Directory+`\target`))
			tags := map[string]win.ReparseTag{}
			for _, e := range list(t, f.dir(t), true) {
				tags[e.Name] = e.ReparseTag
			}
			if tags["symlink"] != win.TagSymlink || tags["junction"] != win.TagMountPoint || tags["target"] != 0 {
				t.Errorf("tags %#x", tags)
			}
		},
	},
	{
		method: "File.Control", name: "reparse points", needs: []need{aDirectory},
		promise: "reparse data are read and set with it",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `target\`)
			for name, point := range map[string]win.ReparsePoint{
				"symlink": win.NewSymlink(f.Directory + `\target`), "junction": win.NewJunction(f.Directory + `\target`),
			} {
				f.link(t, name, point)
				h := f.openFile(t, f.Directory+`\`+name, open(win.FileReadAttributes|win.FileWriteAttributes, openLink))
				buf := make([]byte, win.MaximumReparseDataSize)
				n, err := h.Control(t.Context(), win.FsctlGetReparsePoint, nil, buf)
				must(t, err)
				if got, err := win.DecodeReparsePoint(buf[:n]); err != nil || got != point {
					t.Errorf("%s: %+v, %v; want %+v", name, got, err, point)
				}
				header := make([]byte, 8)
				copy(header, point.Encode()[:4]) // the tag, without data
				_, err = h.Control(t.Context(), win.FsctlDeleteReparsePoint, header, nil)
				must(t, err)
				if info, err := h.Info(t.Context()); err != nil || info.IsReparsePoint() || !info.IsDir() {
					t.Errorf("%s afterwards: %+v, %v", name, info, err)
				}
				_, err = h.Control(t.Context(), win.FsctlDeleteReparsePoint, header, nil)
				wantErrno(t, "delete it again", err, win.ErrorNotAReparsePoint)
			}
		},
	},
	{
		method: "File.Control", name: "errors of reparse points", needs: []need{aDirectory},
		promise: "FsctlGetReparsePoint and FsctlDeleteReparsePoint give ErrorNotAReparsePoint where there is none. " +
			"FsctlSetReparsePoint gives ErrorDirNotEmpty for a directory with entries, and ErrorReparseTagMismatch where " +
			"there is a reparse point with another tag. With too little room FsctlGetReparsePoint gives ErrorMoreData.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `plain\`, `full\`, `full\x\`)
			f.link(t, "link", win.NewSymlink(f.Directory+`\plain`))
			junction := win.NewJunction(f.Directory + `\plain`).Encode()
			control := func(name string, code win.IoctlCode, in []byte, out int) error {
				h := f.openFile(t, f.Directory+`\`+name, open(win.FileReadAttributes|win.FileWriteAttributes, openLink))
				defer closing(t, h)
				_, err := h.Control(t.Context(), code, in, make([]byte, out))
				return err
			}
			wantErrno(t, "get of none", control("plain", win.FsctlGetReparsePoint, nil, win.MaximumReparseDataSize),
				win.ErrorNotAReparsePoint)
			wantErrno(t, "set on a full directory", control("full", win.FsctlSetReparsePoint, junction, 0), win.ErrorDirNotEmpty)
			wantErrno(t, "set another tag", control("link", win.FsctlSetReparsePoint, junction, 0), win.ErrorReparseTagMismatch)
			wantErrno(t, "get into a small buffer", control("link", win.FsctlGetReparsePoint, nil, 32), win.ErrorMoreData)
		},
	},
	{
		method: "File.DenyCreation", name: "keeps new entries out", needs: []need{aDirectory},
		promise: "As long as the entry is there, whoever makes a file or a directory in this directory, or moves one " +
			"into it, gets ErrorAccessDenied, as does an open of the directory with one of the two rights.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `in\`, `in\before\`)
			h := f.security(t, "in", 0)
			for _, deny := range []bool{true, true, false, false} {
				must(t, h.DenyCreation(t.Context(), deny))
				if got, err := h.CreationDenied(t.Context()); err != nil || got != deny {
					t.Fatalf("denied %t, %v; want %t", got, err, deny)
				}
				var want win.Errno
				if deny {
					want = win.ErrorAccessDenied
				}
				in := f.openFile(t, f.Directory+`\in`, open(win.FileListDirectory, win.FileDirectoryFile))
				for name, err := range map[string]error{
					"a file":                       at(t, in, "file", creating(win.FileCreate, win.FileNonDirectoryFile)),
					"a directory":                  at(t, in, "directory", creating(win.FileOpenIf, win.FileDirectoryFile)),
					"a file in its place":          at(t, f.dir(t), `in\other`, creating(win.FileCreate, win.FileNonDirectoryFile)),
					"the right to add files":       at(t, f.dir(t), "in", open(win.FileAddFile, win.FileDirectoryFile)),
					"the right to add directories": at(t, f.dir(t), "in", open(win.FileAddSubdirectory, win.FileDirectoryFile)),
				} {
					wantErrno(t, fmt.Sprintf("%s, denied %t", name, deny), err, want)
				}
				closing(t, in)
				wantErrno(t, "open what is missing", at(t, f.dir(t), `in\missing`, open(win.FileReadAttributes)), win.ErrorFileNotFound)
				for _, name := range []string{"file", "directory", "other"} {
					if !deny {
						must(t, deletion(t, f.dir(t), `in\`+name))
					}
				}
			}
		},
	},
	{
		method: "File.DenyCreation", name: "of the directory itself", needs: []need{aDirectory},
		promise: "the entry denies Everyone FileAddFile and FileAddSubdirectory, and nothing inherits it.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `in\`, `in\sub\`)
			must(t, f.security(t, "in", 0).DenyCreation(t.Context(), true))
			wantErrno(t, "below a directory in it", at(t, f.dir(t), `in\sub\new`, creating(win.FileCreate, win.FileDirectoryFile)))
			if denied, err := f.security(t, `in\sub`, 0).CreationDenied(t.Context()); err != nil || denied {
				t.Errorf("the directory in it: denied %t, %v", denied, err)
			}
			wantErrno(t, "delete what is in it", deletion(t, f.dir(t), `in\sub\new`))
			wantErrno(t, "and that", deletion(t, f.dir(t), `in\sub`))
			wantErrno(t, "and itself", deletion(t, f.dir(t), "in"))
		},
	},
	{
		method: "File.DenyCreation", name: "for backup", needs: []need{aDirectory},
		promise: "Exempt are handles that were opened before, and opens with FileOpenForBackup in a process that holds " +
			"SeRestorePrivilege.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `in\`)
			must(t, f.security(t, "in", 0).DenyCreation(t.Context(), true))
			wantErrno(t, "make a file", at(t, f.dir(t), `in\file`, creating(win.FileCreate, win.FileNonDirectoryFile|win.FileOpenForBackup)))
		},
	},
	{
		method: "File.DenyCreation", name: "and a link in its place", needs: []need{aDirectory},
		promise: "The directory can be deleted, and its reparse point set and deleted through a handle with " +
			"FileWriteAttributes.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `in\`, `target\`)
			h := f.security(t, "in", win.FileWriteAttributes)
			must(t, h.DenyCreation(t.Context(), true))
			r := win.NewJunction(f.Directory + `\target`).Encode()
			_, err := h.Control(t.Context(), win.FsctlSetReparsePoint, r, nil)
			wantErrno(t, "set a reparse point", err)
			o := creating(win.FileCreate, win.FileNonDirectoryFile)
			closing(t, f.openFile(t, f.Directory+`\in\file`, o))
			wantErrno(t, "through the link", at(t, f.dir(t), `target\file`, open(win.FileReadAttributes)))
			for _, deny := range []bool{false, true} { // of the directory below the link, still
				must(t, h.DenyCreation(t.Context(), deny))
			}
			header := append(slices.Clone(r[:4]), 0, 0, 0, 0)
			_, err = h.Control(t.Context(), win.FsctlDeleteReparsePoint, header, nil)
			wantErrno(t, "delete the reparse point", err)
			wantErrno(t, "afterwards", at(t, f.dir(t), `in\file`, o), win.ErrorAccessDenied)
		},
	},
	{
		method: "File.DenyCreation", name: "without the right", needs: []need{aDirectory},
		promise: "Errors: 5 the handle lacks a right",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `in\`)
			for _, access := range []win.Access{win.FileReadAttributes, win.ReadControl} {
				h := f.openFile(t, f.Directory+`\in`, open(access, openLink))
				wantErrno(t, "deny", h.DenyCreation(t.Context(), true), win.ErrorAccessDenied)
			}
		},
	},
	{
		method: "File.CreationDenied", name: "without the right", needs: []need{aDirectory},
		promise: "The handle needs ReadControl.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `in\`)
			_, err := f.openFile(t, f.Directory+`\in`, open(win.FileReadAttributes, openLink)).CreationDenied(t.Context())
			wantErrno(t, "ask", err, win.ErrorAccessDenied)
		},
	},
	{
		method: "File.DenyCreation", name: "and the mount manager", needs: []need{aDirectory, aDisk},
		promise: "whether the mount manager, which opens the directory itself, needs a right that the entry denies",
		guess: "the rights that the mount manager asks for aren't documented; setting a reparse point needs " +
			"FILE_WRITE_ATTRIBUTES only",
		test: func(t *testing.T, f *Fixture) {
			_, name := f.formatted(t)
			f.make(t, `in\`)
			must(t, f.security(t, "in", 0).DenyCreation(t.Context(), true))
			point := f.Directory + `\in\`
			must(t, f.System.SetVolumeMountPoint(t.Context(), point, name))
			if denied, err := f.security(t, "in", 0).CreationDenied(t.Context()); err != nil || !denied {
				t.Errorf("below the mount point: denied %t, %v", denied, err)
			}
			o := creating(win.FileCreate, win.FileNonDirectoryFile)
			closing(t, f.openFile(t, point+"file", o))
			must(t, f.System.DeleteVolumeMountPoint(t.Context(), point))
			_, err := f.System.OpenFile(t.Context(), point+"file", o)
			wantErrno(t, "afterwards", err, win.ErrorAccessDenied)
		},
	},
	{
		method: "File.Rename", name: "a directory with all that is in it", needs: []need{aDirectory, aReadOnly},
		promise: "moves this file, or this directory with all that is in it, to the entry name of dir, which is an open " +
			"directory of the same volume",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `full\`, `full\in\`, `full\in\read-only`, `aside\`)
			f.SetReadOnly(t, f.Directory+`\full\in\read-only`, true)
			held := open(win.FileListDirectory|win.FileTraverse, openLink)
			held.Share = win.ShareRead | win.ShareWrite // as package pathpolicy holds directories
			aside := f.openFile(t, f.Directory+`\aside`, held)
			moving := held
			moving.Access |= win.Delete
			full := f.openFile(t, f.Directory+`\full`, moving)
			must(t, full.Rename(t.Context(), aside, "moved"))
			closing(t, full)
			dir := f.dir(t)
			wantErrno(t, "under the old name", at(t, dir, "full", open(win.FileReadAttributes)), win.ErrorFileNotFound)
			wantErrno(t, "what was in it", at(t, dir, `aside\moved\in\read-only`, open(win.FileReadAttributes)))
			f.SetReadOnly(t, f.Directory+`\aside\moved\in\read-only`, false)
		},
	},
	{
		method: "File.Rename", name: "a directory with a link in it", needs: []need{aDirectory},
		promise: "moves this file, or this directory with all that is in it",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `full\`, `aside\`, `target\`, `target\file`)
			f.link(t, `full\link`, win.NewSymlink(f.Directory+`\target`))
			aside := f.openFile(t, f.Directory+`\aside`, open(win.FileListDirectory))
			must(t, f.openFile(t, f.Directory+`\full`, open(win.Delete, openLink)).Rename(t.Context(), aside, "moved"))
			wantErrno(t, "the link", at(t, f.dir(t), `aside\moved\link`, open(win.FileReadAttributes, openLink)))
			wantErrno(t, "what it leads to", at(t, f.dir(t), `target\file`, open(win.FileReadAttributes)))
		},
	},
	{
		method: "File.Rename", name: "a directory in use", needs: []need{aDirectory},
		promise: "this is a directory in which something is open",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `full\`, `full\file`, `aside\`)
			h := f.openFile(t, f.Directory+`\full\file`, open(win.FileListDirectory))
			full := f.openFile(t, f.Directory+`\full`, open(win.Delete, openLink))
			aside := f.openFile(t, f.Directory+`\aside`, open(win.FileListDirectory))
			wantErrno(t, "while a file in it is open", full.Rename(t.Context(), aside, "moved"), win.ErrorAccessDenied)
			closing(t, h)
			wantErrno(t, "afterwards", full.Rename(t.Context(), aside, "moved"))
		},
	},
	{
		method: "File.Rename", name: "names", needs: []need{aDirectory},
		promise: "123 no name of one element",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, "file", `in\`)
			h := f.openFile(t, f.Directory+`\file`, open(win.Delete))
			for _, name := range []string{"", ".", "..", `in\file`, "in/file", "a:b"} {
				wantErrno(t, name, h.Rename(t.Context(), f.dir(t), name), win.ErrorInvalidName)
			}
			wantErrno(t, "the file", at(t, f.dir(t), "file", open(win.FileReadAttributes)))
		},
	},
	{
		method: "File.Delete", name: "what can be deleted", needs: []need{aDirectory, aReadOnly},
		promise: "marks the file for deletion, also a read-only one: its name is gone when this handle is closed",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, "file", `empty\`, "read-only")
			f.SetReadOnly(t, f.Directory+`\read-only`, true)
			dir := f.dir(t)
			for _, name := range []string{"file", "empty", "read-only"} {
				wantErrno(t, name, deletion(t, dir, name))
				wantErrno(t, name+" afterwards", at(t, dir, name, open(win.FileReadAttributes)), win.ErrorFileNotFound)
			}
		},
	},
	{
		method: "File.Delete", name: "a directory with entries", needs: []need{aDirectory},
		promise: "A directory with entries gives ErrorDirNotEmpty.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `full\`, `full\x\`)
			dir := f.dir(t)
			wantErrno(t, "delete it", deletion(t, dir, "full"), win.ErrorDirNotEmpty)
			wantErrno(t, "what is in it", at(t, dir, `full\x`, open(win.FileReadAttributes)))
		},
	},
	{
		method: "File.Delete", name: "without the right", needs: []need{aDirectory},
		promise: "The handle needs Delete access.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, "file")
			wantErrno(t, "a handle for attributes", f.openFile(t, f.Directory+`\file`, open(win.FileReadAttributes)).Delete(t.Context()), win.ErrorAccessDenied)
			wantErrno(t, "the file", at(t, f.dir(t), "file", open(win.FileReadAttributes)))
		},
	},
	{
		method: "File.Delete", name: "a link itself", needs: []need{aDirectory},
		promise: "open a link itself, never its target",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `target\`, `target\x\`)
			f.link(t, "link", win.NewSymlink(f.Directory+`\target`))
			dir := f.dir(t)
			wantErrno(t, "delete it", deletion(t, dir, "link"))
			wantErrno(t, "what it led to", at(t, dir, `target\x`, open(win.FileReadAttributes)))
		},
	},
}
