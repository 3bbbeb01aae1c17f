// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"slices"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Reboot shuts the node down in order and starts it again: all handles die, disks
// get new numbers without gaps, attributes that weren't set to persist are as
// before, and every attached disk and its volumes are there. Mount points stay, SMB
// mappings and iSCSI sessions that aren't persistent don't. Services start as their
// start types say.
func (s *System) Reboot() error { return s.restart(false) }

// PowerLoss takes the power away and starts the node again. What was written to
// files since the last flush of the file or its volume is lost; everything else
// is durable.
func (s *System) PowerLoss() error { return s.restart(true) }

func (s *System) restart(powerLoss bool) error {
	return s.control(func() error {
		s.endProcesses()
		for h := range s.handles { // their processes are gone
			h.close()
		}
		s.smb.Restart()
		for _, v := range slices.Clone(s.volumes.present) {
			s.removeVolume(v)
		}
		for d := range s.disks.all() {
			for _, t := range d.trees {
				if powerLoss {
					t.fs.DropUnflushed()
				} else {
					t.fs.Flush()
				}
			}
		}
		s.restartISCSI()
		s.boot()
		s.services.Restart()
		return nil
	})
}

// boot finds all attached disks and numbers them in the order of their addresses,
// of which the system disk has the first.
//
// Guess: a restart numbers disks in the order of their SCSI addresses.
func (s *System) boot() {
	attached := slices.DeleteFunc(slices.Collect(s.disks.all()), func(d *drive) bool { return d.State == DiskDetached })
	slices.SortFunc(attached, (*drive).compareAddress)
	number := disk.Number(0)
	for _, d := range attached {
		d.State, d.Number, d.Arriving = DiskPresent, win.NoNumber, false
		d.touch()
		d.Seen, d.Attributes = d.Size, d.Persistent
		if !d.is(win.DiskOffline) {
			d.OfflineReason = win.OfflineUnknown
		}
		s.offlineIfClone(d)
		if !d.Spec.MultipathMember {
			d.Number = number
			number++
		}
	}
	for _, d := range attached {
		s.notify(win.InterfaceClassDisk)
		for _, p := range d.dataPartitions() {
			s.volumeArrives(d, p.unique)
		}
	}
}
