// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// democraticCSI is what democratic-csi does for shares and targets alike.
//
// Source: https://github.com/democratic-csi/democratic-csi/blob/master/src/driver/index.js
type democraticCSI struct{ Calls }

func (d democraticCSI) Publish(staging, target string) error {
	s := d.Step(context.Background())
	if !s.PathExists(staging) {
		s.failf("nothing is staged at %s", staging)
	}
	if s.PathExists(target) {
		s.mustBeSymlink(target)
		return s.Err
	}
	s.CreateSymlink(staging, target)
	return s.Err
}

func (d democraticCSI) Unpublish(target string) error {
	s := d.Step(context.Background())
	if !s.PathExists(target) {
		return s.Err
	}
	s.mustBeSymlink(target)
	s.Rmdir(target, false)
	return s.Err
}

func (s *Step) mustBeSymlink(path string) {
	if !s.IsSymlink(path) {
		s.failf("%s is no link", path)
	}
}

// removeStaged removes a staging path, which may have gone.
func (s *Step) removeStaged(path string) {
	s.passOver("The system cannot find the file specified", func(s *Step) { s.Rmdir(path, false) })
}

// DemocraticSMB is democratic-csi for a share. It unmaps the share of each volume that it unstages.
type DemocraticSMB struct {
	democraticCSI
	SMBVolume
}

// NewDemocraticSMB returns the driver of a volume.
func NewDemocraticSMB(n Node, v SMBVolume) DemocraticSMB {
	return DemocraticSMB{democraticCSI{Calls{n}}, v}
}

func (d DemocraticSMB) share() string { return strings.ReplaceAll(d.Source, "/", `\`) }

func (d DemocraticSMB) Stage(staging string) error {
	s := d.Step(context.Background())
	if s.PathExists(staging) && !s.IsSymlink(staging) {
		s.Rmdir(staging, false)
	}
	username, password := d.Credentials()
	s.do("NewSmbGlobalMapping", Fields{
		"remote_path": d.share(), "local_path": staging, "username": username, "password": password,
	})
	return s.Err
}

func (d DemocraticSMB) Unstage(staging string) error {
	s := d.Step(context.Background())
	s.passOver("No MSFT_SmbGlobalMapping objects found", func(s *Step) {
		s.do("RemoveSmbGlobalMapping", Fields{"remote_path": d.share()})
	})
	s.removeStaged(staging)
	return s.Err
}

// DemocraticISCSI is democratic-csi for a target. It never sets a disk online or offline.
type DemocraticISCSI struct {
	democraticCSI
	portal Fields
	iqn    string
}

// NewDemocraticISCSI returns the driver of a target.
func NewDemocraticISCSI(n Node, address string, port uint32, iqn string) DemocraticISCSI {
	return DemocraticISCSI{democraticCSI{Calls{n}}, Fields{"target_address": address, "target_port": port}, iqn}
}

func (d DemocraticISCSI) target() Fields { return Fields{"target_portal": d.portal, "iqn": d.iqn} }

func (d DemocraticISCSI) Stage(staging string) error {
	s := d.Step(context.Background())
	s.do("AddTargetPortal", Fields{"target_portal": d.portal})
	s.passOver("The target has already been logged in via an iSCSI session", func(s *Step) {
		s.do("ConnectTarget", d.target())
	})
	s.Rescan()
	disk, ok := d.disk(s)
	if !ok {
		s.failf("the target has no disk")
		return s.Err
	}
	s.ListVolumesOnDisk(disk)
	volume := s.onlyVolume(disk)
	if volume == "" {
		s.PartitionDisk(disk)
		volume = s.onlyVolume(disk)
	}
	if volume == "" {
		s.failf("disk %d has no volume", disk)
		return s.Err
	}
	s.ensureFormatted(volume)
	s.ensureDir(staging)
	s.passOver("The requested access path is already in use", func(s *Step) { s.MountVolume(volume, staging) })
	return s.Err
}

// disk returns the number of the only disk of the target, if that has one.
func (d DemocraticISCSI) disk(s *Step) (disk uint32, ok bool) {
	var disks []string
	s.passOver("ObjectNotFound", func(s *Step) { disks = get[[]string](s, "GetTargetDisks", d.target(), "diskIDs") })
	if len(disks) > 1 {
		s.failf("the target has the disks %q", disks)
	}
	if s.Err != nil || len(disks) == 0 {
		return 0, false
	}
	number, err := strconv.ParseUint(disks[0], 10, 32)
	if err != nil {
		s.failf("disk %q: %w", disks[0], err)
	}
	return uint32(number), err == nil
}

// onlyVolume returns the only volume of a disk; "" if it has none.
func (s *Step) onlyVolume(disk uint32) string {
	volumes := slices.DeleteFunc(s.ListVolumesOnDisk(disk), func(id string) bool { return id == "" })
	if len(volumes) > 1 {
		s.failf("disk %d has the volumes %q", disk, volumes)
	}
	if s.Err != nil || len(volumes) == 0 {
		return ""
	}
	return volumes[0]
}

func (d DemocraticISCSI) Unstage(staging string) error {
	s := d.Step(context.Background())
	if disk, ok := d.disk(s); ok {
		if volume := s.onlyVolume(disk); volume != "" {
			s.do("WriteVolumeCache", Fields{"volume_id": volume})
			s.passOver("The access path is not valid", func(s *Step) { s.UnmountVolume(volume, staging) })
		}
	}
	s.passOver("ObjectNotFound", func(s *Step) { s.do("DisconnectTarget", d.target()) })
	s.removeStaged(staging)
	return s.Err
}
