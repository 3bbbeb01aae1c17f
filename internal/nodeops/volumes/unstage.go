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
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
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

// UnmountUnused is Unmount while the volume is locked, so that nobody can begin to use it. If
// somebody uses it already, IsInUse is true of the error, and the caller decides how long to
// wait. With force, it isn't locked: what is open on it breaks.
func (v *Volumes) UnmountUnused(ctx context.Context, right *use.Volume, path pathpolicy.Path, force bool) error {
	if force {
		return v.Unmount(ctx, right, path, func(ctx context.Context) error { return v.flush(ctx, right.ID) })
	}
	h, err := v.lock(ctx, right.ID)
	if err != nil {
		return err
	}
	locked := true
	unlock := func() {
		if locked {
			h.Close()
		}
		locked = false
	}
	defer unlock()
	flush := func(ctx context.Context) error {
		// It was written out before, and by the lock. Whether a locked volume takes this call
		// isn't documented.
		if err := flushHandle(ctx, h); err != nil {
			v.options.Logger.Warn("a volume was written out before it was locked, but can't be since", "volume", right.ID, "err",
				err)
		}
		return nil
	}
	return v.unmount(ctx, right, path, flush, func(ctx context.Context, at *pathpolicy.File) error {
		err := at.Unmount(ctx)
		if !mayBeOfLock(err) {
			return err
		}
		unlock()
		return v.unmountUnlocked(ctx, right.ID, at)
	})
}

// mayBeOfLock reports whether err, of the mount manager, may say that it can't take away the
// mount point of a volume that is locked. Whether that is so isn't documented.
func mayBeOfLock(err error) bool {
	return win.IsAny(err, win.ErrorAccessDenied, win.ErrorSharingViolation, win.ErrorNotReady)
}

// unmountUnlocked unmounts a volume that isn't locked, and finds out by a lock whether
// somebody has begun to use it meanwhile. If so, it is mounted again.
func (v *Volumes) unmountUnlocked(ctx context.Context, id volume.ID, at *pathpolicy.File) error {
	if err := at.Unmount(ctx); err != nil {
		return err
	}
	inside := context.WithoutCancel(ctx)
	h, err := v.lock(inside, id)
	if err == nil {
		return h.Close()
	}
	if win.IsGone(err) {
		return err
	}
	why := "whether it came into use while it was unmounted can't be found out; try again"
	if used := (inUse{}); errors.As(err, &used) {
		err = used.error // the caller needn't wait: this was changed, and changed back
		why = "it came into use while it was unmounted" + v.users(inside, id) + "; end that use, or force the unmount"
	}
	after := "it stays mounted, since "
	mountErr := at.Mount(inside, string(id))
	if now, lookErr := mountedAt(inside, at); lookErr != nil || !now.Equal(id) {
		err = errors.Join(err, mountErr, lookErr)
		after = "it is unmounted and must be staged again, since Windows doesn't mount it again, and "
	}
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Object: "volume " + string(id), Detail: after + why,
		Err: err}
}

// lock opens a volume, writes it out and locks it. IsInUse is true of the error if somebody
// uses it.
func (v *Volumes) lock(ctx context.Context, id volume.ID) (device.Handle, error) {
	h, err := v.open(ctx, id, win.GenericRead|win.GenericWrite)
	if err != nil {
		return h, whileInUse(err)
	}
	locked := false
	defer func() {
		if !locked {
			h.Close()
		}
	}()
	if err := flushHandle(ctx, h); err != nil {
		return h, err
	}
	if err := h.LockVolume(ctx); err != nil {
		return h, whileInUse(err)
	}
	locked = true
	return h, nil
}

// inUse is the error of a volume that can't be locked since somebody has it, or something on
// it, open.
type inUse struct{ error }

func (e inUse) Unwrap() error { return e.error }

// whileInUse returns the error of opening a volume or of locking it, as inUse if it says so.
func whileInUse(err error) error {
	if win.IsAny(err, win.ErrorAccessDenied, win.ErrorSharingViolation) {
		return inUse{err}
	}
	return err
}

// IsInUse reports whether err, of UnmountUnused, says that somebody uses the volume, so that
// nothing was changed. It may be for a moment: virus scanners do.
func IsInUse(err error) bool {
	is := errors.As(err, new(inUse))
	return is
}

// InUse is the error of a volume that stays in use: csiproxy.ErrFailedPrecondition, with those
// who use it as far as Windows tells.
func (v *Volumes) InUse(ctx context.Context, id volume.ID, err error) error {
	return &csiproxy.Error{
		Kind: csiproxy.ErrFailedPrecondition, Object: "volume " + string(id), Err: err,
		Detail: "it is in use" + v.users(ctx, id) + "; end that use, or force the unmount",
	}
}

// users says which processes use a volume, in words that complete "it is in use"; "" if
// Windows doesn't tell.
func (v *Volumes) users(ctx context.Context, id volume.ID) string {
	h, err := v.open(ctx, id, win.GenericRead)
	if err != nil {
		return ""
	}
	defer h.Close()
	ids, err := h.ProcessIDs(ctx)
	if err != nil {
		v.options.Logger.Debug("Windows doesn't tell who uses a volume", "volume", id, "err", err)
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
