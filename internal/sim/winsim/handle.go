// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// handle is an open disk, volume, file or directory. The kernel lock guards it.
type handle struct {
	sys    *System
	object objectName // for hooks, rules and OpenHandles
	access win.Access // as asked for

	process win.ProcessID // whose it is; open makes it self if it is 0

	disk   *disks.Disk     // of a disk handle
	volume *volumes.Volume // of a volume handle
	length int64           // of the volume in bytes, as it was opened
	root   paths.Root      // of a file handle
	fs     *ntfs.FS        // of a file handle
	file   *ntfs.Handle    // of a file handle; nil once the handle is dead

	closed  bool
	tracked func()       // notes that it was closed
	dead    winerr.Errno // what the handle answers since its device went away
}

// objectName is the path by which an object was opened. What was opened below a directory
// shares the name of that: whole paths of deep trees would take memory without bounds.
type objectName struct {
	dir  *objectName // nil if name is all
	name string
}

func (o *objectName) String() string {
	if o.dir == nil {
		return o.name
	}
	length := -1
	for at := o; at != nil; at = at.dir {
		length += len(at.name) + 1
	}
	path := make([]byte, length)
	for at := o; at != nil; at = at.dir {
		length -= copy(path[length-len(at.name):], at.name)
		if at.dir != nil {
			length--
			path[length] = '\\'
		}
	}
	return string(path)
}

// wanted is the name if a hook or a rule wants to know it. Of files in deep trees it is
// long.
func (o *objectName) wanted(g *gate) string {
	if !g.looksAtObjects() {
		return ""
	}
	return o.String()
}

// handles are the open handles of the node.
type handles map[*handle]struct{}

func (hs handles) any(f func(*handle) bool) bool {
	for h := range hs {
		if h.dead == 0 && f(h) {
			return true
		}
	}
	return false
}

// kill makes the handles for which f holds answer e from now on. What they keep
// from others is given free.
func (hs handles) kill(e winerr.Errno, f func(*handle) bool) {
	for h := range hs {
		if h.dead == 0 && f(h) {
			h.release()
			h.dead = e
		}
	}
}

// inUse reports whether something of the volume, other than a handle, is open that keeps
// others from having it for themselves: any file, or the volume for reading or writing.
func (hs handles) inUse(v *volumes.Volume, besides volumes.Handle) bool {
	return hs.any(func(h *handle) bool {
		return volumes.Handle(h) != besides && h.on(v) &&
			(h.file != nil || h.generic()&(win.GenericRead|win.GenericWrite) != 0)
	})
}

// diskInUse reports whether the disk, one of its volumes or anything on them is open.
func (hs handles) diskInUse(d *disks.Disk) bool {
	return hs.any(func(h *handle) bool {
		v, ok := h.root.(*volumes.Volume)
		return h.disk == d || h.volume != nil && h.volume.Disk == d || ok && v.Disk == d
	})
}

// on reports whether the volume v, or a file on it, is open.
func (h *handle) on(v *volumes.Volume) bool { return h.volume == v || h.root == paths.Root(v) }

func (h *handle) release() {
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
	if h.volume != nil {
		h.volume.Release(h)
	}
}

// open enters a new handle.
func (s *System) open(h handle) *handle {
	h.sys, h.tracked = s, s.track.Track(h.object.name)
	if h.process == 0 {
		h.process = self
	}
	s.handles[&h] = struct{}{}
	return &h
}

// call runs one call on the handle.
func (h *handle) call(ctx context.Context, name string, f func() error) error {
	return h.sys.call(ctx, Call{name, h.object.wanted(&h.sys.gate)}, func() error {
		if err := h.alive(); err != nil {
			return err
		}
		return f()
	})
}

// askOf is [handle.call] of a call that has an answer.
func askOf[T any](ctx context.Context, h *handle, name string, f func() (T, error)) (answer T, err error) {
	err = h.call(ctx, name, func() error {
		answer, err = f()
		return err
	})
	return answer, err
}

func (h *handle) alive() error {
	switch {
	case h.closed:
		return winerr.ErrorInvalidHandle
	case h.dead != 0:
		return h.dead
	}
	return nil
}

// Need checks the access that the handle was opened with, as the I/O manager does
// before a driver sees the call.
func (h *handle) Need(a win.Access) error {
	if h.generic()&a != a {
		return winerr.ErrorAccessDenied
	}
	return nil
}

// generic is the access of the handle; FILE_READ_DATA and FILE_WRITE_DATA count as
// the generic rights that contain them.
func (h *handle) generic() win.Access {
	a := h.access
	if a&win.FileListDirectory != 0 {
		a |= win.GenericRead
	}
	if a&win.FileAddFile != 0 {
		a |= win.GenericWrite
	}
	return a
}

// Close implements [win.Device] and [win.File].
func (h *handle) Close() error {
	h.sys.mu.Lock()
	defer h.sys.mu.Unlock()
	if h.closed {
		return winerr.ErrorInvalidHandle
	}
	h.close()
	if h.sys.closed {
		return nil
	}
	return h.sys.commit() // a name may have gone with it
}

func (h *handle) close() {
	h.release()
	h.closed = true
	h.tracked()
	delete(h.sys.handles, h)
}

// OpenHandles lists what is open, sorted: an operation must leave nothing behind.
func (s *System) OpenHandles() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []string
	for h := range s.handles {
		objects = append(objects, h.object.String())
	}
	slices.Sort(objects)
	return objects
}
