// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// security opens a directory below the test's own, or the reparse point in its place, for
// its access list.
func (f *Fixture) security(t *testing.T, name string, more win.Access) win.File {
	t.Helper()
	return f.openFile(t, f.Directory+`\`+name, open(win.ReadControl|win.WriteDAC|more, win.FileOpenReparsePoint))
}

var accessRows = []row{
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
			wantErrno(t, "set a reparse point", errorOf(h.Control(t.Context(), win.FsctlSetReparsePoint, r, nil)))
			o := creating(win.FileCreate, win.FileNonDirectoryFile)
			closing(t, f.openFile(t, f.Directory+`\in\file`, o))
			wantErrno(t, "through the link", at(t, f.dir(t), `target\file`, open(win.FileReadAttributes)))
			for _, deny := range []bool{false, true} { // of the directory below the link, still
				must(t, h.DenyCreation(t.Context(), deny))
			}
			header := append(slices.Clone(r[:4]), 0, 0, 0, 0)
			wantErrno(t, "delete the reparse point", errorOf(h.Control(t.Context(), win.FsctlDeleteReparsePoint, header, nil)))
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
			wantErrno(t, "afterwards", errorOf(f.System.OpenFile(t.Context(), point+"file", o)), win.ErrorAccessDenied)
		},
	},
}
