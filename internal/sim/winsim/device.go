// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// OpenDevice is CreateFileW of a disk or volume that exists.
func (s *System) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	object := path
	s.mu.Lock()
	if d, ok := s.disks.ByPath(path); ok {
		object = d.Object()
	}
	s.mu.Unlock()
	return ask(ctx, s, Call{win.CallOpen, object}, func() (win.Device, error) {
		if d, ok := s.disks.ByPath(path); ok {
			h := handle{object: objectName{name: d.Object()}, disk: d, access: access}
			return &device{s.open(h)}, nil
		}
		v, err := s.volumes.ByPath(path)
		if err == nil {
			err = v.Admits(access)
		}
		if err == nil && s.settings.WriteProtectedOpen && access&win.GenericWrite != 0 && v.IsMountedReadOnly() {
			err = winerr.ErrorWriteProtect
		}
		if err != nil {
			return nil, err
		}
		name := path
		if v.Named() {
			name = v.Device()
		}
		h := handle{object: objectName{name: name}, volume: v, length: v.Length, access: access}
		return &device{s.open(h)}, nil
	})
}

// device is an open disk or volume.
type device struct {
	*handle
}

var _ win.Device = (*device)(nil)

// Control implements [win.Device].
func (d *device) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (n int, err error) {
	areReady := true
	err = d.call(ctx, controlName(code), func() error {
		if err := d.Need(code.RequiredAccess()); err != nil {
			return err
		}
		if d.stale(code) {
			return winerr.ErrorInvalidParameter
		}
		if code == win.IoctlDiskAreVolumesReady && d.disk != nil {
			areReady = d.sys.volumes.AreReady(d.disk)
			return nil
		}
		if d.disk != nil {
			n, err = d.sys.disks.Control(d.disk, code, in, out)
		} else {
			n, err = d.sys.volumes.Control(d.volume, d.handle, code, in, out)
		}
		return err
	})
	const interval = time.Millisecond
	for err == nil && !areReady {
		if err = win.Sleep(ctx, interval); err == nil {
			err = d.sys.control(func() error {
				areReady = d.sys.volumes.AreReady(d.disk)
				return d.alive()
			})
		}
	}
	return n, err
}

// stale reports whether a control code wants a handle that was opened later.
func (d *device) stale(code win.IoctlCode) bool {
	return d.disk == nil && code == win.FsctlExtendVolume && d.sys.settings.FreshHandleToExtend && d.length != d.volume.Length
}

// ReadAt implements [win.Device].
func (d *device) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	err = d.call(ctx, win.CallRead, func() error {
		if err := d.Need(win.GenericRead); err != nil {
			return err
		}
		on, start, size := d.disk, int64(0), int64(0)
		switch {
		case on != nil:
			size = on.Seen
		case d.volume.Offline:
			return winerr.ErrorNotReady
		case d.volume.Locked:
			return winerr.FVELockedVolume
		default:
			on, start, size = d.volume.Disk, d.volume.Offset, d.volume.Length
		}
		if off < 0 || off%on.SectorSize() != 0 || int64(len(p))%on.SectorSize() != 0 {
			return winerr.ErrorInvalidParameter
		}
		n = int(max(0, min(int64(len(p)), size-off)))
		if _, err := on.Image.ReadAt(p[:n], start+off); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Flush implements [win.Device].
func (d *device) Flush(ctx context.Context) error {
	return d.call(ctx, win.CallFlush, func() error {
		if err := d.Need(win.GenericWrite); err != nil {
			return err
		}
		if d.disk != nil { // nothing is kept back between a disk and its image
			return nil
		}
		return d.volume.Flush()
	})
}
