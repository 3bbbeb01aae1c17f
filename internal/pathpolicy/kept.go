// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// keepFor is how long an allowed directory stays open after it was opened, however often
// it is used. If the administrator replaces the directory, Exists answers from the old one
// for at most that long.
const keepFor = time.Second

// KeepDirectories has Exists leave an allowed directory open for the calls that come within
// the next second, until stop is called. Without it, Exists opens the directory again in
// each call. All calls of Exists must be on one System; stop closes what is open there.
//
// The directory is open for its attributes only, so nobody's open, rename or deletion of it
// meets a sharing violation. Windows may keep the directories above it from being renamed,
// and its volume from being locked, while it is open.
//
// Not proven on Windows: that it opens files relative to a directory that is open for its
// attributes only. If it refuses, calls are answered all the same, and take more opens.
func (p *Policy) KeepDirectories() (stop func() error) {
	p.kept.mu.Lock()
	defer p.kept.mu.Unlock()
	p.kept.on = true
	return p.kept.close
}

// keptDirectories are the allowed directories that are open between calls.
type keptDirectories struct {
	mu   sync.Mutex // guards all below; not held during calls to Windows
	on   bool
	dirs map[string]*keptDirectory // by their paths
}

type keptDirectory struct {
	handle win.File
	users  int // calls that use it, and one while it is in dirs
}

// use returns the directory at path if it is open; release must follow.
func (k *keptDirectories) use(path string) *keptDirectory {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.dirs[path]
	if d != nil {
		d.users++
	}
	return d
}

// release closes d if nobody uses it and it isn't kept any more.
func (k *keptDirectories) release(d *keptDirectory) error {
	k.mu.Lock()
	d.users--
	last := d.users == 0
	k.mu.Unlock()
	if !last {
		return nil
	}
	return d.handle.Close()
}

// wants reports whether the directory at path is to be kept and isn't.
func (k *keptDirectories) wants(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.on && k.dirs[path] == nil
}

// keep takes over the handle of the directory at path.
func (k *keptDirectories) keep(path string, handle win.File) error {
	k.mu.Lock()
	if !k.on || k.dirs[path] != nil { // meanwhile
		k.mu.Unlock()
		return handle.Close()
	}
	defer k.mu.Unlock()
	if k.dirs == nil {
		k.dirs = make(map[string]*keptDirectory)
	}
	d := &keptDirectory{handle: handle, users: 1}
	k.dirs[path] = d
	time.AfterFunc(keepFor, func() {
		_ = k.forget(path, d) // nobody is there to be told, and nothing was written
	})
	return nil
}

// forget stops keeping d.
func (k *keptDirectories) forget(path string, d *keptDirectory) error {
	k.mu.Lock()
	if k.dirs[path] != d { // another call was quicker, and may have kept a new one
		k.mu.Unlock()
		return nil
	}
	delete(k.dirs, path)
	k.mu.Unlock()
	return k.release(d)
}

func (k *keptDirectories) close() error {
	k.mu.Lock()
	k.on = false
	dirs := k.dirs
	k.dirs = nil
	k.mu.Unlock()
	var errs []error
	for _, d := range dirs {
		errs = append(errs, k.release(d))
	}
	return errors.Join(errs...)
}

// fromKept calls f with the allowed directory start if it is kept, and reports whether
// what f found out counts. It does if f succeeds or meets a link, which the caller follows
// from a directory that it opens itself. Any other error may be because the directory has
// been replaced or its volume has gone: then it isn't kept any more.
func (w *walk) fromKept(start Entry, f func(dir *File) error) (counts bool, err error) {
	k, path := w.policy.kept, start.Path()
	d := k.use(path)
	if d == nil {
		return false, nil
	}
	defer func() { err = errors.Join(err, k.release(d)) }()
	err = f(&File{entry: start, handle: d.handle})
	if err == nil || errors.Is(err, win.ErrorReparsePointEncountered) {
		return true, err
	}
	return false, k.forget(path, d)
}

// leaveOpen leaves the allowed directory start open for later calls. The root of a mounted
// volume is left alone: the volume may have to be taken offline.
func (w *walk) leaveOpen(ctx context.Context, start Entry) error {
	k, path := w.policy.kept, start.Path()
	if start.start.volume != "" || !k.wants(path) {
		return nil
	}
	dir, err := w.sys.OpenFile(ctx, path, win.OpenOptions{
		Access:      win.FileReadAttributes | win.Synchronize,
		Share:       win.ShareRead | win.ShareWrite | win.ShareDelete,
		Disposition: win.FileOpen,
		Options:     win.FileDirectoryFile | win.FileOpenForBackup,
	})
	if err != nil {
		return nil // this call has its answer, and the next one opens the directory itself
	}
	return k.keep(path, dir)
}
