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

// PresentVolumes returns the present volumes of some partitions of the disk. If a volume is missing
// and a volume of the node fails to answer, the error is csiproxy.ErrUnavailable: the silent volume
// may be the missing one. whole is the system of the whole node, to search all its volumes.
func (d *Disk) PresentVolumes(ctx context.Context, sys, whole Windows, partitions []uint32) (Volumes, error) {
	search := volumeSearch{disk: d, sys: sys, whole: whole, partitions: partitions, begun: time.Now()}
	if err := search.run(ctx); err != nil {
		return nil, err
	}
	if err := d.Verify(ctx); err != nil {
		return nil, err
	}
	if search.isUncertain {
		return search.complete()
	}
	return search.found, nil
}

// AwaitVolumes returns the volumes of some partitions of the disk. Volumes arrive some time after
// their partitions, and AwaitVolumes waits for missing volumes, at most for timeout. If a volume is
// still missing, the error is csiproxy.ErrUnavailable. whole is as for PresentVolumes.
//
// Each check finds volumes by the number of the disk, and then verifies the number of the disk.
func (d *Disk) AwaitVolumes(ctx context.Context, sys, whole Windows, partitions []uint32, timeout time.Duration) (Volumes, error) {
	search := volumeSearch{disk: d, sys: sys, whole: whole, partitions: partitions, begun: time.Now()}
	err := search.await(ctx, timeout, func() error {
		if err := search.run(ctx); err != nil {
			return err
		}
		return d.Verify(ctx)
	})
	if err != nil {
		return nil, err
	}
	return search.complete()
}

// AwaitVolumesInState is AwaitVolumes for a disk that was brought to the wanted state. If the disk
// leaves the state during the wait, the error is csiproxy.ErrUnavailable. A disk that leaves the
// node also ends the wait, and the disk is verified once at the end.
func (d *Disk) AwaitVolumesInState(
	ctx context.Context, sys, whole Windows, partitions []uint32, timeout time.Duration, wanted win.DiskState,
) (Volumes, error) {
	search := volumeSearch{disk: d, sys: sys, whole: whole, partitions: partitions, begun: time.Now()}
	err := search.await(ctx, timeout, func() error {
		state, err := d.State(ctx)
		if err != nil {
			return err
		}
		if MustChange(state, wanted) {
			return csiproxy.Errorf(csiproxy.ErrUnavailable, "it went offline, or became read-only; try again")
		}
		return search.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	if err := d.Verify(ctx); err != nil {
		return nil, err
	}
	return search.complete()
}

// MustChange reports whether a disk's state must change before use in the wanted state. A disk is
// never made read-only for use: StageVolume does so earlier, after taking the disk offline.
func MustChange(state, wanted win.DiskState) bool {
	return state.Offline || state.ReadOnly && !wanted.ReadOnly
}

// volumeSearch finds the volumes of some partitions of a disk.
type volumeSearch struct {
	disk       *Disk
	sys, whole Windows
	partitions []uint32
	begun      time.Time

	// next is when all volumes of the node may be searched, and interval the time to the search
	// after that.
	next     time.Time
	interval time.Duration

	found       Volumes
	isUncertain bool // a silent volume of the node may be missing from found
}

// run finds the volumes that are present now.
func (s *volumeSearch) run(ctx context.Context) (err error) {
	s.found, err = volumesOfPartitions(ctx, s.sys, s.disk.Number, s.partitions)
	if err != nil || s.isComplete() {
		return err
	}
	now := time.Now()
	if now.Before(s.next) {
		return nil
	}
	s.next, s.interval = now.Add(s.interval), 2*s.interval
	silentTimeout := max(now.Sub(s.begun), firstSearch) / 5
	var allAnswered bool
	s.found, allAnswered, err = searchVolumes(ctx, s.whole, s.disk.Number, s.partitions, silentTimeout)
	s.isUncertain = !allAnswered
	return err
}

func (s *volumeSearch) isComplete() bool { return len(s.found) == len(s.partitions) }

// complete returns the volumes of all partitions. If a volume is missing, the error is
// csiproxy.ErrUnavailable.
func (s *volumeSearch) complete() (Volumes, error) {
	for _, p := range s.partitions {
		if s.found[p] == "" {
			return nil, csiproxy.Errorf(csiproxy.ErrUnavailable, "no volume has arrived for partition %d; try again later", p)
		}
	}
	return s.found, nil
}

// withNotices is the interval between two checks if Windows sends notices. A long interval is
// enough: most volumes come with a notice, which triggers a check at once.
const withNotices = 250 * time.Millisecond

// await calls check, which runs the search, until the search is complete, at most for timeout. It
// calls check when Windows reports the volumes of the disk ready, at each notice of Windows about a
// volume that arrived or left, and also at intervals: several changes may give one notice, some
// changes give none, a volume may need a moment after its notice, and Windows may refuse to tell.
func (s *volumeSearch) await(ctx context.Context, timeout time.Duration, check func() error) error {
	s.next, s.interval = s.begun.Add(firstSearch), firstSearch
	if err := check(); err != nil || s.isComplete() {
		return err
	}
	ready := make(chan struct{})
	polling := operation.Polling{Timeout: timeout, Ready: ready}
	arrived, stop, err := s.sys.NotifyArrivals(ctx, win.InterfaceClassVolume)
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
	for polling.Next(ctx) {
		if err := check(); err != nil || s.isComplete() {
			return err
		}
		if waited == nil {
			waited = make(chan operation.Outcome[struct{}], 1)
			go func() {
				waited <- operation.Catch(func() (none struct{}, err error) {
					if err = s.disk.awaitReady(waiting, s.sys); err == nil {
						close(ready)
					}
					return none, err
				})
			}()
		}
	}
	return ctx.Err()
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
		if err == nil {
			found[p] = name
		} else if !errors.As(err, new(winerr.Errno)) {
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
// A volume of another disk may hang. searchVolumes queries maxSilent volumes at the same time, and
// leaves out volumes that are silent for timeout. allAnswered is false if a silent volume may be
// missing from found. Only device numbers are queried: a volume belongs to the driver of its disk.
func searchVolumes(ctx context.Context, whole Windows, n csiproxy.DiskNumber, partitions []uint32, timeout time.Duration) (
	found Volumes, allAnswered bool, _ error) {
	names, err := whole.FindVolumes(ctx)
	if err != nil {
		return nil, false, err
	}
	found = make(Volumes)
	answers := 0
	ask := func(ctx context.Context, name string) (win.DeviceNumber, error) {
		return volumeNumber(ctx, whole, name)
	}
	for name, outcome := range operation.AskSome(ctx, names, operation.UnknownOwner, maxSilent, timeout, ask) {
		number, err := outcome.Get()
		isOnDisk := err == nil && number.DeviceType == win.FileDeviceDisk && number.DeviceNumber == n
		if isOnDisk && slices.Contains(partitions, number.PartitionNumber) {
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

// maxSilent is how many silent volumes may take up calls at the same time.
const maxSilent = 128

// firstSearch is the time to the first search, and from there to the second; the interval then
// doubles. The interval is long because a search opens all volumes of the node, and most volumes
// arrive before. PresentVolumes searches at once.
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
