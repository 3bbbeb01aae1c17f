// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
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

// What is done where the file system can't delete at once.
func TestDeleteOnClose(t *testing.T) {
	s := newSystem(t)
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
		return f.(*file).deleteOnClose()
	}
	for _, sub := range []string{"empty", "full", `full\x`} {
		must(t, os.Mkdir(filepath.Join(root, sub), 0o700))
	}
	for _, file := range []string{"file", "read-only"} {
		must(t, os.WriteFile(filepath.Join(root, file), nil, 0o600))
	}
	must(t, os.Chmod(filepath.Join(root, "read-only"), 0o400))
	for _, name := range []string{"empty", "file", "read-only"} {
		if err := deletion(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(root, name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	wantErrno(t, "a directory with entries", deletion("full"), winerr.ErrorDirNotEmpty)
	if _, err := os.Stat(filepath.Join(root, "full")); err != nil {
		t.Error(err)
	}
}

// A read-only directory that can't be deleted stays read-only.
func TestDeleteKeepsReadOnly(t *testing.T) {
	skipUnderWine(t, "read-only directories")
	s := newSystem(t)
	root := t.TempDir()
	full := filepath.Join(root, "full")
	must(t, os.MkdirAll(filepath.Join(full, "x"), 0o700))
	name, err := utf16Ptr(full)
	must(t, err)
	must(t, windows.SetFileAttributes(name, windows.FILE_ATTRIBUTE_READONLY))
	t.Cleanup(func() { windows.SetFileAttributes(name, windows.FILE_ATTRIBUTE_NORMAL) })
	f, err := s.OpenFile(t.Context(), full, win.OpenOptions{
		Access: win.Delete | win.FileReadAttributes, Share: shareAll, Disposition: win.FileOpen,
	})
	must(t, err)
	defer f.Close()
	wantErrno(t, "deleteOnClose", f.(*file).deleteOnClose(), winerr.ErrorDirNotEmpty)
	if a, err := s.FileAttributes(t.Context(), full); err != nil || a&win.AttributeReadOnly == 0 {
		t.Errorf("attributes %#x, %v; want it read-only", a, err)
	}
}

// The portable WTF-8 is that of package syscall, which makes the names for x/sys.
func TestUTF16IsThatOfSyscall(t *testing.T) {
	for _, units := range [][]uint16{{'a'}, {0xD83D, 0xDCBE}, {0xD83D}, {0xDCBE, 0xD83D}, {0xD83D, 0xD83D, 0xDCBE, 'b'},
		{0xFFFD}} {
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
	must(t, os.MkdirAll(filepath.Join(denied, "x"), 0o700))
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
	wantErrno(t, "without backup intent", at(t, dir, "denied", o), winerr.ErrorAccessDenied)
	o.Options |= win.FileOpenForBackup
	f, err := dir.OpenAt(t.Context(), "denied", o)
	must(t, err)
	defer f.Close()
	entries, err := f.ReadDir(t.Context(), true)
	if err != nil || len(entries) != 1 || entries[0].Name != "x" {
		t.Errorf("entries %v, %v; want x", entries, err)
	}
	x, err := f.OpenAt(t.Context(), "x", o)
	must(t, err)
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
	must(t, err)
	dacl, _, err := descriptor.DACL()
	must(t, err)
	err = windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, dacl, nil)
	must(t, err)
}

// A file that others may read can be locked by them.
func TestPrivate(t *testing.T) {
	s := newSystem(t)
	path := filepath.Join(t.TempDir(), "x")
	f, err := s.OpenFile(t.Context(), path, win.OpenOptions{
		Access: win.GenericRead, Share: shareAll, Disposition: win.FileCreate, Private: true,
	})
	must(t, err)
	defer f.Close()
	private, err := f.Private(t.Context())
	if err != nil || !private {
		t.Errorf("as it was made: private %t, %v", private, err)
	}
	setDACL(t, path, "D:P(A;;FA;;;SY)(A;;FA;;;BA)(A;;FR;;;WD)")
	if private, err = f.Private(t.Context()); err != nil || private {
		t.Errorf("open to Everyone: private %t, %v", private, err)
	}
}

// lockedFile is the environment variable that has a second process of TestLockEndsWithProcess lock a file.
const lockedFile = "CSI_PROXY_TEST_LOCKED_FILE"

// A process that is ended keeps nobody out any more.
func TestLockEndsWithProcess(t *testing.T) {
	s := newSystem(t)
	path, second := os.Getenv(lockedFile), true
	if path == "" {
		path, second = filepath.Join(t.TempDir(), "x"), false
	}
	f, err := s.OpenFile(t.Context(), path, win.OpenOptions{
		Access: win.GenericRead, Share: shareAll, Disposition: win.FileOpenIf, Private: true,
	})
	must(t, err)
	defer f.Close()
	if second {
		must(t, f.LockByte(t.Context(), 7))
		fmt.Println("locked")
		// Until the process is ended. With select {} Go would end it: all goroutines are asleep.
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockEndsWithProcess$")
	cmd.Env = append(os.Environ(), lockedFile+"="+path)
	in, err := cmd.StdinPipe()
	must(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasPrefix(line, "locked") {
		t.Errorf("the second process says %q, %v", line, err)
	}
	wantErrno(t, "while the second process has it", f.LockByte(t.Context(), 7), winerr.ErrorLockViolation)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // which says that it was killed
	err = operation.Retry(t.Context(), 10*time.Second, 10*time.Millisecond, []winerr.Errno{winerr.ErrorLockViolation},
		func() error { return f.LockByte(t.Context(), 7) })
	if err != nil {
		t.Errorf("after the second process has ended: %v", err)
	}
}

func TestDeletePending(t *testing.T) {
	skipUnderWine(t, "files that are being deleted")
	s := newSystem(t)
	dir := openDir(t, s, t.TempDir())
	f, err := dir.OpenAt(t.Context(), "x", win.OpenOptions{
		Access: win.Delete | win.FileReadAttributes, Share: shareAll, Disposition: win.FileCreate,
		Options: win.FileNonDirectoryFile,
	})
	must(t, err)
	defer f.Close()
	must(t, f.(*file).deleteOnClose())
	err = at(t, dir, "x", win.OpenOptions{Access: win.FileReadAttributes, Share: shareAll, Disposition: win.FileOpen})
	wantErrno(t, "opening what is being deleted", err, winerr.ErrorDeletePending)
}
