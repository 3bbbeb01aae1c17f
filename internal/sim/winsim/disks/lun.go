// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// initiatorPort is the number of the iSCSI initiator's SCSI port. Disks that are
// attached by hand can't be there, so that targets have their addresses to
// themselves.
const initiatorPort = 255

// LUNs gives the disks of a target in the order of their LUNs.
func (m *Manager) LUNs(iqn string) []*Disk {
	var luns []*Disk
	for d := range m.All() {
		if d.Target != "" && strings.EqualFold(d.Target, iqn) {
			luns = append(luns, d)
		}
	}
	slices.SortFunc(luns, (*Disk).compareAddress)
	return luns
}

// AttachLUNs lets the LUNs of a target arrive: never before the present call is over.
func (m *Manager) AttachLUNs(iqn string) {
	for _, d := range m.LUNs(iqn) {
		m.attach(d, false)
	}
}

// DetachLUNs takes the LUNs of a target off the node.
func (m *Manager) DetachLUNs(iqn string) {
	for _, d := range m.LUNs(iqn) {
		if d.State != Detached {
			m.withdraw(d)
		}
	}
}

// EndSessions is what a restart of the node does to the LUNs of all targets: they are gone.
func (m *Manager) EndSessions() {
	for d := range m.All() {
		if d.Target != "" {
			d.State, d.Number, d.Arriving = Detached, win.NoNumber, false
			d.touch()
		}
	}
}

// LUNDevices are the devices of a target that Windows sees.
func (m *Manager) LUNDevices(iqn string) []win.ISCSIDevice {
	var devices []win.ISCSIDevice
	for _, d := range m.LUNs(iqn) {
		if d.State == Detached || d.Spec.MultipathMember {
			continue
		}
		number := win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: win.NoNumber}
		if d.Present() {
			number.DeviceNumber = d.Number
		}
		devices = append(devices, win.ISCSIDevice{SCSIAddress: *d.Spec.SCSI, Device: number})
	}
	return devices
}

// ReleaseLUNs makes the LUNs of a target disks that nobody has.
func (m *Manager) ReleaseLUNs(iqn string) {
	for _, d := range m.LUNs(iqn) {
		d.Target = ""
		d.touch()
	}
}

// lunSpec is the spec of the disk that is a LUN of the target with a SCSI target id.
func lunSpec(spec hardware.Disk, target byte, lun int) hardware.Disk {
	spec.BusType = cmp.Or(spec.BusType, win.BusTypeISCSI)
	spec.SCSI = &win.SCSIAddress{PortNumber: initiatorPort, TargetID: target, LUN: byte(lun)}
	return spec
}

// CheckLUNs tells beforehand whether AddLUNs will take disks, the first of them as the next
// LUN of the target.
func (m *Manager) CheckLUNs(iqn string, target byte, specs []hardware.Disk) error {
	serials := map[string]bool{}
	for i, spec := range specs {
		lun := len(m.LUNs(iqn)) + i
		old, exists := m.Find(func(d *Disk) bool { return d.Spec.Serial == spec.Serial })
		var err error
		switch {
		case lun > math.MaxUint8:
			err = winerr.ErrorNotSupported
		case spec.SCSI != nil:
			err = fmt.Errorf("the address is given by the target: %w", winerr.ErrorInvalidParameter)
		case spec.Serial != "" && (serials[spec.Serial] || exists && (old.State != Detached || old.Target != "")):
			err = fmt.Errorf("the serial number %q: %w", spec.Serial, winerr.ErrorAlreadyExists)
		case !exists:
			_, err = m.complete(m.NextDisk, lunSpec(spec, target, lun))
		}
		if err != nil {
			return fmt.Errorf("LUN %d: %w", lun, err)
		}
		serials[spec.Serial] = true
	}
	return nil
}

// AddLUNs makes disks the next LUNs of a target. They arrive if it is connected.
func (m *Manager) AddLUNs(iqn string, target byte, specs []hardware.Disk, connected bool) error {
	for _, spec := range specs {
		d, err := m.diskFor(lunSpec(spec, target, len(m.LUNs(iqn))))
		if err != nil {
			return err
		}
		d.Target = iqn
		d.touch()
		if connected {
			m.attach(d, false)
		}
	}
	return nil
}
