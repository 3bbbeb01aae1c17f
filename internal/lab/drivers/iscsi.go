// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"slices"
	"strconv"
	"time"
)

// LocalISCSI is the iSCSI driver of a system for local volumes. It insists on one disk
// and one volume, removes the target path without force, and passes over what fails
// when it unstages.
type LocalISCSI struct {
	Calls
	portal Fields
	iqn    string
}

// NewLocalISCSI returns the driver of a target. The driver always says the port.
func NewLocalISCSI(n Node, address string, port uint32, iqn string) LocalISCSI {
	return LocalISCSI{Calls{n}, Fields{"target_address": address, "target_port": port}, iqn}
}

func (d LocalISCSI) target() Fields { return Fields{"target_portal": d.portal, "iqn": d.iqn} }

func (d LocalISCSI) Stage(staging string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // kubelet's
	defer cancel()
	s := d.Step(ctx)
	d.ensurePortal(s)
	connectErr := s.attempt(func(s *Step) { s.do("ConnectTarget", d.target()) })
	disks := get[[]string](s, "GetTargetDisks", d.target(), "diskIDs")
	if connectErr != nil && len(disks) == 0 {
		return connectErr
	}
	if len(disks) != 1 {
		s.failf("target %s has the disks %q", d.iqn, disks)
		return s.Err
	}
	number, err := strconv.ParseUint(disks[0], 10, 32)
	if err != nil {
		return err
	}
	disk := uint32(number)
	s.SetDiskState(disk, true)
	s.PartitionDisk(disk)
	volumes := s.ListVolumesOnDisk(disk)
	if len(volumes) != 1 {
		s.failf("disk %d has %d volumes", disk, len(volumes))
		return s.Err
	}
	s.ensureFormatted(volumes[0])
	s.ensureDir(staging)
	s.MountVolume(volumes[0], staging)
	return s.Err
}

// ensurePortal adds the portal if it doesn't tell of the target.
func (d LocalISCSI) ensurePortal(s *Step) {
	found := false
	if s.attempt(func(s *Step) { found = d.discovers(s) }) == nil && found {
		return
	}
	s.do("AddTargetPortal", Fields{"target_portal": d.portal})
	if !d.discovers(s) {
		s.failf("the portal doesn't tell of %s", d.iqn)
	}
}

func (d LocalISCSI) discovers(s *Step) bool {
	iqns := get[[]string](s, "DiscoverTargetPortal", Fields{"target_portal": d.portal}, "iqns")
	return slices.Contains(iqns, d.iqn)
}

func (d LocalISCSI) Publish(staging, target string) error {
	s := d.Step(context.Background())
	if s.PathExists(target) {
		if s.isMounted(target) {
			return s.Err
		}
		s.Rmdir(target, false)
	}
	s.ensureDir(parent(target))
	err := s.attempt(func(s *Step) { s.CreateSymlink(staging, target) })
	if err != nil && !s.isMounted(target) {
		return err
	}
	return nil
}

func (d LocalISCSI) Unpublish(target string) error {
	s := d.Step(context.Background())
	err := s.attempt(func(s *Step) { s.Rmdir(target, true) })
	if err != nil && (s.PathExists(target) || s.Err != nil) {
		return err
	}
	return nil
}

func (d LocalISCSI) Unstage(staging string) error {
	s := d.Step(context.Background())
	_ = s.attempt(func(s *Step) {
		volume := s.VolumeAt(staging)
		_ = s.attempt(func(s *Step) { s.UnmountVolume(volume, staging) })
		s.SetDiskState(s.DiskOf(volume), false)
	})
	_ = s.attempt(func(s *Step) { s.do("DisconnectTarget", d.target()) })
	return nil
}
