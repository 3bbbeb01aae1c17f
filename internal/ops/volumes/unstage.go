// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/use"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/volume"
)

// DiskBytes returns the size of the disk that a volume lies on, as Windows knows it.
func (v *Volumes) DiskBytes(ctx context.Context, id volume.ID) (int64, error) {
	extent, err := use.Extent(ctx, v.sys, id)
	if err != nil {
		return 0, err
	}
	h, err := opendisk.Open(ctx, v.sys, extent.DiskNumber, win.AccessNone)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	if err := v.verify(ctx, id, h, extent); err != nil {
		return 0, err
	}
	geometry, err := h.Geometry(ctx)
	return geometry.DiskSize, err
}

// UnmountUnused is Unmount while the volume is locked, so that nobody can begin to use it. It returns
// the handle that has the lock; the caller closes it. If somebody uses the volume already, it returns
// an error of which IsInUse is true, and the caller decides how long to retry. With force, the volume
// isn't locked, files that are open on it break, and the handle has no Device.
func (v *Volumes) UnmountUnused(ctx context.Context, right *use.Volume, path pathpolicy.Path,
	force bool) (locked device.Handle, _ error) {
	if force {
		return locked, v.Unmount(ctx, right, path, func() error { return v.flush(ctx, right.ID) })
	}
	h, err := v.Lock(ctx, right.ID)
	if err != nil {
		return locked, err
	}
	defer func() {
		if locked.Device == nil {
			h.Close() // releases the lock; if h is closed already, it does nothing
		}
	}()
	err = v.whereMounted(ctx, right.ID, path, func(directory *pathpolicy.File) error {
		err := directory.Unmount(ctx) // Lock has written the volume out
		if !mayBeOfLock(err) {
			return err
		}
		h.Close()
		again, err := v.unmountUnlocked(ctx, right.ID, directory)
		if err == nil {
			h = again
		}
		return err
	})
	if err != nil {
		return locked, err
	}
	return h, nil
}

// mayBeOfLock reports whether err, of the mount manager, may mean that it can't remove the mount
// point of a locked volume. Whether it can isn't documented.
func mayBeOfLock(err error) bool {
	return win.IsAny(err, win.ErrorAccessDenied, win.ErrorSharingViolation, win.ErrorNotReady)
}

// unmountUnlocked unmounts a volume that isn't locked, and locks it after that. If the lock fails
// because somebody has begun to use the volume meanwhile, it mounts the volume again.
func (v *Volumes) unmountUnlocked(ctx context.Context, id volume.ID, at *pathpolicy.File) (device.Handle, error) {
	if err := at.Unmount(ctx); err != nil {
		return device.Handle{}, err
	}
	inside := context.WithoutCancel(ctx)
	h, err := v.Lock(inside, id)
	if err == nil || win.IsGone(err) {
		return h, err
	}
	why := "whether it came into use while it was unmounted can't be found out; try again"
	if used := (inUse{}); errors.As(err, &used) {
		err = used.error // not IsInUse, which says that nothing was changed: a change was made and undone
		why = "it came into use while it was unmounted" + v.users(inside, id) + "; end that use, or force the unmount"
	}
	after := "it stays mounted, since "
	mountErr := at.Mount(inside, string(id))
	if now, queryErr := mountedAt(inside, at); queryErr != nil || !now.Equal(id) {
		err = errors.Join(err, mountErr, queryErr)
		after = "it is unmounted and must be staged again, since Windows doesn't mount it again, and "
	}
	return h, &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Object: "volume " + string(id),
		Detail: after + why, Err: err}
}

// Lock opens a volume, flushes it and locks it until the handle is closed. If somebody uses the volume,
// IsInUse is true of the error.
//
// A volume on read-only media can't be flushed, and Windows may refuse to open it for writing. Then it
// is opened for reading: FSCTL_LOCK_VOLUME doesn't need more. Others are opened for writing as well,
// as all public code does that locks a volume.
func (v *Volumes) Lock(ctx context.Context, id volume.ID) (device.Handle, error) {
	h, err := v.open(ctx, id, win.GenericRead|win.GenericWrite)
	isReadOnly := errors.Is(err, win.ErrorWriteProtect)
	if isReadOnly {
		h, err = v.open(ctx, id, win.GenericRead)
	}
	if err != nil {
		return h, whileInUse(id, err)
	}
	locked := false
	defer func() {
		if !locked {
			h.Close()
		}
	}()
	if !isReadOnly {
		if err := flushHandle(ctx, h); err != nil {
			return h, err
		}
	}
	if err := h.LockVolume(ctx); err != nil {
		return h, whileInUse(id, err)
	}
	locked = true
	return h, nil
}

// inUse is the error of the volume id that can't be locked, because somebody has the volume or
// something on it open.
type inUse struct {
	error
	id volume.ID
}

func (e inUse) Unwrap() error { return e.error }

// whileInUse returns err, of opening or locking a volume, as inUse if it says that the volume is.
func whileInUse(id volume.ID, err error) error {
	if win.IsAny(err, win.ErrorAccessDenied, win.ErrorSharingViolation) {
		return inUse{err, id}
	}
	return err
}

// IsInUse reports whether err, of UnmountUnused or Lock, says that somebody uses the volume, and nothing
// was changed. The use may end after a moment, as that of virus scanners does.
func IsInUse(err error) bool {
	is := errors.As(err, new(inUse))
	return is
}

// InUse returns err, of which IsInUse is true, as the error of a volume that stays in use:
// csiproxy.ErrFailedPrecondition. It names the processes that use the volume, as far as Windows tells them.
func (v *Volumes) InUse(ctx context.Context, err error) error {
	var used inUse
	errors.As(err, &used)
	return &csiproxy.Error{
		Kind: csiproxy.ErrFailedPrecondition, Object: "volume " + string(used.id), Err: err,
		Detail: "it is in use" + v.users(ctx, used.id) + "; end that use, or force the unmount",
	}
}

// users names the processes that use a volume, in words that follow "it is in use"; "" if
// Windows doesn't tell them.
func (v *Volumes) users(ctx context.Context, id volume.ID) string {
	h, err := v.open(ctx, id, win.GenericRead)
	if err != nil {
		return ""
	}
	defer h.Close()
	ids, err := h.ProcessIDs(ctx)
	if err != nil {
		v.options.Logger.Debug("Windows doesn't say who uses a volume", "volume", id, "err", err)
		return ""
	}
	var names []string
	for _, process := range ids {
		if int(process) == os.Getpid() {
			continue
		}
		name := fmt.Sprintf("process %d", process)
		if image, err := v.sys.ProcessImage(ctx, process); err == nil {
			name += " (" + quote.Text(image) + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	const most = 10
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return " by " + strings.Join(names, ", ")
}
