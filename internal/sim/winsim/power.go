// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import "github.com/csi-proxy/csi-proxy/internal/windows/win"

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
		s.processes.end()
		s.changed = true
		for h := range s.handles { // their processes are gone
			h.close()
		}
		s.smb.Restart()
		s.volumes.End(powerLoss)
		s.disks.EndSessions()
		s.iscsi.Restart()
		for _, d := range s.disks.Boot() {
			s.notify(win.InterfaceClassDisk)
			s.volumes.Boot(d)
		}
		s.services.Restart()
		return nil
	})
}
