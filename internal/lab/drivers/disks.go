// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// EBS is the AWS EBS driver. It calls without a deadline.
type EBS struct {
	Calls
	isDisk func(DiskIDs) bool
}

// NewEBS returns the driver of the disk that isDisk recognises. AWS's looks for a serial number
// that contains the id of the volume.
func NewEBS(n Node, isDisk func(DiskIDs) bool) EBS { return EBS{Calls{n}, isDisk} }

func (d EBS) Stage(staging string) error {
	s := d.Step(context.Background())
	disk := s.diskWith(d.isDisk)
	s.ensureDir(staging)
	if mounted := s.mountedDisk(staging); mounted != nil && *mounted == disk {
		return s.Err
	}
	s.prepare(disk, true, staging)
	s.growIfNeeded(disk, staging)
	return s.Err
}

// mountedDisk returns the number of the disk that is mounted at a path, nil if none
// is: which it takes from the text of an error.
func (s *Step) mountedDisk(path string) *uint32 {
	var volume string
	err := s.attempt(func(s *Step) { volume = s.VolumeAt(path) })
	if err != nil && strings.Contains(err.Error(), "because it does not exist") {
		return nil
	}
	s.Err = err
	disk := s.DiskOf(volume)
	return &disk
}

func (s *Step) growIfNeeded(disk uint32, staging string) {
	s.Rescan()
	diskSize := s.DiskSize(disk)
	volumeSize := s.VolumeSize(s.VolumeAt(staging))
	if volumeSize >= diskSize { // never: the partition table takes some
		return
	}
	s.Rescan()
	s.ResizeVolume(s.VolumeAt(staging), 0)
}

func (d EBS) Publish(staging, target string) error {
	s := d.Step(context.Background())
	s.clear(target)
	if !s.isMounted(target) {
		s.CreateSymlink(staging, target)
	}
	return s.Err
}

func (d EBS) Unstage(staging string) error {
	s := d.Step(context.Background())
	if s.mountedDisk(staging) == nil {
		return s.Err
	}
	volume := s.VolumeAt(staging)
	disk := s.DiskOf(volume)
	s.UnmountVolume(volume, staging)
	s.Rmdir(staging, true)
	s.SetDiskState(disk, false)
	return s.Err
}

// AzureDisk is the Azure Disk driver. It never sets a disk online, and unmounts by removing the
// mount point.
type AzureDisk struct {
	Calls
	isDisk  func(disk uint32, lun string) bool
	resizes bool
}

// NewAzureDisk returns the driver of the disk that isDisk recognises. Azure's looks for the LUN.
// From 1.30.7 on it resizes a volume that it has staged.
func NewAzureDisk(n Node, isDisk func(disk uint32, lun string) bool, resizes bool) AzureDisk {
	return AzureDisk{Calls{n}, isDisk, resizes}
}

func (d AzureDisk) Stage(staging string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s := d.Step(ctx)
	disk := d.findDisk(s)
	if s.PathExists(staging) && s.IsSymlink(staging) {
		return s.Err
	}
	s.prepare(disk, false, staging)
	if d.resizes { // with the number of the disk where the volume id belongs
		s.ResizeVolume(strconv.FormatUint(uint64(disk), 10), 0)
	}
	return s.Err
}

func (d AzureDisk) findDisk(s *Step) uint32 {
	s.Rescan()
	locations := get[map[uint32]struct{ LUNID string }](s, "ListDiskLocations", nil, "disk_locations")
	for disk, location := range locations {
		if disk > 0 && d.isDisk(disk, location.LUNID) {
			return disk
		}
	}
	s.failf("none of the disks at %v is the volume's", locations)
	return 0
}

func (d AzureDisk) Publish(staging, target string) error {
	return EBS{Calls: d.Calls}.Publish(staging, target) // the two are alike
}

func (d AzureDisk) Unstage(staging string) error {
	s := d.Step(context.Background())
	var volume string
	if s.attempt(func(s *Step) { volume = s.VolumeAt(staging) }) == nil { // else it goes on: there is nothing to flush
		s.do("WriteVolumeCache", Fields{"volume_id": volume})
	}
	s.Rmdir(staging, true)
	return s.Err
}

// GCEPD is the GCE PD driver. It hands over kubelet's paths as they are, without a drive, and
// calls without a deadline.
type GCEPD struct {
	Calls
	isDisk func(DiskIDs) bool
}

// NewGCEPD returns the driver of the disk that isDisk recognises. Google's looks for the device
// name at the end of the page 83 identifier.
func NewGCEPD(n Node, isDisk func(DiskIDs) bool) GCEPD { return GCEPD{Calls{n}, isDisk} }

func (d GCEPD) Stage(staging string) error {
	s := d.Step(context.Background())
	disk := s.diskWith(d.isDisk)
	if s.isMounted(staging) {
		return s.Err
	}
	s.DiskSize(disk)
	s.prepare(disk, true, staging)
	s.ResizeVolume(s.VolumeAt(staging), 0)
	return s.Err
}

func (d GCEPD) Publish(staging, target string) error {
	s := d.Step(context.Background())
	if s.isMounted(target) {
		return s.Err
	}
	s.clear(target)
	s.CreateSymlink(staging, target)
	return s.Err
}

func (d GCEPD) Unstage(staging string) error {
	s := d.Step(context.Background())
	if !s.PathExists(staging) {
		return s.Err
	}
	volume := s.VolumeAt(staging)
	s.UnmountVolume(volume, staging)
	s.Rmdir(staging, true)
	s.SetDiskState(s.DiskOf(volume), false)
	return s.Err
}
