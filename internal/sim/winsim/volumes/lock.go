// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// errorNotLocked is ERROR_NOT_LOCKED: the volume isn't locked by the handle.
const errorNotLocked winerr.Errno = 158

// errorVolumeDismounted is what STATUS_VOLUME_DISMOUNTED becomes.
const errorVolumeDismounted = winerr.ErrorNotReady

// Admits reports whether the volume can be opened. Windows hands an open for control codes
// only to the driver below the file system, which knows of no lock.
func (v *Volume) Admits(access win.Access) error {
	if v.lock != nil && access != win.AccessNone {
		return winerr.ErrorAccessDenied
	}
	return nil
}

// IsMountedReadOnly reports whether the volume has a file system that isn't written to.
func (v *Volume) IsMountedReadOnly() bool {
	_, _, err := v.tree()
	return err == nil && !v.Writable()
}

// HasLocked implements [disks.Volumes].
func (m *Manager) HasLocked(d *disks.Disk) bool {
	_, ok := m.Find(func(v *Volume) bool { return v.Disk == d && v.lock != nil })
	return ok
}

// lock is FSCTL_LOCK_VOLUME. A handle to the volume itself, for reading or writing,
// keeps others from locking it, as open files do; and whoever has the lock can't have it
// twice. The right to write isn't needed: neither the control code nor Microsoft's driver for FAT
// asks for it.
//
// Source: https://github.com/microsoft/Windows-driver-samples/blob/26a27df80772dbcfd69e6449b671d5c29eb5aedc/filesys/fastfat/fsctrl.c#L3259
func (m *Manager) lock(v *Volume, h Handle) error {
	switch err := h.Need(win.GenericRead); {
	case err != nil:
		return err
	case v.Disk.System, v.Locked:
		return winerr.ErrorAccessDenied
	case v.Offline || v.comesOnline:
		return winerr.ErrorNotReady
	case v.lock != nil, m.node.InUse(v, h):
		return winerr.ErrorAccessDenied
	}
	if t, _, err := v.tree(); err == nil {
		t.fs.Flush()
	}
	v.lock = h
	return nil
}

func (v *Volume) unlock(h Handle) error {
	if v.lock != h {
		return errorNotLocked
	}
	v.lock = nil
	return nil
}

// dismount is FSCTL_DISMOUNT_VOLUME. What was written is on the volume. Its files
// can't be used, by handles of before nor by new ones, until the handle that has dismounted
// the volume is closed; then the next use mounts it.
//
// Guess: to dismount Windows' own volume gives error 5.
func (m *Manager) dismount(v *Volume, h Handle) error {
	switch err := h.Need(win.GenericRead); {
	case err != nil:
		return err
	case v.Disk.System:
		return winerr.ErrorAccessDenied
	case v.dismounted != nil:
		return errorVolumeDismounted
	}
	if t, _, err := v.content(); err == nil {
		t.fs.Flush()
	}
	m.node.Kill(v, true, errorVolumeDismounted)
	v.dismounted = h
	return nil
}

// Release ends what a handle that is closed has locked and dismounted.
func (v *Volume) Release(h Handle) {
	if v.lock == h {
		v.lock = nil
	}
	if v.dismounted == h {
		v.dismounted = nil
	}
}

// isDirty is FSCTL_IS_VOLUME_DIRTY.
func (v *Volume) isDirty(h Handle, out []byte) (int, error) {
	if err := h.Need(win.GenericRead); err != nil {
		return 0, err
	}
	t, _, err := v.content()
	if err != nil {
		return 0, fsctlError(err)
	}
	answer := win.EncodeVolumeIsDirty(t.Dirty)
	if len(out) < len(answer) {
		return 0, winerr.ErrorInvalidParameter
	}
	return copy(out, answer), nil
}
