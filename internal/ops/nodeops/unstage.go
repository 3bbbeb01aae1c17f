// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// DiskBytes returns the size of the disk that a volume lies on, as Windows knows it.
func (v *Volumes) DiskBytes(ctx context.Context, id csiproxy.VolumeID) (int64, error) {
	extent, err := usage.Extent(ctx, v.sys, id)
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

// UnmountByForce is Unmount of a volume that may be in use: files that are open on it break, and what can't be
// written out is lost.
func (v *Volumes) UnmountByForce(ctx context.Context, lockedVolume *usage.LockedVolume, path pathpolicy.Path) error {
	return v.Unmount(ctx, lockedVolume, path, func() error { return v.flushIfPossible(ctx, lockedVolume.ID) })
}

// UnmountUnused is Unmount while the volume is locked in Windows, so that nobody can begin to use it. It returns
// the handle that has the lock; the caller closes it. If somebody uses the volume already, it returns
// an error of which IsInUse is true, and the caller decides how long to retry.
func (v *Volumes) UnmountUnused(ctx context.Context, lockedVolume *usage.LockedVolume, path pathpolicy.Path) (
	locked win.DeviceHandle, _ error) {
	h, err := v.Lock(ctx, lockedVolume.ID)
	if err != nil {
		return locked, err
	}
	defer func() {
		if locked.Device == nil {
			h.Close() // releases the lock; if h is closed already, it does nothing
		}
	}()
	err = v.whereMounted(ctx, lockedVolume.ID, path, func(directory *pathpolicy.File) error {
		err := directory.Unmount(ctx) // Lock has written the volume out
		if !mayBeOfLock(err) {
			return err
		}
		h.Close()
		again, err := v.unmountUnlocked(ctx, lockedVolume.ID, directory)
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

// flushIfPossible flushes a volume, and logs it if Windows refuses that twice: a broken disk may refuse it
// forever.
func (v *Volumes) flushIfPossible(ctx context.Context, id csiproxy.VolumeID) error {
	err := v.flush(ctx, id)
	if err != nil { // one error proves nothing
		err = v.flush(ctx, id)
	}
	if ctx.Err() != nil || !errors.As(err, new(winerr.Errno)) {
		return err
	}
	v.options.Logger.Warn("a volume isn't flushed before it is unmounted by force", "volume", id, "err", err)
	return nil
}

// mayBeOfLock reports whether the mount manager may have refused to remove a mount point because its
// volume is locked. No source says whether it removes such mount points. If it refuses, the volume is
// unmounted before it is locked: see unmountUnlocked.
func mayBeOfLock(err error) bool {
	return winerr.IsAny(err, winerr.ErrorAccessDenied, winerr.ErrorSharingViolation, winerr.ErrorNotReady)
}

// unmountUnlocked unmounts a volume that isn't locked, and locks it after that. If the lock fails
// because somebody has begun to use the volume meanwhile, it mounts the volume again.
func (v *Volumes) unmountUnlocked(ctx context.Context, id csiproxy.VolumeID, directory *pathpolicy.File) (win.DeviceHandle, error) {
	if err := directory.Unmount(ctx); err != nil {
		return win.DeviceHandle{}, err
	}
	inside := context.WithoutCancel(ctx)
	h, err := v.Lock(inside, id)
	if err == nil || winerr.IsGone(err) {
		return h, err
	}
	reason := "whether it came into use while it was unmounted can't be found out; try again"
	if used := (inUse{}); errors.As(err, &used) {
		err = used.error // not IsInUse, which says that nothing was changed: a change was made and undone
		reason = "it came into use while it was unmounted" + v.users(inside, id) + orForce
	}
	after := "it stays mounted, since "
	mountErr := directory.Mount(inside, string(id))
	if mounted, queryErr := mountedAt(inside, directory); queryErr != nil || !mounted.Equal(id) {
		err = errors.Join(err, mountErr, queryErr)
		after = "it is unmounted and must be staged again, since Windows doesn't mount it again, and "
	}
	return h, &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Object: "volume " + string(id),
		Detail: after + reason, Err: err}
}

// Lock opens a volume, flushes it and locks it until the handle is closed. If somebody uses the volume,
// IsInUse is true of the error.
//
// A volume on read-only media can't be flushed, and Windows may refuse to open it for writing. Then it
// is opened for reading: FSCTL_LOCK_VOLUME doesn't need more. Others are opened for writing as well,
// as all public code does that locks a volume.
func (v *Volumes) Lock(ctx context.Context, id csiproxy.VolumeID) (win.DeviceHandle, error) {
	h, err := v.open(ctx, id, win.GenericRead|win.GenericWrite)
	isReadOnly := errors.Is(err, winerr.ErrorWriteProtect)
	if isReadOnly {
		h, err = v.open(ctx, id, win.GenericRead)
	}
	if err != nil {
		return h, asInUse(id, err)
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
		return h, asInUse(id, err)
	}
	locked = true
	return h, nil
}

// inUse is the error of the volume id that can't be locked, because somebody has the volume or
// something on it open.
type inUse struct {
	error
	id csiproxy.VolumeID
}

func (e inUse) Unwrap() error { return e.error }

// asInUse returns err, of opening or locking a volume, as inUse if it says that the volume is.
func asInUse(id csiproxy.VolumeID, err error) error {
	if winerr.IsAny(err, winerr.ErrorAccessDenied, winerr.ErrorSharingViolation) {
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
		Detail: "it is in use" + v.users(ctx, used.id) + orForce,
	}
}

// orForce ends the errors of a volume that is in use. Nothing is forced after some time: what programs
// have not yet written would be lost.
const orForce = `, or force the unmount: docs/troubleshooting.md, "A volume stays in use"`

// What to do about a program that keeps volumes open, by the name of its file.
//
// Source: https://learn.microsoft.com/windows-server/storage/data-deduplication/run (Stop-DedupJob),
// https://learn.microsoft.com/defender-endpoint/configure-extension-file-exclusions-microsoft-defender-antivirus,
// https://github.com/microsoft/hcsshim/tree/main/cmd/containerd-shim-runhcs-v1
var remedies = map[string]string{
	"containerd-shim-runhcs-v1.exe": endPod,
	"fsdmhost.exe":                  "end Data Deduplication's job of the volume (Stop-DedupJob)",
	"msmpeng.exe":                   "exclude kubelet's directory from the scans of Microsoft Defender",
	"svchost.exe":                   "find out which service it is (tasklist /svc), such as SrmSvc of File Server Resource Manager, and stop that",
	"vmcompute.exe":                 endPod,
	"vmwp.exe":                      endPod,
}

const (
	endPod     = "end the pod or container that has the volume still (crictl pods, hcsdiag list)"
	endProcess = "end the process, or the pod that it belongs to"
	askFilters = "a driver has it open, such as that of a backup agent or a virus scanner (fltmc instances): stop that on the volume"
)

// systemProcess is the process that the handles of drivers belong to.
const systemProcess = 4

// remedy says what to do about a process that uses a volume.
func remedy(process win.ProcessID, image string) string {
	if process == systemProcess {
		return askFilters
	}
	return cmp.Or(remedies[strings.ToLower(image[strings.LastIndexByte(image, '\\')+1:])], endProcess)
}

// users names the processes that use a volume, and what to do about each kind of these, in words that
// follow "it is in use".
func (v *Volumes) users(ctx context.Context, id csiproxy.VolumeID) string {
	const unknown = "; Windows names no process: end the pods and containers that had it, and services and drivers " +
		"that open every volume"
	h, err := v.open(ctx, id, win.GenericRead)
	if err != nil {
		return unknown
	}
	defer h.Close()
	ids, err := h.ProcessIDs(ctx)
	if err != nil {
		v.options.Logger.Debug("Windows doesn't say who uses a volume", "volume", id, "err", err)
		return unknown
	}
	var names, advice []string
	for _, process := range ids {
		if int(process) == os.Getpid() {
			continue
		}
		name := fmt.Sprintf("process %d", process)
		image, err := v.sys.ProcessImage(ctx, process)
		if err == nil {
			name += " (" + quote.Text(image) + ")"
		}
		names = append(names, name)
		if r := remedy(process, image); !slices.Contains(advice, r) {
			advice = append(advice, r)
		}
	}
	if len(names) == 0 {
		return unknown
	}
	const most = 10
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return " by " + strings.Join(names, ", ") + "; " + strings.Join(advice, "; ")
}
