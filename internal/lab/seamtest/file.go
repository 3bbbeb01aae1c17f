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

var fileRows = []row{
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
}
