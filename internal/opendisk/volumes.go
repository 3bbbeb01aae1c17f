// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Windows is what finding the volumes of a disk takes of Windows.
type Windows interface {
	win.DeviceOpener
	win.Notices
	win.VolumeNames
}

// Finder finds the volumes of disks.
type Finder struct {
	sys      Windows
	byDevice atomic.Bool // this Windows has told the volume of a partition by the partition's device
	// noReady: this Windows doesn't know IOCTL_DISK_ARE_VOLUMES_READY, or can't be interrupted in it.
	noReady atomic.Bool
}

// NewFinder returns a finder of volumes of the node sys.
func NewFinder(sys Windows) *Finder { return &Finder{sys: sys} }

// MountedAt returns where a volume is mounted: drives, as C:\, and directories without a
// backslash at their end. Of the mount manager's records, only those count that the
// directory itself confirms. An error of the directory that doesn't say that it is no mount point is
// returned: the volume may be mounted there.
func MountedAt(ctx context.Context, sys win.VolumeNames, name string) (paths []string, _ error) {
	recorded, err := sys.VolumePathNames(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, path := range recorded {
		there, err := sys.VolumeNameForMountPoint(ctx, path)
		if err != nil && !isNoMountPoint(err) {
			return nil, err
		}
		if err != nil || !strings.EqualFold(there, name) {
			continue
		}
		if len(path) > len(`C:\`) {
			path = strings.TrimSuffix(path, `\`)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// isNoMountPoint reports whether err, of asking which volume is mounted at a path, says that none is: the
// path isn't there, or is something else. That a device has left proves nothing.
func isNoMountPoint(err error) bool {
	return errors.Is(err, fs.ErrNotExist) ||
		win.IsAny(err, win.ErrorNotAReparsePoint, win.ErrorInvalidReparseData, win.ErrorInvalidParameter,
			win.ErrorDirectory, win.ErrorInvalidName) // a file, by either of the last two
}

// Volumes are names of volumes, \\?\Volume{guid}\, by the number of the partition
// that they lie on.
type Volumes map[uint32]string

// AwaitVolumes returns the volumes of some partitions of the disk. As long as one is
// missing, it waits, at most for patience: volumes arrive some time after their
// partitions. One that is missing after that is csiproxy.ErrUnavailable: a list without it
// would say that it isn't there. Without patience, those that are there are returned.
//
// Before each look it calls keep, which may be nil and ends the wait by an error.
//
// Volumes are found by the number of the disk. That it still is this disk's number is
// looked at after they were found.
func (d *Disk) AwaitVolumes(
	ctx context.Context, f *Finder, partitions []uint32, patience time.Duration, keep func() error,
) (Volumes, error) {
	var found Volumes
	// What hasn't arrived isn't found by a search either, so with patience that comes later.
	var search time.Time
	interval := firstSearch
	if f.byDevice.Load() {
		interval = lateSearch
	}
	if patience > 0 {
		search = time.Now().Add(interval)
	}
	look := func() (bool, error) {
		if keep != nil {
			if err := keep(); err != nil {
				return false, err
			}
		}
		var err error
		if found, err = f.volumesOfPartitions(ctx, d.Number, partitions); err != nil {
			return false, err
		}
		if now := time.Now(); len(found) < len(partitions) && !now.Before(search) {
			search, interval = now.Add(interval), 2*interval
			if found, err = searchVolumes(ctx, f.sys, d.Number, partitions); err != nil {
				return false, err
			}
		}
		// While keep looks at the disk, that it is still this one counts only in the end.
		if len(found) < len(partitions) && keep != nil {
			return false, nil
		}
		return len(found) == len(partitions), d.Verify(ctx)
	}
	done, err := look()
	if err == nil && !done {
		done, err = f.await(ctx, d.Number, patience, look)
	}
	if err == nil && !done && keep != nil {
		err = d.Verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if _, ok := found[p]; !ok && patience > 0 {
			return nil, csiproxy.Errorf(csiproxy.ErrUnavailable, "no volume has arrived for partition %d; try again later", p)
		}
	}
	return found, nil
}

// volumesOfPartitions asks for the volume of each partition by its device: one
// call for each, however many volumes the node has.
func (f *Finder) volumesOfPartitions(ctx context.Context, n disk.Number, partitions []uint32) (Volumes, error) {
	found := make(Volumes)
	for _, p := range partitions {
		name, err := f.sys.VolumeNameForMountPoint(ctx, device.PartitionPath(n, p)+`\`)
		refused := errors.As(err, new(win.Errno))
		switch {
		case err == nil:
			f.byDevice.Store(true)
			found[p] = name
		case !refused:
			return nil, err
		}
	}
	return found, nil
}

// searchVolumes looks through all volumes of the node. That the volume of a device
// can be asked for isn't documented; this is for a Windows that doesn't answer, and
// it is done now and then only.
func searchVolumes(ctx context.Context, sys Windows, n disk.Number, partitions []uint32) (Volumes, error) {
	names, err := sys.FindVolumes(ctx)
	if err != nil {
		return nil, err
	}
	found := make(Volumes)
	for _, name := range names {
		number, err := volumeNumber(ctx, sys, name)
		if errors.As(err, new(win.Errno)) {
			continue // a CD drive, a volume on several disks, a disk that has left
		}
		if err != nil {
			return nil, err
		}
		if number.DeviceType == win.FileDeviceDisk && number.DeviceNumber == n &&
			slices.Contains(partitions, number.PartitionNumber) {
			found[number.PartitionNumber] = name
		}
	}
	return found, nil
}

// firstSearch is the time to the first search, if there is any patience, and from that to
// the second; each further one comes after twice the time of the one before. lateSearch is the
// same where the volumes of partitions are told: a search opens all volumes of the node.
const (
	firstSearch = 250 * time.Millisecond
	lateSearch  = 4 * time.Second
)

func volumeNumber(ctx context.Context, sys win.DeviceOpener, name string) (win.DeviceNumber, error) {
	h, err := device.Open(ctx, sys, device.VolumePath(name), win.AccessNone)
	if err != nil {
		return win.DeviceNumber{}, err
	}
	defer h.Close()
	return h.Number(ctx)
}

// DataPartitions returns the numbers of the partitions in a table that have a
// volume for users: of basic data and not hidden on a GPT disk, any on an MBR
// disk.
func DataPartitions(l *win.DriveLayout) []uint32 {
	var numbers []uint32
	for _, p := range l.Partitions {
		if IsDataPartition(p) {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// IsDataPartition reports whether a partition has a volume for users.
func IsDataPartition(p win.Partition) bool {
	switch p.Style {
	case win.StyleGPT:
		return p.Type == win.PartitionTypeBasicData && p.Attributes&win.GPTAttributeHidden == 0
	case win.StyleMBR:
		return recognizedMBRTypes[p.MBRType] && p.StartingOffset > 0
	}
	return false
}

// recognizedMBRTypes are the MBR partition types for which Windows makes a
// volume: those of FAT, NTFS and exFAT.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/disk-partition-types
var recognizedMBRTypes = map[byte]bool{
	0x01: true, 0x04: true, 0x06: true, 0x07: true, 0x0B: true, 0x0C: true, 0x0E: true,
}
