// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

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
			err = i.sys.disks.CheckLUNs(t.IQN, target, luns)
		}
		if err != nil {
			return fmt.Errorf("add iSCSI target %q: %w", t.IQN, err)
		}
		if err := i.sys.iscsi.Add(t); err != nil {
			return err
		}
		return i.sys.disks.AddLUNs(t.IQN, target, luns, false)
	})
}

// AddLUN gives a target another disk, which arrives if there is a session.
func (i ISCSI) AddLUN(iqn string, spec DiskSpec) error {
	return i.sys.control(func() error {
		name, target, err := i.sys.iscsi.Find(iqn)
		if err != nil {
			return err
		}
		if err := i.sys.disks.CheckLUNs(name, target, []DiskSpec{spec}); err != nil {
			return fmt.Errorf("add a LUN to iSCSI target %s: %w", name, err)
		}
		return i.sys.disks.AddLUNs(name, target, []DiskSpec{spec}, i.sys.iscsi.Connected(name))
	})
}

// RemoveTarget takes a target off the network. Its session ends and its disks vanish,
// even while they are in use. They are detached disks then, with their data.
func (i ISCSI) RemoveTarget(iqn string) error {
	return i.sys.control(func() error {
		if err := i.sys.iscsi.Remove(iqn); err != nil {
			return err
		}
		i.sys.disks.ReleaseLUNs(iqn)
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
func (i ISCSI) Targets() []iscsitarget.Target { return look(i.sys, i.sys.iscsi.Targets) }

// LUNs lists the disks of a target in the order of their LUNs; none if there is no
// such target. The caller must not change what a spec points to.
func (i ISCSI) LUNs(iqn string) []DiskSpec {
	i.sys.mu.Lock()
	defer i.sys.mu.Unlock()
	var specs []DiskSpec
	for _, d := range i.sys.disks.LUNs(iqn) {
		specs = append(specs, d.Spec)
	}
	return specs
}

// Portals lists the portals in the order in which they came.
func (i ISCSI) Portals() []iscsitarget.PortalState { return look(i.sys, i.sys.iscsi.Portals) }
