// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

const shareAll = win.ShareRead | win.ShareWrite | win.ShareDelete

// openDir opens a directory for what its owner may do with the files in it.
func openDir(t *testing.T, s *System, path string) win.File {
	t.Helper()
	f, err := s.OpenFile(t.Context(), path, win.OpenOptions{
		Access: win.FileListDirectory | win.FileTraverse | win.FileReadAttributes,
		Share:  shareAll, Disposition: win.FileOpen, Options: win.FileDirectoryFile,
	})
	if err != nil {
		t.Fatalf("OpenFile %s: %v", path, err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// at opens a file and closes it, and returns the error of that.
func at(t *testing.T, dir win.File, name string, o win.OpenOptions) error {
	t.Helper()
	f, err := dir.OpenAt(t.Context(), name, o)
	if err != nil {
		return err
	}
	return f.Close()
}

func TestOpenAt(t *testing.T) {
	s := newSystem(t)
	root := t.TempDir()
	dir := openDir(t, s, root)
	open := win.OpenOptions{Access: win.FileReadAttributes, Share: shareAll, Disposition: win.FileOpen}
	with := func(d win.Disposition, options win.CreateOptions) win.OpenOptions {
		o := open
		o.Disposition, o.Options = d, options
		return o
	}
	steps := []struct {
		name string
		o    win.OpenOptions
		want win.Errno // 0 is success
	}{
		{"sub", open, win.ErrorFileNotFound},
		{"sub", with(win.FileCreate, win.FileDirectoryFile), 0},
		{"sub", with(win.FileCreate, win.FileDirectoryFile), win.ErrorAlreadyExists},
		{"SUB", with(win.FileCreate, win.FileDirectoryFile), win.ErrorAlreadyExists},
		{"Sub", open, 0},
		{"sub", with(win.FileOpenIf, win.FileDirectoryFile), 0},
		{"new", with(win.FileOpenIf, win.FileDirectoryFile), 0},
		{"sub", with(win.FileOpen, win.FileNonDirectoryFile), win.ErrorAccessDenied}, // STATUS_FILE_IS_A_DIRECTORY
		{"file", with(win.FileCreate, win.FileNonDirectoryFile), 0},
		{"file", with(win.FileOpen, win.FileDirectoryFile), win.ErrorDirectory},
		{"..", open, win.ErrorInvalidName},
		{`sub\x`, open, win.ErrorFileNotFound},
		{`sub\x`, with(win.FileCreate, win.FileDirectoryFile), 0},
		{`sub\X`, open, 0},
		{`missing\x`, open, win.ErrorPathNotFound},
		{`file\x`, open, win.ErrorPathNotFound},
		{`sub\..\sub`, open, win.ErrorInvalidName},
		{`sub\\x`, open, win.ErrorInvalidName},
		{"a?b", open, win.ErrorInvalidName},
	}
	for _, step := range steps {
		err := at(t, dir, step.name, step.o)
		if step.want == 0 && err != nil {
			t.Errorf("%s with %+v: %v", step.name, step.o, err)
		} else if step.want != 0 {
			wantErrno(t, fmt.Sprintf("%s with %+v", step.name, step.o), err, step.want)
		}
	}
	for name, isDir := range map[string]bool{"sub": true, "new": true, "file": false} {
		if i, err := os.Stat(filepath.Join(root, name)); err != nil || i.IsDir() != isDir {
			t.Errorf("%s: %v, %v; want a directory: %t", name, i, err, isDir)
		}
	}
}

func TestSharing(t *testing.T) {
	s := newSystem(t)
	dir := openDir(t, s, t.TempDir())
	o := win.OpenOptions{
		Access: win.FileListDirectory, Share: win.ShareRead | win.ShareWrite,
		Disposition: win.FileCreate, Options: win.FileDirectoryFile,
	}
	held, err := dir.OpenAt(t.Context(), "held", o)
	if err != nil {
		t.Fatal(err)
	}
	o.Disposition = win.FileOpen
	if err := at(t, dir, "held", o); err != nil {
		t.Errorf("listing beside: %v", err)
	}
	o.Access, o.Share = win.Delete, shareAll
	wantErrno(t, "deleting what is held", at(t, dir, "held", o), win.ErrorSharingViolation)
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := at(t, dir, "held", o); err != nil {
		t.Errorf("after the holder: %v", err)
	}
}

func TestReadDir(t *testing.T) {
	s := newSystem(t)
	root := t.TempDir()
	const files = 600 // two buffers full
	want := map[string]bool{}
	for i := range files {
		name := fmt.Sprintf("%04d%s", i, strings.Repeat("n", i%80))
		want[name] = false
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want["directory"] = true
	if err := os.Mkdir(filepath.Join(root, "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := openDir(t, s, root)
	list := func(restart bool) (n int) {
		for ; ; restart = false {
			entries, err := dir.ReadDir(t.Context(), restart)
			if err == win.ErrorNoMoreFiles {
				return n
			}
			if err != nil {
				t.Fatal(err)
			}
			n += len(entries)
			for _, e := range entries {
				if isDir, ok := want[e.Name]; !ok || isDir != e.IsDir() || e.IsReparsePoint() || e.ReparseTag != 0 {
					t.Errorf("entry %+v; want a directory: %t, there: %t", e, isDir, ok)
				}
			}
		}
	}
	if n := list(false); n != len(want) {
		t.Errorf("%d entries; want %d", n, len(want))
	}
	if n := list(false); n != 0 {
		t.Errorf("%d entries after the last", n)
	}
	if n := list(true); n != len(want) {
		t.Errorf("%d entries anew; want %d", n, len(want))
	}
	_, err := openDir(t, s, filepath.Join(root, "directory")).ReadDir(t.Context(), false)
	wantErrno(t, "an empty directory", err, win.ErrorNoMoreFiles)
}

func TestInfo(t *testing.T) {
	s := newSystem(t)
	root := t.TempDir()
	path := filepath.Join(root, "read-only")
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(path, 0o600) })
	info, err := openDir(t, s, root).Info(t.Context())
	if err != nil || !info.IsDir() || info.IsReparsePoint() {
		t.Errorf("of a directory: %+v, %v", info, err)
	}
	f, err := s.OpenFile(t.Context(), path, win.OpenOptions{Access: win.FileReadAttributes, Share: shareAll, Disposition: win.FileOpen})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err = f.Info(t.Context())
	if err != nil || info.IsDir() || info.Attributes&win.AttributeReadOnly == 0 {
		t.Errorf("of a read-only file: %+v, %v", info, err)
	}
}

func TestDelete(t *testing.T) {
	s := newSystem(t)
	ways := map[string]func(f win.File) error{
		"at once":  func(f win.File) error { return f.Delete(t.Context()) },
		"on close": func(f win.File) error { return f.(*file).deleteOnClose() },
	}
	for name, del := range ways {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := openDir(t, s, root)
			deletion := func(name string) error {
				f, err := dir.OpenAt(t.Context(), name, win.OpenOptions{
					Access: win.Delete | win.FileReadAttributes, Share: shareAll,
					Disposition: win.FileOpen, Options: win.FileOpenReparsePoint | win.FileOpenForBackup,
				})
				if err != nil {
					return err
				}
				defer f.Close()
				return del(f)
			}
			for _, sub := range []string{"empty", "full", `full\x`} {
				if err := os.Mkdir(filepath.Join(root, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, file := range []string{"file", "read-only"} {
				if err := os.WriteFile(filepath.Join(root, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(filepath.Join(root, "read-only"), 0o400); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"empty", "file", "read-only"} {
				if err := deletion(name); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if _, err := os.Lstat(filepath.Join(root, name)); !os.IsNotExist(err) {
					t.Errorf("%s is still there: %v", name, err)
				}
			}
			wantErrno(t, "a directory with entries", deletion("full"), win.ErrorDirNotEmpty)
			if _, err := os.Stat(filepath.Join(root, "full")); err != nil {
				t.Error(err)
			}
		})
	}
}

// A read-only directory that can't be deleted stays read-only.
func TestDeleteKeepsReadOnly(t *testing.T) {
	skipUnderWine(t, "read-only directories")
	s := newSystem(t)
	root := t.TempDir()
	full := filepath.Join(root, "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	name, err := utf16Ptr(full)
	if err != nil {
		t.Fatal(err)
	}
	if err := windows.SetFileAttributes(name, windows.FILE_ATTRIBUTE_READONLY); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { windows.SetFileAttributes(name, windows.FILE_ATTRIBUTE_NORMAL) })
	f, err := s.OpenFile(t.Context(), full, win.OpenOptions{
		Access: win.Delete | win.FileReadAttributes, Share: shareAll, Disposition: win.FileOpen,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wantErrno(t, "deleteOnClose", f.(*file).deleteOnClose(), win.ErrorDirNotEmpty)
	if a, err := s.FileAttributes(t.Context(), full); err != nil || a&win.AttributeReadOnly == 0 {
		t.Errorf("attributes %#x, %v; want it read-only", a, err)
	}
}

// Names with half a surrogate pair, which Windows takes, are listed so that they can
// be opened and deleted.
func TestHalfPairInName(t *testing.T) {
	skipUnderWine(t, "half surrogate pairs in names, which the files below it can't have")
	s := newSystem(t)
	root := t.TempDir()
	dir := openDir(t, s, root)
	want := []string{"first half \xed\xa0\xbd", "second half \xed\xb2\xbe", "\U0001f4be"}
	o := win.OpenOptions{Access: win.Delete | win.FileReadAttributes, Share: shareAll, Disposition: win.FileCreate, Options: win.FileNonDirectoryFile}
	for _, name := range want {
		if err := at(t, dir, name, o); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
	}
	var names []string
	for restart := true; ; restart = false {
		entries, err := dir.ReadDir(t.Context(), restart)
		if err == win.ErrorNoMoreFiles {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name)
		}
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Fatalf("names %q; want %q", names, want)
	}
	o.Disposition = win.FileOpen
	for _, name := range names {
		f, err := dir.OpenAt(t.Context(), name, o)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if err := f.Delete(t.Context()); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		f.Close()
	}
	_, err := dir.ReadDir(t.Context(), true)
	wantErrno(t, "the directory afterwards", err, win.ErrorNoMoreFiles)
}

// The portable WTF-8 is that of package syscall, which makes the names for x/sys.
func TestUTF16IsThatOfSyscall(t *testing.T) {
	for _, units := range [][]uint16{{'a'}, {0xD83D, 0xDCBE}, {0xD83D}, {0xDCBE, 0xD83D}, {0xD83D, 0xD83D, 0xDCBE, 'b'}, {0xFFFD}} {
		text := windows.UTF16ToString(units)
		if got := win.StringFromUTF16(units); got != text {
			t.Errorf("%#x became %q; want %q", units, got, text)
		}
		want, err := windows.UTF16FromString(text)
		if got := append(win.AppendUTF16(nil, text), 0); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q became %#x; want %#x, %v", text, got, want, err)
		}
	}
}

// What a pod leaves behind can be listed and removed, also if its access list lets
// nobody in.
func TestDeniedDirectory(t *testing.T) {
	skipUnderWine(t, "access lists that it enforces")
	s := newSystem(t)
	root := t.TempDir()
	denied := filepath.Join(root, "denied")
	if err := os.MkdirAll(filepath.Join(denied, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	setDACL(t, filepath.Join(denied, "x"), "D:P(D;;GA;;;WD)")
	setDACL(t, denied, "D:P(D;;GA;;;WD)")
	t.Cleanup(func() { // so that the directory can be removed in any case
		if _, err := os.Stat(root + `\denied`); err == nil {
			setDACL(t, denied, "D:P(A;OICI;GA;;;WD)")
			setDACL(t, filepath.Join(denied, "x"), "D:P(A;;GA;;;WD)")
		}
	})
	dir := openDir(t, s, root)
	o := win.OpenOptions{
		Access: win.Delete | win.FileListDirectory | win.FileTraverse | win.FileReadAttributes, Share: shareAll,
		Disposition: win.FileOpen, Options: win.FileDirectoryFile,
	}
	wantErrno(t, "without backup intent", at(t, dir, "denied", o), win.ErrorAccessDenied)
	o.Options |= win.FileOpenForBackup
	f, err := dir.OpenAt(t.Context(), "denied", o)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries, err := f.ReadDir(t.Context(), true)
	if err != nil || len(entries) != 1 || entries[0].Name != "x" {
		t.Errorf("entries %v, %v; want x", entries, err)
	}
	x, err := f.OpenAt(t.Context(), "x", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// setDACL gives a file the access list of a descriptor in SDDL.
func setDACL(t *testing.T, path, sddl string) {
	t.Helper()
	descriptor, err := windows.SecurityDescriptorFromString(sddl)
	if err != nil {
		t.Fatal(err)
	}
	dacl, _, err := descriptor.DACL()
	if err != nil {
		t.Fatal(err)
	}
	err = windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, dacl, nil)
	if err != nil {
		t.Fatal(err)
	}
}

func TestDeletePending(t *testing.T) {
	skipUnderWine(t, "files that are being deleted")
	s := newSystem(t)
	dir := openDir(t, s, t.TempDir())
	f, err := dir.OpenAt(t.Context(), "x", win.OpenOptions{
		Access: win.Delete | win.FileReadAttributes, Share: shareAll, Disposition: win.FileCreate, Options: win.FileNonDirectoryFile,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.(*file).deleteOnClose(); err != nil {
		t.Fatal(err)
	}
	err = at(t, dir, "x", win.OpenOptions{Access: win.FileReadAttributes, Share: shareAll, Disposition: win.FileOpen})
	wantErrno(t, "opening what is being deleted", err, win.ErrorDeletePending)
}

func TestFileAttributes(t *testing.T) {
	s := newSystem(t)
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := s.FileAttributes(t.Context(), root); err != nil || a&win.AttributeDirectory == 0 {
		t.Errorf("of a directory: %#x, %v", a, err)
	}
	if a, err := s.FileAttributes(t.Context(), file); err != nil || a&win.AttributeDirectory != 0 {
		t.Errorf("of a file: %#x, %v", a, err)
	}
	for path, want := range map[string]win.Errno{
		filepath.Join(root, "missing"):      win.ErrorFileNotFound,
		filepath.Join(root, "missing", "x"): win.ErrorPathNotFound,
		root + `\a?b`:                       win.ErrorInvalidName,
		"relative":                          win.ErrorInvalidName,
	} {
		_, err := s.FileAttributes(t.Context(), path)
		wantErrno(t, path, err, want)
	}
}

func TestOpenFileErrors(t *testing.T) {
	s := newSystem(t)
	root := t.TempDir()
	for path, want := range map[string][]win.Errno{
		root + `\missing`:   {win.ErrorFileNotFound},
		root + `\missing\x`: {win.ErrorPathNotFound},
		"C:\\\x00":          {win.ErrorInvalidName},
		// A drive or volume that isn't there; Wine says 2 of the drive.
		`Q:\x`:           {win.ErrorPathNotFound, win.ErrorFileNotFound},
		volumeName + `x`: {win.ErrorPathNotFound, win.ErrorFileNotFound},
	} {
		_, err := s.OpenFile(t.Context(), path, win.OpenOptions{Access: win.FileReadAttributes, Share: shareAll, Disposition: win.FileOpen})
		wantErrno(t, path, err, want...)
	}
}

func TestLongPath(t *testing.T) {
	s := newSystem(t)
	path := t.TempDir()
	for len(path) < 2*maxPath {
		path = filepath.Join(path, strings.Repeat("long", 20))
		f, err := s.OpenFile(t.Context(), path, win.OpenOptions{
			Access: win.FileReadAttributes, Share: shareAll, Disposition: win.FileCreate, Options: win.FileDirectoryFile,
		})
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if a, err := s.FileAttributes(t.Context(), path); err != nil || a&win.AttributeDirectory == 0 {
		t.Errorf("%#x, %v", a, err)
	}
	if _, err := s.DiskFreeSpace(t.Context(), path); err != nil {
		t.Errorf("DiskFreeSpace: %v", err)
	}
}

func TestReparsePoint(t *testing.T) {
	skipUnderWine(t, "FSCTL_SET_REPARSE_POINT")
	s := newSystem(t)
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "target"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := openDir(t, s, root)
	link := win.OpenOptions{
		Access: win.FileReadAttributes | win.FileWriteAttributes, Share: shareAll,
		Disposition: win.FileOpen, Options: win.FileOpenReparsePoint | win.FileOpenForBackup,
	}
	for name, point := range map[string]win.ReparsePoint{
		"symlink":  win.NewSymlink(filepath.Join(root, "target")),
		"junction": win.NewJunction(filepath.Join(root, "target")),
	} {
		create := link
		create.Disposition, create.Options = win.FileCreate, create.Options|win.FileDirectoryFile
		f, err := dir.OpenAt(t.Context(), name, create)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Control(t.Context(), win.FsctlSetReparsePoint, point.Encode(), nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		info, err := f.Info(t.Context())
		if err != nil || info.ReparseTag != point.Tag {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		buf := make([]byte, win.MaximumReparseDataSize)
		n, err := f.Control(t.Context(), win.FsctlGetReparsePoint, nil, buf)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := win.DecodeReparsePoint(buf[:n]); err != nil || got != point {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, point)
		}
		if target, err := os.Readlink(filepath.Join(root, name)); err != nil || !strings.EqualFold(target, filepath.Join(root, "target")) {
			t.Errorf("%s leads to %s, %v", name, target, err)
		}
		follow := link
		follow.Options = win.FileOpenForBackup
		wantErrno(t, name+" followed", at(t, dir, name, follow), win.Errno(windows.ERROR_REPARSE_POINT_ENCOUNTERED))
		wantErrno(t, "a path by "+name, at(t, dir, name+`\x`, link), win.Errno(windows.ERROR_REPARSE_POINT_ENCOUNTERED))
		wantErrno(t, "below "+name, at(t, f, "x", link), win.Errno(windows.ERROR_REPARSE_POINT_ENCOUNTERED), win.ErrorFileNotFound)
	}
	entries, err := dir.ReadDir(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]win.ReparseTag{}
	for _, e := range entries {
		tags[e.Name] = e.ReparseTag
	}
	if tags["symlink"] != win.TagSymlink || tags["junction"] != win.TagMountPoint || tags["target"] != 0 {
		t.Errorf("tags %#x", tags)
	}
}
