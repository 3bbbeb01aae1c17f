// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// list reads a directory to its end.
func list(t *testing.T, dir win.File, restart bool) (all []win.DirEntry) {
	t.Helper()
	for ; ; restart = false {
		entries, err := dir.ReadDir(t.Context(), restart)
		if err == winerr.ErrorNoMoreFiles {
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

var fileRows = []row{
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
		method: "File.FinalPath", name: "below its volume", needs: []need{aDirectory},
		promise: `the path by which the file is found now without any link, \\?\Volume{guid}\directory\name`,
		test: func(t *testing.T, f *Fixture) {
			f.make(t, f.Directory+`\Dir\`)
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
			for _, name := range want {
				f.make(t, f.Directory+`\`+name)
			}
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
					if e.IsReparsePoint() || e.ReparseTag != 0 || e.Size != 0 && !e.IsDir() {
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
}
