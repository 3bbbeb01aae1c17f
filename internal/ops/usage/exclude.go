// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Timeout and interval of attempts while another process holds the lock of an object.
const (
	excludeTimeout  = 10 * time.Second
	excludeInterval = 50 * time.Millisecond
)

// lockFile is the file in the Windows directory for locks between processes. Each byte is a lock.
const lockFile = `\csi-proxy.lock`

// byteOf returns the byte of the lock file for an object. Each kind has its own range, and objects
// with the same byte are of the same kind. Operations lock at most one object of each kind, and
// therefore never wait for themselves.
func byteOf(k kind, name string) int64 {
	hash := sha256.Sum256([]byte(name))
	const kindBits = 4
	return int64(k)<<(63-kindBits) | int64(binary.BigEndian.Uint64(hash[:])>>(1+kindBits))
}

// lockedBytes are the bytes of the lock file locked by this process. Calls of several drivers share
// a byte: drivers do not exclude each other.
type lockedBytes struct {
	mu   sync.Mutex
	held map[int64]*lockedByte
}

// lockedByte is a byte with its users in this process. The byte is locked while file is open.
type lockedByte struct {
	file  win.File
	users int
}

// join adds a user of a byte if this process has the byte locked.
func (b *lockedBytes) join(offset int64) (isLocked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.held[offset]
	if held != nil {
		held.users++
	}
	return held != nil
}

// add adds a byte, locked while file is open, with one user.
func (b *lockedBytes) add(offset int64, file win.File) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[offset] = &lockedByte{file, 1}
}

// leave removes a user of a byte, and unlocks the byte after the last user.
func (b *lockedBytes) leave(offset int64) {
	b.mu.Lock()
	held := b.held[offset]
	held.users--
	isLast := held.users == 0
	if isLast {
		delete(b.held, offset)
	}
	b.mu.Unlock()
	if isLast {
		held.file.Close()
	}
}

// exclude locks an object against other processes that use this package, until include is called.
// An example is a driver with the library, beside the daemon. The lock is needed because Windows
// has no call to check and change an object in one step.
//
// The lock is a locked byte of a file. The lock takes no disk space, and Windows removes it at the
// end of the process, even after a crash. Only SYSTEM and Administrators can open the file and hold
// the byte.
//
// If another process holds the byte for longer than ten seconds, the error is
// csiproxy.ErrUnavailable.
func (l *Locker) exclude(ctx context.Context, k kind, offset int64) (include func(), _ error) {
	file, err := l.openLockFile(ctx)
	if err != nil {
		return nil, err
	}
	bytes, isHeld := &l.options.Shared.bytes, false
	defer func() { // even after a panic: the daemon survives panics
		if !isHeld {
			file.Close()
		}
	}()
	const lockedByOther = winerr.ErrorLockViolation
	err = operation.Retry(ctx, excludeTimeout, excludeInterval, []winerr.Errno{lockedByOther}, func() error {
		err := file.LockByte(ctx, offset)
		if err == nil {
			isHeld = true
			bytes.add(offset, file)
		}
		if errors.Is(err, lockedByOther) && bytes.join(offset) { // another driver's call has locked the byte
			return nil
		}
		return err
	})
	if errors.Is(err, lockedByOther) && ctx.Err() == nil {
		err = &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "another process of CSI Proxy is changing the " + kinds[k] + "; try again later",
		}
	}
	if err != nil {
		return nil, err
	}
	return func() { bytes.leave(offset) }, nil
}

// openLockFile opens the lock file, and creates a missing file. The owner is checked unless this
// process keeps the file open: KeepLockFile has then checked the same file.
func (l *Locker) openLockFile(ctx context.Context) (win.File, error) {
	if path := l.options.Shared.kept.Load(); path != nil {
		return l.openWith(ctx, *path, win.FileOpen)
	}
	path, err := l.lockFilePath(ctx)
	if err != nil {
		return nil, err
	}
	return l.openOwnFile(ctx, path)
}

// KeepLockFile opens the lock file, and creates a missing file. Call KeepLockFile at startup: every
// lock needs the file, and the disk may be full later. The file cannot be deleted or replaced until
// the caller closes it at the end of the process.
func (l *Locker) KeepLockFile(ctx context.Context) (io.Closer, error) {
	path, err := l.lockFilePath(ctx)
	if err != nil {
		return nil, err
	}
	file, err := l.openOwnFile(ctx, path)
	if err != nil {
		return nil, err
	}
	l.options.Shared.kept.Store(&path)
	return file, nil
}

func (l *Locker) lockFilePath(ctx context.Context) (string, error) {
	windows, err := l.sys.SystemWindowsDirectory(ctx)
	return windows + lockFile, err
}

// openOwnFile opens or creates the lock file. A file of another owner is refused.
func (l *Locker) openOwnFile(ctx context.Context, path string) (win.File, error) {
	file, err := l.openWith(ctx, path, win.FileOpen) // tried first because it needs no disk space
	if errors.Is(err, fs.ErrNotExist) {
		file, err = l.openWith(ctx, path, win.FileOpenIf)
	}
	if err != nil {
		return nil, err
	}
	private := false
	defer func() {
		if !private {
			file.Close()
		}
	}()
	if private, err = file.Private(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !private {
		return nil, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"%s is owned by, or open to, accounts other than SYSTEM and the Administrators; remove it", path)
	}
	return file, nil
}

func (l *Locker) openWith(ctx context.Context, path string, disposition win.Disposition) (win.File, error) {
	file, err := l.sys.OpenFile(ctx, path, win.OpenOptions{
		Access: win.GenericRead, Share: win.ShareRead, Disposition: disposition, Private: true,
		Options: win.FileNonDirectoryFile | win.FileOpenReparsePoint,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}
