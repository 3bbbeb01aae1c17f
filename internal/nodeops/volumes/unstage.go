// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
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

// UnmountUnused is Unmount while the volume is locked, so that nobody uses it. With force,
// those who use it lose it.
func (v *Volumes) UnmountUnused(ctx context.Context, right *use.Volume, path pathpolicy.Path, force bool) error {
	if force {
		return v.Unmount(ctx, right, path, func(ctx context.Context) error { return v.flush(ctx, right.ID) })
	}
	h, err := v.lock(ctx, right.ID)
	if err != nil {
		return err
	}
	defer h.Close() // which unlocks it
	return v.Unmount(ctx, right, path, func(ctx context.Context) error {
		// It was written out before, and by the lock. Whether a locked volume takes this call
		// isn't documented.
		if err := flushHandle(ctx, h); err != nil {
			v.options.Logger.Warn("a volume was written out before it was locked, but can't be since", "volume", right.ID, "err", err)
		}
		return nil
	})
}

// How long to wait for those who use a volume for a moment, as virus scanners do.
const (
	lockPatience = 2 * time.Second
	lockInterval = 100 * time.Millisecond
)

// lock opens a volume, writes it out and locks it. One that somebody uses is
// csiproxy.ErrFailedPrecondition, with those who do as far as Windows tells.
func (v *Volumes) lock(ctx context.Context, id volume.ID) (h device.Handle, err error) {
	err = operation.Retry(ctx, lockPatience, lockInterval, isInUse, func() error {
		opened, err := v.open(ctx, id, win.GenericRead|win.GenericWrite)
		if err != nil {
			return whileInUse(err)
		}
		locked := false
		defer func() {
			if !locked {
				opened.Close()
			}
		}()
		if err := flushHandle(ctx, opened); err != nil {
			return err
		}
		if err := opened.LockVolume(ctx); err != nil {
			return whileInUse(err)
		}
		h, locked = opened, true
		return nil
	})
	if isInUse(err) && ctx.Err() == nil {
		err = &csiproxy.Error{
			Kind: csiproxy.ErrFailedPrecondition, Object: "volume " + string(id), Err: err,
			Detail: "it is in use" + v.users(ctx, id) + "; end that use, or force the unmount",
		}
	}
	return h, err
}

// inUse is the error of a volume that can't be locked since somebody has it, or something on
// it, open.
type inUse struct{ error }

func (e inUse) Unwrap() error { return e.error }

// whileInUse returns the error of opening a volume or of locking it, as inUse if it says so.
func whileInUse(err error) error {
	if errors.Is(err, win.ErrorAccessDenied) || errors.Is(err, win.ErrorSharingViolation) {
		return inUse{err}
	}
	return err
}

func isInUse(err error) bool {
	is := errors.As(err, new(inUse))
	return is
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
