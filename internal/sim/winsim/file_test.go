// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestPaths(t *testing.T) {
	s := newNode(t, Delays{})
	_, name := newVolume(t, s, true)
	system, err := s.VolumeNameForMountPoint(t.Context(), `C:\`)
	must(t, err)
	must(t, s.MkdirAll(kubelet+`\Dir\sub`))
	must(t, s.WriteFile(kubelet+`\Dir\file`, nil))
	must(t, s.WriteFile(name+`file`, nil))
	for path, want := range map[string]winerr.Errno{
		kubelet + `\Dir`:                         0,
		strings.ToUpper(kubelet) + `\dIR\`:       0,
		`c:/var/lib/kubelet/dir/sub`:             0,
		kubelet + `\Dir\.\sub\..\\sub`:           0,
		`C:\..\var\lib\kubelet`:                  0,
		`\\?\C:\var\lib\kubelet\dir`:             0,
		`\\?\c:\`:                                0,
		`C:\`:                                    0,
		system + `var\LIB\kubelet`:               0,
		system:                                   0,
		name + `FILE`:                            0,
		kubelet + `\missing`:                     winerr.ErrorFileNotFound,
		kubelet + `\missing\dir`:                 winerr.ErrorPathNotFound,
		kubelet + `\Dir\file\dir`:                winerr.ErrorPathNotFound,
		kubelet + `\a:b`:                         winerr.ErrorInvalidName,
		kubelet + `\a*`:                          winerr.ErrorInvalidName,
		kubelet + `\` + strings.Repeat(`x`, 256): winerr.ErrorInvalidName,
		`\\?\C:\var\..\var`:                      winerr.ErrorInvalidName,
		`\\?\C:\var\\lib`:                        winerr.ErrorInvalidName,
		`\\?\C:/var`:                             winerr.ErrorInvalidName,
		`\\?\C:\var/lib`:                         winerr.ErrorInvalidName,
		`\var\lib\kubelet`:                       winerr.ErrorInvalidName,
		`var`:                                    winerr.ErrorInvalidName,
		`C:`:                                     winerr.ErrorInvalidName,
		`C:var`:                                  winerr.ErrorInvalidName,
		`1:\var`:                                 winerr.ErrorInvalidName,
		``:                                       winerr.ErrorInvalidName,
		`Q:\`:                                    winerr.ErrorPathNotFound,
		`\\server\share\dir`:                     winerr.ErrorBadNetPath,
		`//server/share`:                         winerr.ErrorBadNetPath,
		`\\?\UNC\server\share`:                   winerr.ErrorBadNetPath,
		`\\.\pipe\x`:                             winerr.ErrorFileNotFound,
		`\\?\Volume{bad}\`:                       winerr.ErrorPathNotFound,
		`\\?\Volume{00000000-0000-0000-0000-000000000000}\x`: winerr.ErrorPathNotFound,
		device1(name): winerr.ErrorInvalidParameter,
	} {
		wantErr(t, fmt.Sprintf("attributes of %q", path), errorOf(s.FileAttributes(t.Context(), path)), want)
	}
}

func TestLinks(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	n, name := newVolume(t, s, true)
	must(t, s.MkdirAll(stage+`\..\a\b`))
	must(t, s.MkdirAll(stage))
	must(t, s.SetVolumeMountPoint(ctx, stage+`\`, name))
	must(t, s.MkdirAll(name+`dir`))
	must(t, s.WriteFile(name+`dir\file`, []byte("content")))
	pods := kubelet + `\pods\`
	must(t, s.Symlink(pods+`absolute`, stage, true))
	must(t, s.Symlink(pods+`relative`, `..\plugins\stage`, true))
	must(t, s.Symlink(pods+`rooted`, `\var\lib\kubelet\plugins\stage`, true))
	must(t, s.Symlink(pods+`volume`, name, true))
	must(t, s.Junction(pods+`junction`, stage))
	must(t, s.Symlink(pods+`chain`, pods+`relative`, true))
	must(t, s.Symlink(name+`back`, `C:\var\lib\kubelet\pods\absolute\dir`, true))
	must(t, s.Symlink(pods+`file`, `absolute\dir\file`, false))
	for _, path := range []string{
		stage + `\dir\file`, pods + `absolute\dir\file`, pods + `relative\dir\file`, pods + `rooted\dir\file`,
		pods + `volume\dir\file`, pods + `junction\dir\file`, pods + `chain\dir\file`, stage + `\back\file`, pods + `file`,
	} {
		wantText(t, s, path, "content")
	}
	for path, want := range map[string]win.FileInfo{
		pods + `absolute`: {Attributes: win.AttributeDirectory | win.AttributeReparsePoint, ReparseTag: win.TagSymlink},
		pods + `file`:     {Attributes: win.AttributeReparsePoint, ReparseTag: win.TagSymlink},
		pods + `junction`: {Attributes: win.AttributeDirectory | win.AttributeReparsePoint, ReparseTag: win.TagMountPoint},
		stage:             {Attributes: win.AttributeDirectory | win.AttributeReparsePoint, ReparseTag: win.TagMountPoint},
		stage + `\dir`:    {Attributes: win.AttributeDirectory},
	} {
		f, err := s.OpenFile(ctx, path, existing(win.FileReadAttributes, paths.OpenLink))
		must(t, err)
		if info, err := f.Info(ctx); err != nil || info != want {
			t.Errorf("%s: %+v, %v, want %+v", path, info, err, want)
		}
		closeHandle(t, f)
	}

	must(t, s.Symlink(pods+`dangling`, pods+`missing`, true))
	must(t, s.Symlink(pods+`loop`, pods+`loop`, true))
	must(t, s.Symlink(pods+`unc`, `\\server\share`, true))
	must(t, s.Symlink(pods+`up`, `..\..\..\..\..\..\Windows`, true))
	must(t, s.MkdirAll(pods+`foreign`))
	must(t, s.SetReparsePoint(pods+`foreign`, win.ReparsePoint{Tag: 0x80000018}))
	for path, want := range map[string]winerr.Errno{
		pods + `dangling`:     winerr.ErrorFileNotFound,
		pods + `dangling\x`:   winerr.ErrorPathNotFound,
		pods + `loop`:         errorCantResolveFilename,
		pods + `loop\x`:       errorCantResolveFilename,
		pods + `unc`:          winerr.ErrorBadNetPath,
		pods + `unc\x`:        winerr.ErrorBadNetPath,
		pods + `foreign\x`:    errorCantAccessFile,
		pods + `file\x`:       winerr.ErrorPathNotFound,
		pods + `up\System32`:  0, // above the root is the root
		pods + `absolute\dir`: 0,
	} {
		wantErr(t, "list "+path, errorOf(s.ReadDir(path)), want)
	}
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskOffline, Attributes: win.DiskOffline}))
	wantErr(t, "read from an offline disk", errorOf(s.ReadFile(pods+`chain\dir\file`)), winerr.ErrorPathNotFound)
}

// TestLinkLimit: 63 links are followed, not one more.
func TestLinkLimit(t *testing.T) {
	s := newNode(t, Delays{})
	pods := kubelet + `\pods\`
	must(t, s.WriteFile(pods+`0`, []byte("content")))
	for i := range 64 {
		must(t, s.Symlink(fmt.Sprint(pods, i+1), fmt.Sprint(i), false))
	}
	if _, err := s.ReadFile(pods + `63`); err != nil {
		t.Errorf("63 links: %v", err)
	}
	wantErr(t, "64 links", errorOf(s.ReadFile(pods+`64`)), errorCantResolveFilename)
}

// A directory that is held without ShareDelete keeps its name, and those above it keep
// theirs.
func TestHeldDirectory(t *testing.T) {
	s := newNode(t, Delays{})
	held, err := s.Hold(kubelet+`\pods`, win.OpenOptions{Access: win.FileListDirectory, Share: win.ShareRead | win.ShareWrite, Disposition: win.FileOpen, Options: win.FileDirectoryFile})
	must(t, err)
	defer closeHandle(t, held)
	wantErr(t, "rename the directory", s.Rename(kubelet+`\pods`, kubelet+`\other`, false), winerr.ErrorSharingViolation)
	wantErr(t, "rename its parent", s.Rename(kubelet, `C:\var\lib\other`, false), winerr.ErrorAccessDenied)
}

// What the contract doesn't say of controls on a file.
func TestFileControlErrors(t *testing.T) {
	s := newNode(t, Delays{})
	f, err := s.OpenFile(t.Context(), kubelet+`\pods`, existing(win.GenericWrite, paths.OpenLink))
	must(t, err)
	defer closeHandle(t, f)
	_, err = f.Control(t.Context(), win.FsctlSetReparsePoint, win.NewSymlink(`C:\Windows`).Encode()[:7], nil)
	wantErr(t, "set of bad data", err, winerr.ErrorInvalidReparseData)
	_, err = f.Control(t.Context(), win.IoctlDiskGetLengthInfo&^0xC000, nil, make([]byte, 8))
	wantErr(t, "unknown control", err, winerr.ErrorInvalidFunction)
}

// TestReadOnlyVolume: what doesn't change anything works.
func TestReadOnlyVolume(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	n, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", []byte("content")))
	open := existing(win.Delete|win.FileWriteAttributes, 0)
	before, err := s.OpenFile(ctx, name+"file", open)
	must(t, err)
	defer closeHandle(t, before)
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly}))

	wantText(t, s, name+"file", "content")
	wantErr(t, "make an existing directory", s.MkdirAll(name), 0)
	wantErr(t, "write", s.WriteFile(name+"file", nil), winerr.ErrorWriteProtect)
	wantErr(t, "create", s.WriteFile(name+"new", nil), winerr.ErrorWriteProtect)
	wantErr(t, "make a directory", s.MkdirAll(name+"dir"), winerr.ErrorWriteProtect)
	wantErr(t, "remove", s.Remove(name+"file"), winerr.ErrorWriteProtect)
	wantErr(t, "delete by a handle of before", before.Delete(ctx), winerr.ErrorWriteProtect)
	_, err = before.Control(ctx, win.FsctlSetReparsePoint, win.NewSymlink(`C:\Windows`).Encode(), nil)
	wantErr(t, "make a link by a handle of before", err, winerr.ErrorWriteProtect)
	must(t, s.SetSettings(Settings{DeleteOnCloseDenied: true})) // which is about files that are there
	_, err = s.OpenFile(ctx, name+"new", win.OpenOptions{
		Access: win.Delete, Disposition: win.FileCreate, Options: win.FileDeleteOnClose,
	})
	wantErr(t, "create what goes with its handle", err, winerr.ErrorWriteProtect)
}

func TestPodCalls(t *testing.T) {
	s := newNode(t, Delays{})
	pod := kubelet + `\pods\pod`
	must(t, s.MkdirAll(pod))
	must(t, s.WriteFile(pod+`\a`, []byte("a")))
	must(t, s.Rename(pod+`\a`, pod+`\b`, false))
	must(t, s.WriteFile(pod+`\c`, []byte("c")))
	wantErr(t, "rename over a file", s.Rename(pod+`\b`, pod+`\c`, false), winerr.ErrorAlreadyExists)
	must(t, s.Rename(pod+`\b`, pod+`\c`, true))
	wantText(t, s, pod+`\C`, "a")
	wantErr(t, "rename to nowhere", s.Rename(pod+`\c`, pod+`\x\y`, false), winerr.ErrorPathNotFound)
	wantErr(t, "rename to the root", s.Rename(pod+`\c`, `C:\`, false), winerr.ErrorAccessDenied)
	wantErr(t, "remove a full directory", s.Remove(pod), winerr.ErrorDirNotEmpty)
	wantErr(t, "directory over a file", s.MkdirAll(pod+`\c\d`), winerr.ErrorDirectory)
	wantErr(t, "link over a file", s.Symlink(pod+`\c`, `x`, false), winerr.ErrorAlreadyExists)
	wantErr(t, "write to a directory", s.WriteFile(pod, nil), winerr.ErrorAccessDenied)

	_, name := newVolume(t, s, true)
	wantErr(t, "rename to another volume", s.Rename(pod+`\c`, name+`c`, false), winerr.ErrorNotSameDevice)

	held, err := s.Hold(pod+`\c`, win.OpenOptions{Access: win.GenericRead, Share: win.ShareRead, Disposition: win.FileOpen})
	must(t, err)
	wantErr(t, "write to a held file", s.WriteFile(pod+`\c`, nil), winerr.ErrorSharingViolation)
	wantErr(t, "remove a held file", s.Remove(pod+`\c`), winerr.ErrorSharingViolation)
	wantErr(t, "rename a held file", s.Rename(pod+`\c`, pod+`\d`, false), winerr.ErrorSharingViolation)
	if open := s.OpenHandles(); !cmp.Equal(open, []string{pod + `\c`}) {
		t.Errorf("open are %q", open)
	}
	closeHandle(t, held)
	must(t, s.Remove(pod+`\c`))
}

// Locks and the access list are the file's: others meet them through each handle.
func TestLockByte(t *testing.T) {
	s := newNode(t, Delays{})
	must(t, s.WriteFile(`C:\public`, nil))
	for path, want := range map[string]bool{`C:\private`: true, `C:\public`: false} {
		o := win.OpenOptions{Access: win.GenericRead, Share: paths.ShareAll, Disposition: win.FileOpenIf, Private: true}
		f, err := s.OpenFile(t.Context(), path, o)
		must(t, err)
		private, err := f.Private(t.Context())
		if err != nil || private != want {
			t.Errorf("%s: private %t, %v", path, private, err)
		}
		must(t, f.LockByte(t.Context(), 9))
		must(t, f.LockByte(t.Context(), 7))
		if locked := s.LockedBytes(path); !cmp.Equal(locked, []int64{7, 9}) {
			t.Errorf("%s: locked are %d", path, locked)
		}
		closeHandle(t, f)
		if locked := s.LockedBytes(path); len(locked) > 0 {
			t.Errorf("%s: locked are %d", path, locked)
		}
	}
	if locked := s.LockedBytes(`C:\none`); locked != nil {
		t.Errorf("of no file: %d", locked)
	}
}

// denyCreation puts the entry on a directory's access list, or takes it off.
func denyCreation(ctx context.Context, s *System, path string, deny bool) error {
	o := existing(win.ReadControl|win.WriteDAC, paths.OpenLink)
	f, err := s.OpenFile(ctx, path, o)
	if err != nil {
		return err
	}
	return errors.Join(f.DenyCreation(ctx, deny), f.Close())
}

// makePrivate makes a file for SYSTEM and the Administrators alone.
func makePrivate(ctx context.Context, s *System, path string) error {
	f, err := s.OpenFile(ctx, path, win.OpenOptions{Access: win.GenericRead, Disposition: win.FileCreate, Private: true})
	if err != nil {
		return err
	}
	return f.Close()
}

// Whatever a pod does, nothing new comes into the directory, by whatever path: through a
// link, or below a volume that was mounted over it before. What isn't new can go.
func TestDenyCreation(t *testing.T) {
	s := newNode(t, Delays{})
	_, volume := newVolume(t, s, true)
	const link, other = kubelet + `\pod`, kubelet + `\other`
	must(t, s.MkdirAll(stage))
	must(t, s.MkdirAll(other+`\directory`))
	must(t, s.WriteFile(other+`\file`, nil))
	must(t, s.Symlink(link, stage, true))
	must(t, denyCreation(t.Context(), s, stage, true))
	must(t, s.SetVolumeMountPoint(t.Context(), stage+`\`, volume))
	must(t, s.WriteFile(link+`\on the volume`, nil))
	held, err := s.Hold(link, existing(win.FileAddFile, 0))
	must(t, err)
	closeHandle(t, held)
	must(t, s.DeleteVolumeMountPoint(t.Context(), stage+`\`))
	for what, do := range map[string]func() error{
		"write":     func() error { return s.WriteFile(link+`\new`, nil) },
		"make":      func() error { return s.MkdirAll(link + `\new\sub`) },
		"symlink":   func() error { return s.Symlink(link+`\new`, other, true) },
		"junction":  func() error { return s.Junction(stage+`\new`, other) },
		"move":      func() error { return s.Rename(other+`\file`, link+`\new`, false) },
		"move tree": func() error { return s.Rename(other+`\directory`, stage+`\new`, false) },
		"open": func() error {
			_, err := s.Hold(link, existing(win.GenericWrite, win.FileOpenForBackup))
			return err
		},
	} {
		wantErr(t, what, do(), winerr.ErrorAccessDenied)
	}
	if entries, err := s.ReadDir(stage); err != nil || len(entries) != 0 {
		t.Errorf("entries %v, %v", entries, err)
	}
	must(t, s.Rename(stage, kubelet+`\moved`, false))
	wantErr(t, "write where it is now", s.WriteFile(kubelet+`\moved\new`, nil), winerr.ErrorAccessDenied)
	must(t, s.Remove(kubelet+`\moved`))
	must(t, s.MkdirAll(stage))
	must(t, s.WriteFile(stage+`\new`, nil))
}
