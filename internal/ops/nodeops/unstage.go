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
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// UnmountByForce is Unmount for a volume that may be in use: open files break, and unwritten data
// is lost if the flush fails.
func (v *Volumes) UnmountByForce(ctx context.Context, lockedVolume *usage.LockedVolume, path pathpolicy.Path) error {
	return v.Unmount(ctx, lockedVolume, path, func(*pathpolicy.File) error { return v.flushIfPossible(ctx, lockedVolume.ID) })
}

// UnmountUnused is Unmount while Windows has the volume locked, to keep programs from starting to
// use the volume. It returns the handle with the lock; the caller must close the handle. If the
// volume is already in use, UnmountUnused returns an error of which IsInUse is true, and the caller
// decides how long to retry.
func (v *Volumes) UnmountUnused(ctx context.Context, lockedVolume *usage.LockedVolume, path pathpolicy.Path) (
	locked win.DeviceHandle, err error) {
	handle, err := v.Lock(ctx, lockedVolume.ID)
	if err != nil {
		return locked, err
	}
	defer func() {
		if locked.Device == nil || err != nil { // also after a panic
			handle.Close() // releases the lock; a no-op for a closed handle
		}
	}()
	walk := v.paths.Walk(v.sys)
	defer walk.CloseInto(&err)
	directory, err := v.holdMountPoint(ctx, walk, lockedVolume.ID, path)
	if err != nil {
		return locked, err
	}
	if directory == nil {
		return handle, nil
	}
	err = v.unmount(ctx, lockedVolume.ID, directory) // Lock has flushed the volume
	if !winerr.IsAny(err, perhapsDueToLock...) {
		return handle, err
	}
	handle.Close()
	second, err := v.unmountUnlocked(ctx, lockedVolume.ID, directory)
	if err == nil {
		handle = second // the deferred Close closes it if the walk fails to close
	}
	return handle, err
}

// flushIfPossible flushes a volume. If Windows refuses twice, flushIfPossible only logs the
// refusal: a broken disk may refuse forever.
func (v *Volumes) flushIfPossible(ctx context.Context, id csiproxy.VolumeID) error {
	err := v.flush(ctx, id)
	if err != nil { // a single error may be transient
		err = v.flush(ctx, id)
	}
	if ctx.Err() != nil || !errors.As(err, new(winerr.Errno)) {
		return err
	}
	v.options.Logger.Warn("can't flush a volume before its forced unmount", "volume", id, "err", err)
	return nil
}

// perhapsDueToLock are the errors with which the mount manager may refuse to remove a mount point of
// a locked volume. No source says whether the mount manager removes mount points of locked volumes.
// After such a refusal, the caller gives up the lock, unmounts the volume, and locks the volume
// again: see unmountUnlocked.
var perhapsDueToLock = []winerr.Errno{winerr.ErrorAccessDenied, winerr.ErrorSharingViolation, winerr.ErrorNotReady}

// unmountUnlocked unmounts an unlocked volume, and then locks the volume. If the lock fails because
// the volume has come into use meanwhile, unmountUnlocked mounts the volume again.
func (v *Volumes) unmountUnlocked(ctx context.Context, id csiproxy.VolumeID, directory *pathpolicy.File) (win.DeviceHandle, error) {
	if err := v.unmount(ctx, id, directory); err != nil {
		return win.DeviceHandle{}, err
	}
	uncancelled := context.WithoutCancel(ctx)
	h, err := v.Lock(uncancelled, id)
	if err == nil || winerr.IsGone(err) {
		return h, err
	}
	reason := "Windows doesn't say whether something opened it during the unmount; try again"
	if used := (inUse{}); errors.As(err, &used) {
		err = used.error // IsInUse must be false: the volume was unmounted, if only for a moment
		reason = "something opened it during the unmount" + v.users(uncancelled, id) + orForce
	}
	state := "it stays mounted, since "
	mountErr := directory.Mount(uncancelled, string(id))
	if mounted, queryErr := mountedAt(uncancelled, directory); queryErr != nil || !mounted.Equal(id) {
		err = errors.Join(err, mountErr, queryErr)
		state = "it is unmounted and must be staged again, since Windows doesn't mount it again, and "
	}
	return h, &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Object: "volume " + string(id),
		Detail: state + reason, Err: err}
}

// Lock opens a volume, flushes it and locks it until the handle is closed. If the volume is in use,
// IsInUse is true of the error.
//
// A volume on read-only media can't be flushed, and Windows may refuse to open it for writing. Lock
// then opens the volume for reading, which is enough for FSCTL_LOCK_VOLUME. All other volumes are
// opened for reading and writing, as in all public code that locks volumes.
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

// inUse is the error for the volume id if a lock fails because the volume, or something on the
// volume, is open.
type inUse struct {
	error
	id csiproxy.VolumeID
}

func (e inUse) Unwrap() error { return e.error }

// asInUse converts err, from opening or locking a volume, to inUse if err means that the volume is
// in use.
func asInUse(id csiproxy.VolumeID, err error) error {
	if winerr.IsAny(err, winerr.ErrorAccessDenied, winerr.ErrorSharingViolation) {
		return inUse{err, id}
	}
	return err
}

// IsInUse reports whether err, from UnmountUnused or Lock, means that the volume is in use and was
// left unchanged. The use may end after a moment, as with virus scanners.
func IsInUse(err error) bool {
	return errors.As(err, new(inUse))
}

// ExplainInUse converts err, of which IsInUse is true, to the error of a volume that stays in use:
// csiproxy.ErrFailedPrecondition. The error names the processes that use the volume, as far as
// Windows knows.
func (v *Volumes) ExplainInUse(ctx context.Context, err error) error {
	var used inUse
	errors.As(err, &used)
	return &csiproxy.Error{
		Kind: csiproxy.ErrFailedPrecondition, Object: "volume " + string(used.id), Err: err,
		Detail: "it is in use" + v.users(ctx, used.id) + orForce,
	}
}

// orForce ends the errors of a volume in use. The unmount is never forced automatically after some
// time: data not yet written by programs would be lost.
const orForce = `, or force the unmount: docs/troubleshooting.md, "A volume stays in use"`

// Advice about a program that keeps volumes open, by the name of its file.
//
// Source: https://learn.microsoft.com/windows-server/storage/data-deduplication/run
// (Stop-DedupJob),
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

// systemProcess is the process that owns the handles of drivers.
const systemProcess = 4

// remedy returns the advice about a process that uses a volume.
func remedy(process win.ProcessID, image string) string {
	if process == systemProcess {
		return askFilters
	}
	return cmp.Or(remedies[strings.ToLower(image[strings.LastIndexByte(image, '\\')+1:])], endProcess)
}

// users names the processes that use a volume, with the advice about each kind of process, as a
// text to follow "it is in use".
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
