// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"context"
	"errors"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Windows has the Windows calls that find the volumes of a disk.
type Windows interface {
	win.DeviceOpener
	win.Notices
	win.VolumeNames
}

// HasNothingToFlush reports whether err, of a flush, says that nothing is kept back from the disk: the
// volume is write-protected, or Windows doesn't know the request. Drivers that keep nothing in a cache
// needn't handle it. Windows has such a driver for a volume that is raw, or whose file system is too
// damaged to be mounted, and that must be unmounted, too.
//
// Windows says that a volume is write-protected here or, since a flush needs the right to write, where the
// volume is opened for it.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/kernel/dispatchflushbuffers-routines
func HasNothingToFlush(err error) bool {
	return winerr.IsAny(err, winerr.ErrorWriteProtect, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported)
}

// Volumes are names of volumes, \\?\Volume{guid}\, by the number of the partition
// that they lie on.
type Volumes map[uint32]string

// AwaitVolumes returns the volumes of some partitions of the disk. Volumes arrive some time
// after their partitions, so as long as one is missing, it waits, at most for timeout. If one
// is missing then, the error is csiproxy.ErrUnavailable. If timeout is 0, AwaitVolumes doesn't
// wait, and returns the volumes that are there; the error is csiproxy.ErrUnavailable only if one is missing and a volume of
// the node doesn't answer, which may be that one.
//
// Before each check it calls keep, which may be nil. An error of keep ends the wait.
//
// The check finds volumes by the number of the disk, and then verifies that the disk still
// has that number.
func (d *Disk) AwaitVolumes(
	ctx context.Context, sys Windows, partitions []uint32, timeout time.Duration, keep func() error,
) (Volumes, error) {
	var found Volumes
	begun, allAnswered := time.Now(), true
	// Most volumes arrive before the first search, which opens all volumes of the node.
	var search time.Time
	interval := firstSearch
	if timeout > 0 {
		search = time.Now().Add(interval)
	}
	check := func() (bool, error) {
		if keep != nil {
			if err := keep(); err != nil {
				return false, err
			}
		}
		var err error
		if found, err = volumesOfPartitions(ctx, sys, d.Number, partitions); err != nil {
			return false, err
		}
		if now := time.Now(); len(found) < len(partitions) && !now.Before(search) {
			search, interval = now.Add(interval), 2*interval
			silentTimeout := max(now.Sub(begun), firstSearch) / 5
			if found, allAnswered, err = searchVolumes(ctx, sys, d.Number, partitions, silentTimeout); err != nil {
				return false, err
			}
		}
		// Where keep checks the disk's state each time, that it is the same disk is verified once, at the end.
		if len(found) < len(partitions) && keep != nil {
			return false, nil
		}
		return len(found) == len(partitions), d.Verify(ctx)
	}
	complete, err := check()
	if err == nil && !complete && timeout > 0 {
		complete, err = d.await(ctx, sys, timeout, check)
	}
	if err == nil && !complete && keep != nil {
		err = d.Verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if _, ok := found[p]; !ok && (timeout > 0 || !allAnswered) {
			return nil, csiproxy.Errorf(csiproxy.ErrUnavailable, "no volume has arrived for partition %d; try again later", p)
		}
	}
	return found, nil
}

// withNotices is the interval between two checks if Windows gives notices. It may be long, since most
// volumes come with a notice, which brings a check at once.
const withNotices = 250 * time.Millisecond

// await calls check until it returns true, and then returns true. If that takes longer than timeout, it
// returns false. It calls check when Windows says that the volumes of the disk are ready, at each notice of Windows that a
// volume arrived or left, and also at intervals: several changes may give one notice, some changes give none, a volume may
// need a moment after its notice, and Windows may refuse to tell.
func (d *Disk) await(ctx context.Context, sys Windows, timeout time.Duration, check func() (bool, error)) (bool, error) {
	ready := make(chan struct{})
	polling := operation.Polling{Timeout: timeout, Ready: ready}
	arrived, stop, err := sys.NotifyArrivals(ctx, win.InterfaceClassVolume)
	if err == nil {
		defer stop()
		polling.Wake, polling.First = arrived, withNotices
	}
	waiting, stopWaiting := context.WithCancel(ctx)
	var waited chan operation.Outcome[struct{}] // nil until the wait begins
	defer func() {
		stopWaiting()
		if waited == nil {
			return
		}
		select {
		case outcome := <-waited:
			_, _ = outcome.Get() // panics as the wait did
		case <-time.After(cancelTimeout):
		}
	}()
	return operation.Poll(ctx, polling, func() (bool, error) {
		isThere, err := check()
		if err == nil && !isThere && waited == nil {
			waited = make(chan operation.Outcome[struct{}], 1)
			go func() {
				waited <- operation.Catch(func() (none struct{}, err error) {
					if err = d.awaitReady(waiting, sys); err == nil {
						close(ready)
					}
					return none, err
				})
			}()
		}
		return isThere, err
	})
}

// cancelTimeout is how long await waits for the end of a cancelled call that waits for volumes. It isn't documented whether Windows
// can cancel that. The call ends on its own then.
const cancelTimeout = time.Second

// awaitReady waits until Windows says that all volumes of the disk are ready. It does so on a handle of its own, since the
// disk's own makes one call at a time. If the disk's number leads to another disk meanwhile, check is called too early.
func (d *Disk) awaitReady(ctx context.Context, sys Windows) error {
	ctx, _ = operation.WithTracker(ctx) // nothing waits for this call
	h, err := win.OpenDevice(ctx, sys, win.PhysicalDrive(d.Number), win.GenericRead)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.AwaitVolumesReady(ctx)
}

// volumesOfPartitions queries the volume of each partition by the partition's device: one
// call for each, however many volumes the node has. searchVolumes, which needs documented calls only, makes
// 603 of them where this makes one on a node with 300 volumes, and each operation on a disk asks for its
// volumes.
func volumesOfPartitions(ctx context.Context, sys Windows, n csiproxy.DiskNumber, partitions []uint32) (Volumes, error) {
	found := make(Volumes)
	for _, p := range partitions {
		name, err := VolumeOfPartition(ctx, sys, n, p)
		refused := errors.As(err, new(winerr.Errno))
		switch {
		case err == nil:
			found[p] = name
		case !refused:
			return nil, err
		}
	}
	return found, nil
}

// VolumeOfPartition returns the name of a partition's volume. A volume without a GUID name counts as one that has yet to
// arrive: for such a volume, ReactOS means to answer with the name of its device, and fails with ErrorInvalidParameter.
//
// Source: ReactOS 2e91c4a8, dll/win32/kernel32/client/file/mntpoint.c, GetVolumeNameForRoot
func VolumeOfPartition(ctx context.Context, sys win.VolumeNames, n csiproxy.DiskNumber, partition uint32) (string, error) {
	name, err := sys.VolumeNameForMountPoint(ctx, win.PartitionPath(n, partition)+`\`)
	if err == nil && csiproxy.VolumeID(name).Validate() != nil {
		err = winerr.ErrorFileNotFound
	}
	if err != nil {
		return "", err
	}
	return name, nil
}

// searchVolumes finds the volumes of partitions among all volumes of the node. It is a
// fallback in case Windows doesn't answer volumesOfPartitions, whose query isn't
// documented. It is made rarely, since it opens all volumes.
//
// A volume of another disk may hang. So all are asked at the same time, and those that are silent for timeout are left out.
// allAnswered is false if one of them may be a volume that is missing from found.
func searchVolumes(ctx context.Context, sys Windows, n csiproxy.DiskNumber, partitions []uint32, timeout time.Duration) (
	found Volumes, allAnswered bool, _ error) {
	names, err := sys.FindVolumes(ctx)
	if err != nil {
		return nil, false, err
	}
	found = make(Volumes)
	answers := 0
	for name, outcome := range operation.Ask(ctx, names, timeout, func(ctx context.Context, name string) (win.DeviceNumber, error) {
		return volumeNumber(ctx, sys, name)
	}) {
		number, err := outcome.Get()
		if err == nil && number.DeviceType == win.FileDeviceDisk && number.DeviceNumber == n &&
			slices.Contains(partitions, number.PartitionNumber) {
			found[number.PartitionNumber] = name
		}
		if len(found) == len(partitions) {
			return found, true, nil
		}
		// Windows refuses the query for a CD drive, a volume on several disks, and a disk that has left.
		if err == nil || errors.As(err, new(winerr.Errno)) {
			answers++
		}
	}
	return found, answers == len(names), ctx.Err()
}

// firstSearch is the time to the first search, and from that to the second; the interval then doubles.
// It is long, since a search opens all volumes of the node, and most volumes arrive before. If the
// timeout is 0, the first search is made at once.
const firstSearch = time.Second

func volumeNumber(ctx context.Context, sys win.DeviceOpener, name string) (win.DeviceNumber, error) {
	h, err := win.OpenDevice(ctx, sys, win.VolumePath(name), win.AccessNone)
	if err != nil {
		return win.DeviceNumber{}, err
	}
	defer h.Close()
	return h.Number(ctx)
}

// DataPartitions returns the numbers of the partitions in a table that have a
// volume for users: see IsDataPartition.
func DataPartitions(l *win.DriveLayout) []uint32 {
	var numbers []uint32
	for _, p := range l.Partitions {
		if IsDataPartition(p) {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// IsDataPartition reports whether a partition has a volume for users: on a GPT disk one of basic
// data that isn't hidden, on an MBR disk one of a type for which Windows makes a volume.
func IsDataPartition(p win.Partition) bool {
	switch p.Style {
	case win.StyleGPT:
		return p.Type == win.PartitionTypeBasicData && p.Attributes&win.GPTAttributeHidden == 0
	case win.StyleMBR:
		return win.HasVolumeInMBR(p.MBRType) && p.StartingOffset > 0
	}
	return false
}
