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

// Windows has the Windows calls to find the volumes of a disk.
type Windows interface {
	win.DeviceOpener
	win.Notices
	win.VolumeNames
}

// Volumes are names of volumes, \\?\Volume{guid}\, by the number of their partition.
type Volumes map[uint32]string

// AwaitVolumes returns the volumes of some partitions of the disk. Volumes arrive some time after
// their partitions, and AwaitVolumes waits for missing volumes, at most for timeout. If a volume is
// still missing, the error is csiproxy.ErrUnavailable.
//
// If timeout is 0, AwaitVolumes returns the present volumes without waiting. The error is then
// csiproxy.ErrUnavailable only if a volume is missing and a volume of the node fails to answer: the
// silent volume may be the missing one.
//
// Before each check AwaitVolumes calls keep, if keep is non-nil. An error of keep ends the wait.
//
// The check finds volumes by the number of the disk, and then verifies the number of the disk.
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
		// Where keep checks the disk's state each time, a single verification of the disk at the
		// end is enough.
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

// withNotices is the interval between two checks if Windows sends notices. A long interval is
// enough: most volumes come with a notice, which triggers a check at once.
const withNotices = 250 * time.Millisecond

// await calls check until check returns true, and then returns true. After timeout, await returns
// false. It calls check when Windows reports the volumes of the disk ready, at each notice of
// Windows about a volume that arrived or left, and also at intervals: several changes may give one
// notice, some changes give none, a volume may need a moment after its notice, and Windows may
// refuse to tell.
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

// cancelTimeout is how long await waits for the end of a cancelled call. Whether Windows can cancel
// a wait for volumes is undocumented. After cancelTimeout, the call ends on its own.
const cancelTimeout = time.Second

// awaitReady waits until Windows reports all volumes of the disk ready. It opens its own handle,
// since the disk's handle makes one call at a time. If the disk's number leads to another disk
// meanwhile, check is called too early.
func (d *Disk) awaitReady(ctx context.Context, sys Windows) error {
	ctx, _ = operation.WithTracker(ctx) // nothing waits for this call
	h, err := win.OpenDevice(ctx, sys, win.PhysicalDrive(d.Number), win.GenericRead)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.AwaitVolumesReady(ctx)
}

// volumesOfPartitions queries the volume of each partition by the partition's device: one call for
// each, however many volumes the node has. searchVolumes needs only documented calls, but makes 603
// calls for one here on a node with 300 volumes, and each operation on a disk needs the disk's
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

// VolumeOfPartition returns the name of a partition's volume. A volume without a GUID name counts
// as yet to arrive: for such a volume, ReactOS means to answer with the name of its device, and
// fails with ErrorInvalidParameter.
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

// searchVolumes finds the volumes of partitions among all volumes of the node. It is a fallback for
// volumesOfPartitions, whose query is undocumented and may fail. Searches are rare because they
// open all volumes.
//
// A volume of another disk may hang. searchVolumes queries all volumes at the same time, and leaves
// out volumes that are silent for timeout. allAnswered is false if a silent volume may be missing
// from found.
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
		// Windows refuses the query for a CD drive, a volume on several disks, and a disk that has
		// left.
		if err == nil || errors.As(err, new(winerr.Errno)) {
			answers++
		}
	}
	return found, answers == len(names), ctx.Err()
}

// firstSearch is the time to the first search, and from there to the second; the interval then
// doubles. The interval is long because a search opens all volumes of the node, and most volumes
// arrive before. If the timeout is 0, the first search starts at once.
const firstSearch = time.Second

func volumeNumber(ctx context.Context, sys win.DeviceOpener, name string) (win.DeviceNumber, error) {
	h, err := win.OpenDevice(ctx, sys, win.VolumePath(name), win.AccessNone)
	if err != nil {
		return win.DeviceNumber{}, err
	}
	defer h.Close()
	return h.Number(ctx)
}

// DataPartitions returns the numbers of the partitions with a volume for users: see
// IsDataPartition.
func DataPartitions(l *win.DriveLayout) []uint32 {
	var numbers []uint32
	for _, p := range l.Partitions {
		if IsDataPartition(p) {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// IsDataPartition reports whether a partition has a volume for users: on a GPT disk a visible
// partition of basic data, on an MBR disk a partition of a type for which Windows makes a volume.
func IsDataPartition(p win.Partition) bool {
	switch p.Style {
	case win.StyleGPT:
		return p.Type == win.PartitionTypeBasicData && p.Attributes&win.GPTAttributeHidden == 0
	case win.StyleMBR:
		return win.HasVolumeInMBR(p.MBRType) && p.StartingOffset > 0
	}
	return false
}
