// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Mount mounts a volume, \\?\Volume{guid}\, at the empty directory f through the mount manager.
// Whatever Mount returns, ask Link what is mounted: another call may have been quicker. Mount first
// removes Unmount's entry from the access list: whether the entry would stop the mount manager is
// undocumented.
func (f *File) Mount(ctx context.Context, volume string) error {
	if err := f.entry.walk.policy.CheckMountPath(f.entry.path()); err != nil {
		return err
	}
	if err := f.denyCreation(ctx, false); err != nil {
		return err
	}
	sys := f.entry.walk.sys
	return f.callMountManager(ctx, func(ctx context.Context, path string) error {
		err := sys.SetVolumeMountPoint(ctx, path, volume)
		if err != nil {
			err = fmt.Errorf("%s: %w", win.CallSetVolumeMountPoint, err)
		}
		return err
	})
}

// Unmount removes the mount point f through the mount manager; the directory stays. If another call
// has unmounted the volume meanwhile, Unmount succeeds. Unmount removes only the reparse point, and
// skips the mount manager, in two cases: the mount manager lacks the mount point, because its
// records are lost or the volume has left the node; or there is no room for the file needed by a
// call of the mount manager.
//
// First, Unmount adds an entry to the access list of f. The entry keeps new files and directories
// out until f is a mount point again or is deleted. A pod that writes through a stale link gets
// "access denied", and its data stay off the node's disk. If the entry also stops the mount
// manager, Unmount retries without the entry.
//
// If the node's disk is full or write-protected, Unmount continues without the entry: kubelet
// releases volumes to get room, and a full disk takes no pod's data.
func (f *File) Unmount(ctx context.Context) error {
	if err := f.entry.walk.policy.CheckMountPath(f.entry.path()); err != nil {
		return err
	}
	if err := f.tryToDenyCreation(ctx); err != nil {
		return err
	}
	err := f.unmount(ctx)
	if !errors.Is(err, winerr.ErrorAccessDenied) || errors.As(err, new(notHeld)) {
		return err
	}
	if err := f.denyCreation(ctx, false); err != nil {
		return err
	}
	if err = f.unmount(ctx); err == nil {
		f.entry.walk.policy.log.Info("a volume was unmounted only after its directory's access list no longer denied new files",
			"path", f.Path())
	}
	// The entry is added even if the unmount has failed: on a mounted volume's directory the entry
	// is harmless.
	return cmp.Or(err, f.tryToDenyCreation(context.WithoutCancel(ctx)))
}

// tryToDenyCreation adds the entry to the access list, and logs a warning if there is no room for
// it.
func (f *File) tryToDenyCreation(ctx context.Context) error {
	err := f.denyCreation(ctx, true)
	if !hasNoRoom(err) {
		return err
	}
	f.entry.walk.policy.log.Warn("pods can write to a directory after its volume is unmounted, since its access list "+
		"can't be written", "path", f.Path(), "err", err)
	return nil
}

// hasNoRoom reports whether err means a full or write-protected disk.
func hasNoRoom(err error) bool {
	return winerr.IsAny(err, winerr.ErrorDiskFull, winerr.ErrorHandleDiskFull, winerr.ErrorWriteProtect)
}

// denyCreation adds or removes the access list entry that keeps new files and directories out of
// the directory f. If the directory or its file system has no access list, denyCreation is a no-op.
func (f *File) denyCreation(ctx context.Context, deny bool) (err error) {
	if !f.entry.walk.policy.deniesCreation {
		return nil
	}
	dir, err := f.entry.Open(ctx, win.OpenOptions{Access: win.ReadControl | win.WriteDAC, Disposition: win.FileOpen})
	if err != nil {
		return err
	}
	defer dir.CloseInto(&err)
	denied, err := dir.handle.CreationDenied(ctx)
	if err != nil || denied == deny {
		return ignoreNoAccessList(err)
	}
	return ignoreNoAccessList(dir.handle.DenyCreation(ctx, deny))
}

// ignoreNoAccessList returns err, or nil if err means that a directory, or its file system, lacks
// an access list.
func ignoreNoAccessList(err error) error {
	const invalidACL winerr.Errno = 1336
	if winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported, invalidACL) {
		return nil
	}
	return err
}

// ExplainEmpty explains why a path leads to no volume, share or files: nothing is there, or a
// directory from which a volume was unmounted. Unmount's entry in the access list marks the
// directory. If the path leads to a volume, a share or files, the reason is "".
func (p *Policy) ExplainEmpty(ctx context.Context, sys System, path Path) (reason string, err error) {
	w := p.Walk(sys)
	defer w.CloseInto(&err)
	end, r, err := w.resolve(ctx, path)
	wasMountPoint := false
	if err == nil && r.Kind == PlainDirectory {
		wasMountPoint, err = w.deniesCreation(ctx, end)
	}
	if Missing(err) || err == nil && r.Kind == Nothing {
		return "it leads to nothing", nil
	}
	if wasMountPoint {
		reason = "it leads to a directory whose volume was unmounted"
	}
	return reason, err
}

// LeadsOutside reports whether err means a path leads out of the allowed directories, or through
// too many links. If Windows failed to resolve the path, the result is false.
func LeadsOutside(err error) bool {
	kind := csiproxy.KindOf(err)
	_, isWindows := csiproxy.WindowsErrorOf(err)
	return !isWindows && (kind == csiproxy.ErrPermissionDenied || kind == csiproxy.ErrFailedPrecondition)
}

// deniesCreation reports whether Unmount has marked the directory at path.
func (w *Walk) deniesCreation(ctx context.Context, path Path) (denied bool, err error) {
	e, err := w.Reach(ctx, path)
	if err != nil {
		return false, err
	}
	f, err := e.Open(ctx, win.OpenOptions{Access: win.ReadControl, Disposition: win.FileOpen})
	if err != nil {
		return false, err
	}
	defer f.CloseInto(&err)
	denied, err = f.handle.CreationDenied(ctx)
	return denied, ignoreNoAccessList(err)
}

// unmount is Unmount without the access list.
func (f *File) unmount(ctx context.Context) error {
	sys := f.entry.walk.sys
	err := error(winerr.ErrorPathNotFound) // if the path is too long for any call
	if win.NameLength(f.Path())+len(`\\?\`)+len(`\`) <= MaxLongPath {
		err = f.callMountManager(ctx, sys.DeleteVolumeMountPoint)
	}
	unknown := errors.Is(err, fs.ErrNotExist) || errors.Is(err, winerr.ErrorInvalidParameter) ||
		errors.Is(err, winerr.ErrorNotAReparsePoint)
	unguarded := errors.As(err, new(notHeld)) && hasNoRoom(err)
	if !unknown && !unguarded {
		return err
	}
	return f.entry.removeMountPoint(ctx)
}

// removeMountPoint removes the reparse point of a mount point without the mount manager. If the
// reparse point is already gone, removeMountPoint succeeds.
func (e Entry) removeMountPoint(ctx context.Context) (err error) {
	f, err := e.Open(ctx, win.OpenOptions{Access: win.FileWriteAttributes, Disposition: win.FileOpen})
	if Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.CloseInto(&err)
	link, err := f.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return nil
	}
	if err != nil || !link.IsMountPoint() {
		return err
	}
	// The input is a REPARSE_DATA_BUFFER without data.
	header := append(binary.LittleEndian.AppendUint32(nil, uint32(win.TagMountPoint)), 0, 0, 0, 0)
	_, err = f.handle.Control(ctx, win.FsctlDeleteReparsePoint, header, nil)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) { // another call was quicker
		return nil
	}
	return err
}

// callMountManager calls the mount manager, which takes a path and no handle. callMountManager
// waits for the end of the call even if ctx ends: the call must end while the path is held.
//
// Undocumented: how Windows opens the directory, and the error for a held directory, 32 or 5. If
// the call fails with either error while f is open, f is closed, the call is repeated, and f is
// opened again; meanwhile other processes may change f. During the repetition the parent directory
// must not become a link. Only an empty directory can become one, and callMountManager creates a
// file in the parent directory. Windows deletes the file with its handle.
func (f *File) callMountManager(ctx context.Context, call func(ctx context.Context, path string) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !f.entry.walk.holdsAll {
		panic("pathpolicy: the mount manager is called for a path that isn't held by Hold")
	}
	inside := context.WithoutCancel(ctx)
	path := f.Path() + `\`
	err = call(inside, path)
	if !winerr.IsAny(err, winerr.ErrorSharingViolation, winerr.ErrorAccessDenied) || f.entry.dir == nil {
		return err
	}
	guard, guardErr := f.entry.dir.Entry(".csi-proxy-"+winid.NewGUID().String()).Open(ctx, win.OpenOptions{
		Access:      win.Delete,
		Disposition: win.FileCreate,
		Options:     win.FileNonDirectoryFile | win.FileDeleteOnClose,
	})
	if guardErr != nil {
		return notHeld{&csiproxy.Error{Err: guardErr,
			Detail: "making a file that keeps the directory from becoming a link while Windows mounts there"}}
	}
	defer guard.CloseInto(&err)
	w := f.entry.walk
	return f.callClosed(ctx, func() error {
		return w.retry(ctx, func() error { return call(inside, path) })
	})
}

// notHeld is the error of a mount manager call that must not be repeated: creating the file beside
// the directory failed, or opening the directory again failed.
type notHeld struct{ error }

func (e notHeld) Unwrap() error { return e.error }

// MountMayBeRepeated reports whether File.Mount may be called again after failing with err.
func MountMayBeRepeated(err error) bool { return !errors.As(err, new(notHeld)) }

// callClosed closes f, runs call, and opens f's entry again as f.
func (f *File) callClosed(ctx context.Context, call func() error) error {
	if err := f.Close(); err != nil {
		return err
	}
	err := call()
	again, openErr := f.entry.Open(context.WithoutCancel(ctx), Directory(win.FileOpen))
	if openErr != nil {
		return notHeld{errors.Join(openErr, err)}
	}
	// Open has appended a new File to the walk's files. The caller uses f, and f replaces the new
	// File.
	f.handle = again.handle
	w := f.entry.walk
	w.files[len(w.files)-1] = f
	return err
}
