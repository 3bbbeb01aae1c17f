// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import "github.com/csi-proxy/csi-proxy/internal/win"

// errorNotLocked is ERROR_NOT_LOCKED: the volume isn't locked by the handle.
const errorNotLocked win.Errno = 158

// errorVolumeDismounted is what STATUS_VOLUME_DISMOUNTED becomes.
const errorVolumeDismounted = win.ErrorNotReady

// admits reports whether the volume can be opened. Windows hands an open for control codes
// only to the driver below the file system, which knows of no lock.
func (v *volume) admits(access win.Access) error {
	if v.lock != nil && access != win.AccessNone {
		return win.ErrorAccessDenied
	}
	return nil
}

// lockVolume is FSCTL_LOCK_VOLUME. A handle to the volume itself, for reading or writing,
// keeps others from locking it, as open files do; and whoever has the lock can't have it
// twice.
func (h *handle) lockVolume() error {
	v := h.volume
	switch err := h.need(win.GenericRead | win.GenericWrite); {
	case err != nil:
		return err
	case v.disk.System, v.Locked:
		return win.ErrorAccessDenied
	case v.Offline:
		return win.ErrorNotReady
	case v.lock != nil, h.sys.inUseBesides(v, h):
		return win.ErrorAccessDenied
	}
	if t, _, err := v.tree(); err == nil {
		t.fs.Flush()
	}
	v.lock = h
	return nil
}

func (h *handle) unlockVolume() error {
	if h.volume.lock != h {
		return errorNotLocked
	}
	h.volume.lock = nil
	return nil
}

// dismountVolume is FSCTL_DISMOUNT_VOLUME. What was written is on the volume. Its files
// can't be used, by handles of before nor by new ones, until the handle that has dismounted
// the volume is closed; then the next use mounts it.
//
// Guess: to dismount Windows' own volume gives error 5.
func (h *handle) dismountVolume() error {
	v := h.volume
	switch err := h.need(win.GenericRead | win.GenericWrite); {
	case err != nil:
		return err
	case v.disk.System:
		return win.ErrorAccessDenied
	case v.dismounted != nil:
		return errorVolumeDismounted
	}
	if t, _, err := v.content(); err == nil {
		t.fs.Flush()
	}
	h.sys.handles.kill(errorVolumeDismounted, func(other *handle) bool { return other.on(v) && other.file != nil })
	v.dismounted = h
	return nil
}

// isDirty is FSCTL_IS_VOLUME_DIRTY.
func (h *handle) isDirty(out []byte) (int, error) {
	if err := h.need(win.GenericRead); err != nil {
		return 0, err
	}
	t, _, err := h.volume.content()
	if err != nil {
		return 0, fsctlError(err)
	}
	answer := win.EncodeVolumeIsDirty(t.Dirty)
	if len(out) < len(answer) {
		return 0, win.ErrorInvalidParameter
	}
	return copy(out, answer), nil
}
