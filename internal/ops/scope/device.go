// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// ErrNotOwn is the error for a disk, volume or share of another driver, or without a driver.
// Callers see the error of a missing object, with the same Windows error number and the same text.
var ErrNotOwn = fmt.Errorf("%w", winerr.ErrorFileNotFound)

// hide returns err, for the disk, volume or share named by object. Missing objects and objects of
// other drivers give the same error.
func (s *System) hide(err error, object string) error {
	switch {
	case errors.Is(err, ErrNotOwn):
		err = ErrNotOwn
	case errors.Is(err, fs.ErrNotExist):
		err = winerr.ErrorFileNotFound
	default:
		return err
	}
	return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Err: err,
		Detail: "driver " + quote.Text(s.driver.Name) + " has no " + object}
}

// closeUnless closes opened if the function fails to return it. Defer closeUnless: the daemon
// survives panics.
func closeUnless(isReturned *bool, opened io.Closer) {
	if !*isReturned {
		_ = opened.Close()
	}
}

// purpose is the reason to open a disk or volume.
type purpose int

const (
	// toUse is for access to data: the owner must be known.
	toUse purpose = iota
	// toRelease is for the steps that end a driver's use. They also reach a sick disk with a
	// presumed owner.
	toRelease
)

// openDisk opens a disk of the driver. A handle belongs to one disk for good, and openDisk finds
// the owner through the handle. If the disk refuses to identify itself, the owner of the last disk
// with the number counts: the error of another driver's sick disk would tell that the disk is there.
func (s *System) openDisk(ctx context.Context, path string, access win.Access, to purpose) (_ win.Device, err error) {
	defer func() {
		if err != nil && ctx.Err() == nil && s.wasOfAnother(numberOf(path)) {
			err = ErrNotOwn
		}
	}()
	h, err := win.OpenDevice(ctx, s.System, path, access)
	if err != nil {
		return nil, err
	}
	isOwn := false
	defer closeUnless(&isOwn, h)
	hardware, err := opendisk.AskHardware(ctx, h)
	err = cmp.Or(err, hardware.DescriptorErr)
	owner, isKnown := "", false
	if err == nil {
		owner, isKnown, err = s.table.ownerOfDisk(ctx, s.System, &opendisk.Disk{DeviceHandle: h, Number: numberOf(path), Hardware: hardware})
	}
	isSick := err != nil && to == toRelease && !winerr.IsGone(err) && s.ownsSickDisk(ctx, numberOf(path))
	if isSick {
		owner = s.driver.Name
		_, err = h.Number(ctx) // a disk still present had the number when its volume was queried
	}
	switch {
	case err != nil:
		return nil, err
	case owner == s.driver.Name:
	case isKnown:
		return nil, ErrNotOwn
	default:
		return nil, winerr.ErrorFileNotFound
	}
	isOwn = true
	if !isSick {
		return h.Device, nil
	}
	sick := &sickDisk{h, s}
	s.sick.Store(sick, nil)
	return sick, nil
}

// sickDisk is an open disk that no longer identifies itself, and presumably belongs to the driver.
// While a sickDisk is open, the driver can open the disk again: after unmounting the volume, a call
// takes the disk offline.
type sickDisk struct {
	win.DeviceHandle
	sys *System
}

// Control is Control of win.Device. It refuses changes of the partitions.
func (d *sickDisk) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	switch code {
	case win.IoctlDiskCreateDisk, win.IoctlDiskSetDriveLayoutEx, win.IoctlDiskGrowPartition:
		return 0, winerr.ErrorAccessDenied
	}
	return d.DeviceHandle.Control(ctx, code, in, out)
}

// OwnerOf returns the driver of a disk opened by the system. isKnown is false if the driver is only
// presumed to own the disk.
func (s *System) OwnerOf(_ context.Context, d *opendisk.Disk) (driver string, isKnown bool) {
	_, isSick := d.Device.(*sickDisk)
	return s.driver.Name, !isSick
}

// Close is Close of win.Device.
func (d *sickDisk) Close() error {
	d.sys.sick.Delete(d)
	return d.DeviceHandle.Close()
}

// ownsSickDisk presumes whether a disk that refuses to identify itself belongs to the driver. The
// driver must be able to end its use of the disk. It owns the disk if a volume of the disk is
// mounted only in the driver's own directories, or was mounted there when a still open sick disk
// was opened.
//
// If an earlier disk with the same number identified its owner, only the same driver can own the
// disk now, and mount points in the directories of others are ignored: they may be planted. If the
// mount points are too many to list, the volume counts as mounted in the directories of the earlier
// owner. A volume that fails to answer proves nothing.
func (s *System) ownsSickDisk(ctx context.Context, n csiproxy.DiskNumber) bool {
	if s.wasOfAnother(n) {
		return false
	}
	_, isKnown := s.table.lastOwners.Load(n)
	isOpen := false
	s.sick.Range(func(key, _ any) bool {
		current, err := key.(*sickDisk).Number(ctx)
		isOpen = err == nil && current.DeviceNumber == n
		return !isOpen
	})
	if isOpen {
		return true
	}
	isOwn, _ := s.sickOwn.Do(ctx, n, func(ctx context.Context) (bool, error) { return s.mountsSickDisk(ctx, n, isKnown), nil })
	return isOwn
}

// mountsSickDisk reports whether the mount points of the disk's volumes make the driver the owner of
// the sick disk n: see ownsSickDisk. isKnown is whether the driver owned the last disk with the
// number.
func (s *System) mountsSickDisk(ctx context.Context, n csiproxy.DiskNumber, isKnown bool) bool {
	names, _ := s.System.FindVolumes(ctx)
	for _, outcome := range operation.AskSome(ctx, names, operation.UnknownOwner, maxSilentOfAll, silentTimeout, func(ctx context.Context, name string) (bool, error) {
		paths, err := s.System.VolumePathNames(ctx, name)
		isAmongMany := isKnown && errors.Is(err, winerr.ErrorMoreData)
		drivers, err := s.driversAt(ctx, paths)
		isOwn := isAmongMany || drivers[s.driver.Name] && (isKnown || len(drivers) == 1)
		if err != nil || !isOwn {
			return false, err
		}
		extents, err := win.ExtentsOf(ctx, s.System, win.VolumePath(name))
		return len(extents) == 1 && extents[0].DiskNumber == n, err
	}) {
		if isOnDisk, err := outcome.Get(); err == nil && isOnDisk {
			return true
		}
	}
	return false
}

// wasOfAnother reports whether the last disk with the number that identified its owner belonged to
// another driver, or to none.
func (s *System) wasOfAnother(n csiproxy.DiskNumber) bool {
	last, isKnown := s.table.lastOwners.Load(n)
	return isKnown && last != s.driver.Name
}

// maxSilentOfAll is maxSilent for volumes. Their owners are unknown before the query.
const maxSilentOfAll = 4 * maxSilent

// silentTimeout is how long a query of several volumes or sessions waits for silent ones:
// they may belong to another driver.
const silentTimeout = 200 * time.Millisecond

// numberOf returns the number in the path of a disk.
func numberOf(path string) csiproxy.DiskNumber {
	n, err := strconv.ParseUint(strings.TrimPrefix(path, strings.TrimSuffix(win.PhysicalDrive(0), "0")), 10, 32)
	if err != nil {
		return win.NoNumber
	}
	return csiproxy.DiskNumber(n)
}

// openVolume opens a volume, given by a path that begins with its name. The open requests no
// access, and the handle takes no part in sharing. While the volume is open, openVolume calls use,
// which may take the name. openVolume fails unless the driver owns all disks under the volume.
//
// A handle belongs to one volume for good. A disk keeps its number while it is there, and the mount
// manager reserves a volume's name while the volume is there. If the volume's extents on the handle
// are unchanged after all calls, the disks queried by number, and everything that use has reached
// by name, belonged to this volume.
func (s *System) openVolume(ctx context.Context, path string, to purpose, use func() error) (_ win.Device, err error) {
	name, _, _ := cutVolume(path)
	h, err := win.OpenDevice(ctx, s.System, name, win.AccessNone)
	if err != nil {
		return nil, s.hide(err, suchVolume)
	}
	isOwn := false
	defer closeUnless(&isOwn, h)
	extents, err := h.Extents(ctx)
	if err == nil && len(extents) == 0 {
		err = ErrNotOwn
	}
	for _, e := range extents {
		if err == nil {
			err = s.checkDisk(ctx, e.DiskNumber, to)
		}
	}
	if err != nil {
		return nil, s.hide(err, suchVolume)
	}
	if err := use(); err != nil {
		return nil, err
	}
	after, err := h.Extents(ctx)
	if err == nil && !slices.Equal(after, extents) {
		err = opendisk.ChangedError("the volume has moved to another place")
	}
	if err != nil {
		return nil, s.hide(err, suchVolume)
	}
	isOwn = true
	return h.Device, nil
}

// suchVolume stands for a volume in errors. The real name stays hidden: the caller may have given a
// path only.
const suchVolume = "such volume"

// checkDisk returns ErrNotOwn unless the driver owns a disk.
func (s *System) checkDisk(ctx context.Context, n csiproxy.DiskNumber, to purpose) error {
	disk, err := s.openDisk(ctx, win.PhysicalDrive(n), win.AccessNone, to)
	if err != nil {
		return err
	}
	return disk.Close()
}

// nothing is the use of a volume that needs no call.
func nothing() error { return nil }

// whileOwn is actWhileOwn for a call with an answer. If call has opened something, and another
// driver owns the volume, whileOwn closes what was opened.
func whileOwn[T any](ctx context.Context, s *System, path string, to purpose, call func() (T, error)) (answer T, _ error) {
	var unverified T
	isOwn := false
	defer func() {
		if opened, ok := any(unverified).(io.Closer); ok {
			closeUnless(&isOwn, opened)
		}
	}()
	err := s.actWhileOwn(ctx, path, to, func() (err error) {
		unverified, err = call()
		return err
	})
	if err != nil {
		return answer, err
	}
	isOwn = true
	return unverified, nil
}

// actWhileOwn makes a call with a path. For a path of or in a volume, actWhileOwn makes the call in
// openVolume. For a path on a share, the driver must own the share. Package pathpolicy checks paths
// on drives.
func (s *System) actWhileOwn(ctx context.Context, path string, to purpose, call func() error) error {
	if isUNC(path) && !s.driver.HasShare(path) {
		return s.hide(ErrNotOwn, "such share")
	}
	if !isVolume(path) {
		return call()
	}
	volume, err := s.openVolume(ctx, path, to, call)
	if err == nil {
		_ = volume.Close()
	}
	return err
}

// checkVolume returns an error unless the driver owns a volume.
func (s *System) checkVolume(ctx context.Context, name string, to purpose) error {
	volume, err := s.openVolume(ctx, name, to, nothing)
	if err != nil {
		return err
	}
	return volume.Close()
}

// isUNC reports whether a path is on a share, rather than a device or on a drive.
func isUNC(path string) bool {
	return strings.HasPrefix(path, `\\`) && !strings.HasPrefix(path, `\\?\`) && !strings.HasPrefix(path, `\\.\`)
}

// cutVolume cuts a path after the volume's name, \\?\Volume{guid}, at its beginning. rest has no
// backslash at its beginning.
func cutVolume(path string) (name, rest string, isVolume bool) {
	end := strings.IndexByte(path, '}') + 1
	if end == 0 || !strings.HasPrefix(win.LowerName(path), `\\?\volume{`) {
		return path, "", false
	}
	return path[:end], strings.TrimPrefix(path[end:], `\`), true
}

func isVolume(path string) bool {
	_, _, isVolume := cutVolume(path)
	return isVolume
}
