// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// How long, and how often, to try while another process has the same object locked.
const (
	excludeTimeout  = 10 * time.Second
	excludeInterval = 50 * time.Millisecond
)

// lockFile is the file in the Windows directory whose bytes are locked against other processes.
const lockFile = `\csi-proxy.lock`

// byteOf is the byte of the lock file that stands for an object. Each kind has a range of its own, so
// two objects with the same byte are of one kind. No operation locks two objects of one kind, so none
// waits for itself.
func byteOf(k kind, name string) int64 {
	hash := sha256.Sum256([]byte(name))
	const kindBits = 4
	return int64(k)<<(63-kindBits) | int64(binary.BigEndian.Uint64(hash[:])>>(1+kindBits))
}

// exclude keeps other processes that lock with this package from an object until the file is closed. Such
// a process is a driver with the library, beside the daemon. The lock is needed because Windows has no
// call that checks an object and changes it in one step.
//
// The lock is a locked byte of a file. It takes no space on the disk, and Windows removes it when the
// process ends, in whatever way. Only SYSTEM and Administrators can open the file, so nobody else can
// hold the byte.
//
// If another process holds the byte for longer than ten seconds, the error is csiproxy.ErrUnavailable.
// If there is no room to make the file, it is nil for [ToRelease].
func (l *Locker) exclude(ctx context.Context, k kind, offset int64, purpose Purpose) (win.File, error) {
	file, err := l.openLockFile(ctx)
	if purpose == ToRelease && winerr.IsAny(err, winerr.ErrorDiskFull, winerr.ErrorHandleDiskFull, winerr.ErrorWriteProtect) {
		l.options.Logger.Warn("what is released isn't kept from other processes of CSI Proxy: the lock file can't be made", "err", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	locked := false
	defer func() { // also after a panic, which the daemon survives
		if !locked {
			file.Close()
		}
	}()
	err = operation.Retry(ctx, excludeTimeout, excludeInterval, isLocked, func() error { return file.LockByte(ctx, offset) })
	if isLocked(err) && ctx.Err() == nil {
		err = &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "another process of CSI Proxy is changing the " + kinds[k] + "; try again later",
		}
	}
	locked = err == nil
	return file, err
}

// isLocked reports whether err says that another process has the byte locked.
func isLocked(err error) bool { return errors.Is(err, winerr.ErrorLockViolation) }

// openLockFile opens the lock file, and makes it if it is missing.
func (l *Locker) openLockFile(ctx context.Context) (win.File, error) {
	windows, err := l.sys.SystemWindowsDirectory(ctx)
	if err != nil {
		return nil, err
	}
	path := windows + lockFile
	open := func(disposition win.Disposition) (win.File, error) {
		return l.sys.OpenFile(ctx, path, win.OpenOptions{
			Access: win.GenericRead, Share: win.ShareRead, Disposition: disposition, Private: true,
			Options: win.FileNonDirectoryFile | win.FileOpenReparsePoint,
		})
	}
	file, err := open(win.FileOpen) // which needs no space, so it is tried first
	if errors.Is(err, fs.ErrNotExist) {
		file, err = open(win.FileOpenIf)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	private := false
	defer func() {
		if !private {
			file.Close()
		}
	}()
	switch private, err = file.Private(ctx); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case !private:
		return nil, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"%s belongs to others than SYSTEM and the Administrators, or lets others open it; remove it", path)
	}
	return file, nil
}

// MakeLockFile makes the lock file if it is missing. It is called early: later the disk may be full.
func (l *Locker) MakeLockFile(ctx context.Context) error {
	file, err := l.openLockFile(ctx)
	if err != nil {
		return err
	}
	return file.Close()
}
