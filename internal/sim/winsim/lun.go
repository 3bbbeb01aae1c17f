// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// initiatorPort is the number of the iSCSI initiator's SCSI port. Disks that are
// attached by hand can't be there, so that targets have their addresses to
// themselves.
const initiatorPort = 255

// luns implements [iscsitarget.LUNs]: the LUNs of targets are disks of the node.
type luns struct{ sys *System }

// Attach implements [iscsitarget.LUNs].
func (l luns) Attach(iqn string) {
	for _, d := range l.sys.disks.luns(iqn) {
		l.sys.attachLUN(d)
	}
}

// Detach implements [iscsitarget.LUNs].
func (l luns) Detach(iqn string) {
	for _, d := range l.sys.disks.luns(iqn) {
		if d.State != DiskDetached {
			l.sys.withdrawDisk(d)
		}
	}
}

// Dismount implements [iscsitarget.LUNs]: it flushes the volumes on the disks.
func (l luns) Dismount(iqn string) error {
	for _, d := range l.sys.disks.luns(iqn) {
		if l.sys.diskInUse(d) {
			return win.ISDSCDeviceBusyOnSession
		}
	}
	for _, d := range l.sys.disks.luns(iqn) {
		for _, t := range d.trees {
			t.fs.Flush()
		}
	}
	return nil
}

// Devices implements [iscsitarget.LUNs].
func (l luns) Devices(iqn string) []win.ISCSIDevice {
	var devices []win.ISCSIDevice
	for _, d := range l.sys.disks.luns(iqn) {
		if d.State == DiskDetached || d.Spec.MultipathMember {
			continue
		}
		number := win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: win.NoNumber}
		if d.present() {
			number.DeviceNumber = d.Number
		}
		devices = append(devices, win.ISCSIDevice{SCSIAddress: *d.Spec.SCSI, Device: number})
	}
	return devices
}

func (d *drive) isLUNOf(iqn string) bool { return d.Target != "" && strings.EqualFold(d.Target, iqn) }

// luns gives the disks of a target in the order of their LUNs.
func (ds *disks) luns(iqn string) []*drive {
	var luns []*drive
	for d := range ds.all() {
		if d.isLUNOf(iqn) {
			luns = append(luns, d)
		}
	}
	slices.SortFunc(luns, (*drive).compareAddress)
	return luns
}

// attachLUN lets a LUN arrive: never before the present call is over.
func (s *System) attachLUN(d *drive) {
	s.inherit(d)
	d.State, d.Attributes = DiskAttached, d.Persistent
	s.giveNumber(d)
	if d.Spec.NeedsRescan {
		return
	}
	s.diskComes(d)
	s.later(s.gate.delays.DiskArrival+d.Spec.Late, func() {
		if d.Arriving {
			s.diskArrives(d)
		}
	})
}

// restartISCSI is what a restart of the node does before it starts services: all
// sessions have ended, and their disks are gone.
func (s *System) restartISCSI() {
	for d := range s.disks.all() {
		if d.Target != "" {
			d.State, d.Number, d.Arriving = DiskDetached, win.NoNumber, false
			d.touch()
		}
	}
	s.iscsi.Restart()
}

// diskInUse reports whether the disk, one of its volumes or anything on them is open.
func (s *System) diskInUse(d *drive) bool {
	return s.handles.any(func(h *handle) bool {
		_, on := s.volumes.find(func(v *volume) bool { return v.disk == d && h.on(v) })
		return on || h.disk == d
	})
}

// lunSpec is the spec of the disk that is a LUN of the target with a SCSI target id.
func lunSpec(spec DiskSpec, target byte, lun int) DiskSpec {
	spec.BusType = cmp.Or(spec.BusType, win.BusTypeISCSI)
	spec.SCSI = &win.SCSIAddress{PortNumber: initiatorPort, TargetID: target, LUN: byte(lun)}
	return spec
}

// checkLUNs tells beforehand whether addLUNs will take disks, the first of them as
// LUN number first.
func (s *System) checkLUNs(target byte, first int, specs []DiskSpec) error {
	serials := map[string]bool{}
	for i, spec := range specs {
		lun := first + i
		old, exists := s.disks.find(func(d *drive) bool { return d.Spec.Serial == spec.Serial })
		var err error
		switch {
		case lun > math.MaxUint8:
			err = win.ErrorNotSupported
		case spec.SCSI != nil:
			err = fmt.Errorf("the address is given by the target: %w", win.ErrorInvalidParameter)
		case spec.Serial != "" && (serials[spec.Serial] || exists && (old.State != DiskDetached || old.Target != "")):
			err = fmt.Errorf("the serial number %q: %w", spec.Serial, win.ErrorAlreadyExists)
		case !exists:
			_, err = s.disks.complete(s.disks.next, lunSpec(spec, target, lun))
		}
		if err != nil {
			return fmt.Errorf("LUN %d: %w", lun, err)
		}
		serials[spec.Serial] = true
	}
	return nil
}

// addLUNs makes disks the next LUNs of a target.
func (s *System) addLUNs(iqn string, target byte, specs []DiskSpec) ([]*drive, error) {
	var added []*drive
	for _, spec := range specs {
		d, err := s.diskFor(lunSpec(spec, target, len(s.disks.luns(iqn))))
		if err != nil {
			return nil, err
		}
		d.Target = iqn
		d.touch()
		added = append(added, d)
	}
	return added, nil
}

// ISCSI is the iSCSI targets on the node's network and the portals that lead to them,
// for control calls. What has nothing to do with disks is described at
// [iscsitarget.Network].
type ISCSI struct{ sys *System }

// ISCSI returns the targets.
func (s *System) ISCSI() ISCSI { return ISCSI{s} }

// AddTarget puts a target on the network. Portals that weren't there are, and can be
// reached. A target with the name gives ErrorAlreadyExists.
//
// The disks are its LUNs, from LUN 0 on. One with the serial number of a detached disk
// is that disk with its data. The address isn't theirs to choose, and BusType has the
// default BusTypeISCSI.
func (i ISCSI) AddTarget(t iscsitarget.Target, luns ...DiskSpec) error {
	return i.sys.control(func() error {
		target, err := i.sys.iscsi.FreeID()
		if err == nil {
			err = i.sys.checkLUNs(target, 0, luns)
		}
		if err != nil {
			return fmt.Errorf("add iSCSI target %q: %w", t.IQN, err)
		}
		if err := i.sys.iscsi.Add(t); err != nil {
			return err
		}
		_, err = i.sys.addLUNs(t.IQN, target, luns)
		return err
	})
}

// AddLUN gives a target another disk, which arrives if there is a session.
func (i ISCSI) AddLUN(iqn string, spec DiskSpec) error {
	return i.sys.control(func() error {
		name, target, err := i.sys.iscsi.Find(iqn)
		if err != nil {
			return err
		}
		specs := []DiskSpec{spec}
		if err := i.sys.checkLUNs(target, len(i.sys.disks.luns(name)), specs); err != nil {
			return fmt.Errorf("add a LUN to iSCSI target %s: %w", name, err)
		}
		added, err := i.sys.addLUNs(name, target, specs)
		if err != nil {
			return err
		}
		if i.sys.iscsi.Connected(name) {
			i.sys.attachLUN(added[0])
		}
		return nil
	})
}

// RemoveTarget takes a target off the network. Its session ends and its disks vanish,
// even while they are in use. They are detached disks then, with their data.
func (i ISCSI) RemoveTarget(iqn string) error {
	return i.sys.control(func() error {
		if err := i.sys.iscsi.Remove(iqn); err != nil {
			return err
		}
		for _, d := range i.sys.disks.luns(iqn) {
			d.Target = ""
			d.touch()
		}
		return nil
	})
}

// SetPortal lets a portal be reached or not; port 0 is 3260.
func (i ISCSI) SetPortal(p win.ISCSIPortal, reachable bool) error {
	return i.sys.control(func() error { return i.sys.iscsi.SetPortal(p, reachable) })
}

// SetPersistentLogin stores a login that the initiator repeats whenever its service
// starts, as an administrator does in the control panel: this also makes the service
// start with the node. There is one for each target and portal.
func (i ISCSI) SetPersistentLogin(l win.ISCSILogin) error {
	return i.sys.control(func() error {
		err := i.sys.iscsi.SetPersistentLogin(l)
		if err == nil {
			i.sys.services.SetStartType(services.ISCSIInitiator, win.ServiceAutoStart)
		}
		return err
	})
}

// Targets lists the targets in the order in which they came, without secrets.
func (i ISCSI) Targets() []iscsitarget.Target {
	i.sys.mu.Lock()
	defer i.sys.mu.Unlock()
	return i.sys.iscsi.Targets()
}

// LUNs lists the disks of a target in the order of their LUNs; none if there is no
// such target. The caller must not change what a spec points to.
func (i ISCSI) LUNs(iqn string) []DiskSpec {
	i.sys.mu.Lock()
	defer i.sys.mu.Unlock()
	var specs []DiskSpec
	for _, d := range i.sys.disks.luns(iqn) {
		specs = append(specs, d.Spec)
	}
	return specs
}

// Portals lists the portals in the order in which they came.
func (i ISCSI) Portals() []iscsitarget.PortalState {
	i.sys.mu.Lock()
	defer i.sys.mu.Unlock()
	return i.sys.iscsi.Portals()
}
