// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"crypto/hmac"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// ISCSITarget is a target on the node's network.
type ISCSITarget struct {
	IQN     string // iqn.…, eui.… or naa.…
	Portals []win.ISCSIPortal
	// CHAPUser is whom the target lets in, with CHAPSecret; "": anybody, without
	// CHAP.
	CHAPUser   string
	CHAPSecret secret.Text // 12 to 16 bytes
	// MutualSecret is what the target proves itself with; empty: it can't. The
	// initiator's own secret must be the same text.
	MutualSecret secret.Text
	// LUNs are its disks, from LUN 0 on. One with the serial number of a detached
	// disk is that disk with its data. The address isn't theirs to choose, and
	// BusType has the default BusTypeISCSI.
	LUNs []DiskSpec
}

// ISCSIPortalState is a portal on the node's network.
type ISCSIPortalState struct {
	win.ISCSIPortal
	Reachable bool
}

// iscsiNetwork is what the state file has of the targets and portals.
type iscsiNetwork struct {
	Salt    []byte // of the hashes of secrets
	Portals []ISCSIPortalState
	Targets []targetRecord // in the order in which they came
}

type targetRecord struct {
	IQN          string
	Number       byte // SCSI target id, the same for each session
	Portals      []win.ISCSIPortal
	CHAPUser     string
	CHAPSecret   []byte // hash
	MutualSecret []byte // hash; nil: none
}

const defaultISCSIPort = 3260

// hash is what stands for a secret: the simulation compares secrets instead of
// computing with them. All have one salt, since both ends keep only hashes.
func (n *iscsiNetwork) hash(text secret.Text) ([]byte, error) { return hashSecret(text, n.Salt) }

func (n *iscsiNetwork) target(iqn string) (*targetRecord, bool) {
	at := slices.IndexFunc(n.Targets, func(t targetRecord) bool { return strings.EqualFold(t.IQN, iqn) })
	if at < 0 {
		return nil, false
	}
	return &n.Targets[at], true
}

func (n *iscsiNetwork) portal(p win.ISCSIPortal) (*ISCSIPortalState, bool) {
	at := slices.IndexFunc(n.Portals, func(state ISCSIPortalState) bool { return samePortal(p, state.ISCSIPortal) })
	if at < 0 {
		return nil, false
	}
	return &n.Portals[at], true
}

// reach connects to a portal.
func (n *iscsiNetwork) reach(p win.ISCSIPortal) error {
	if state, ok := n.portal(p); ok && state.Reachable {
		return nil
	}
	hasAddress := func(state ISCSIPortalState) bool { return sameAddress(state.Address, p.Address) }
	if _, err := netip.ParseAddr(p.Address); err != nil && !slices.ContainsFunc(n.Portals, hasAddress) {
		return win.ISDSCDNSNameUnresolved
	}
	return win.ISDSCConnectionFailed
}

// authenticate lets a login in or not; own is the hash of the initiator's secret.
// With CHAP asked of a target that has none, nothing is agreed on.
func (t *targetRecord) authenticate(l iscsiLogin, own []byte) error {
	if l.AuthType == win.ISCSINoAuth {
		if t.CHAPUser != "" {
			return win.ISDSCAuthenticationFailed
		}
		return nil
	}
	if t.CHAPUser == "" || t.CHAPUser != l.Username || !hmac.Equal(t.CHAPSecret, l.Secret) {
		return win.ISDSCAuthenticationFailed
	}
	if l.AuthType == win.ISCSIMutualCHAP {
		if own == nil {
			return win.ISDSCAuthInfoUnavailable
		}
		if !hmac.Equal(t.MutualSecret, own) {
			return win.ISDSCAuthenticationFailed
		}
	}
	return nil
}

func (d *disk) isLUNOf(iqn string) bool { return d.Target != "" && strings.EqualFold(d.Target, iqn) }

// luns gives the disks of a target in the order of their LUNs.
func (ds *disks) luns(iqn string) []*disk {
	var luns []*disk
	for d := range ds.all() {
		if d.isLUNOf(iqn) {
			luns = append(luns, d)
		}
	}
	slices.SortFunc(luns, (*disk).compareAddress)
	return luns
}

// attachLUNs lets the disks of a target with a session arrive: never before the
// present call is over.
func (s *System) attachLUNs(iqn string) {
	for _, d := range s.disks.luns(iqn) {
		s.attachLUN(d)
	}
}

func (s *System) attachLUN(d *disk) {
	d.State, d.Attributes = DiskAttached, d.Persistent
	d.touch()
	if d.Spec.NeedsRescan {
		return
	}
	s.diskComes(d)
	s.later(s.gate.delays.DiskArrival, func() {
		if d.Arriving {
			s.diskArrives(d)
		}
	})
}

// detachLUNs takes the disks of a target away, without asking anyone.
func (s *System) detachLUNs(iqn string) {
	for _, d := range s.disks.luns(iqn) {
		if d.State != DiskShelved {
			s.withdrawDisk(d)
		}
	}
}

// AddISCSITarget puts a target on the network. Portals that weren't there are, and
// can be reached. A target with the name gives ErrorAlreadyExists.
func (s *System) AddISCSITarget(t ISCSITarget) error {
	return s.control(func() error {
		if err := s.addTarget(t); err != nil {
			return fmt.Errorf("add iSCSI target %q: %w", t.IQN, err)
		}
		return nil
	})
}

func (s *System) addTarget(spec ISCSITarget) error {
	if err := spec.check(); err != nil {
		return err
	}
	if _, exists := s.node.Network.target(spec.IQN); exists {
		return win.ErrorAlreadyExists
	}
	number := 0
	for slices.ContainsFunc(s.node.Network.Targets, func(t targetRecord) bool { return int(t.Number) == number }) {
		number++
	}
	if number > math.MaxUint8 {
		return fmt.Errorf("there are %d: %w", number, win.ErrorNotSupported)
	}
	t := &targetRecord{IQN: spec.IQN, Number: byte(number), CHAPUser: spec.CHAPUser}
	err := s.checkLUNs(t, spec.LUNs)
	if err == nil && spec.CHAPUser != "" {
		t.CHAPSecret, err = s.node.Network.hash(spec.CHAPSecret)
	}
	if err == nil && spec.MutualSecret.Reveal() != "" {
		t.MutualSecret, err = s.node.Network.hash(spec.MutualSecret)
	}
	if err != nil {
		return err
	}
	for _, p := range spec.Portals {
		p.Port = cmp.Or(p.Port, defaultISCSIPort)
		t.Portals = append(t.Portals, p)
		if _, there := s.node.Network.portal(p); !there {
			s.node.Network.Portals = append(s.node.Network.Portals, ISCSIPortalState{p, true})
		}
	}
	s.node.Network.Targets, s.changed = append(s.node.Network.Targets, *t), true
	for _, lun := range spec.LUNs {
		if _, err := s.addLUN(t, lun); err != nil {
			return err
		}
	}
	return nil
}

// check checks what can be checked without the node. Its errors don't hold secrets.
func (t ISCSITarget) check() error {
	const maxName = 223
	bad := func(r rune) bool { return r <= ' ' || r > '~' }
	named := slices.ContainsFunc([]string{"iqn.", "eui.", "naa."}, func(prefix string) bool {
		return len(t.IQN) > len(prefix) && strings.EqualFold(t.IQN[:len(prefix)], prefix)
	})
	switch {
	case !named || len(t.IQN) > maxName || strings.ContainsFunc(t.IQN, bad):
		return fmt.Errorf("its name: %w", win.ErrorInvalidParameter)
	case len(t.Portals) == 0:
		return fmt.Errorf("it has no portal: %w", win.ErrorInvalidParameter)
	case t.CHAPUser == "" && (t.CHAPSecret.Reveal() != "" || t.MutualSecret.Reveal() != ""):
		return fmt.Errorf("there is a secret, and no user: %w", win.ErrorInvalidParameter)
	case t.CHAPUser != "" && checkCHAPSecret(t.CHAPSecret) != nil, t.MutualSecret.Reveal() != "" && checkCHAPSecret(t.MutualSecret) != nil:
		return fmt.Errorf("a CHAP secret has %d to %d bytes: %w", minCHAPSecret, maxCHAPSecret, win.ErrorInvalidParameter)
	}
	for _, p := range t.Portals {
		if err := checkPortal(p); err != nil {
			return err
		}
	}
	return nil
}

func checkPortal(p win.ISCSIPortal) error {
	const maxAddress = 255
	bad := func(r rune) bool { return r <= ' ' || r > '~' }
	if p.Address == "" || len(p.Address) > maxAddress || strings.ContainsFunc(p.Address, bad) {
		return fmt.Errorf("the portal address %q: %w", p.Address, win.ErrorInvalidParameter)
	}
	return nil
}

// checkLUNs tells beforehand whether addLUN will take disks.
func (s *System) checkLUNs(t *targetRecord, specs []DiskSpec) error {
	serials := map[string]bool{}
	for i, spec := range specs {
		lun := len(s.disks.luns(t.IQN)) + i
		old, exists := s.disks.find(func(d *disk) bool { return d.Spec.Serial == spec.Serial })
		var err error
		switch {
		case lun > math.MaxUint8:
			err = win.ErrorNotSupported
		case spec.SCSI != nil:
			err = fmt.Errorf("the address is given by the target: %w", win.ErrorInvalidParameter)
		case spec.Serial != "" && (serials[spec.Serial] || exists && (old.State != DiskShelved || old.Target != "")):
			err = fmt.Errorf("the serial number %q: %w", spec.Serial, win.ErrorAlreadyExists)
		case !exists:
			_, err = s.disks.complete(s.disks.next, t.lunSpec(spec, lun))
		}
		if err != nil {
			return fmt.Errorf("LUN %d: %w", lun, err)
		}
		serials[spec.Serial] = true
	}
	return nil
}

// lunSpec is the disk that is a LUN of the target.
func (t *targetRecord) lunSpec(spec DiskSpec, lun int) DiskSpec {
	spec.BusType = cmp.Or(spec.BusType, win.BusTypeISCSI)
	spec.SCSI = &win.SCSIAddress{PortNumber: initiatorPort, TargetID: t.Number, LUN: byte(lun)}
	return spec
}

// addLUN makes a disk the next LUN of a target.
func (s *System) addLUN(t *targetRecord, spec DiskSpec) (*disk, error) {
	d, err := s.diskFor(t.lunSpec(spec, len(s.disks.luns(t.IQN))))
	if err != nil {
		return nil, err
	}
	d.Target = t.IQN
	d.touch()
	return d, nil
}

// AddISCSILUN gives a target another disk, which arrives if there is a session.
func (s *System) AddISCSILUN(iqn string, spec DiskSpec) error {
	return s.controlTarget("add a LUN to", iqn, func(t *targetRecord) error {
		if err := s.checkLUNs(t, []DiskSpec{spec}); err != nil {
			return err
		}
		d, err := s.addLUN(t, spec)
		if err != nil {
			return err
		}
		if session, ok := s.node.Initiator.sessionOf(iqn); ok && s.node.Network.reach(session.Portal) == nil {
			s.attachLUN(d)
		}
		return nil
	})
}

// RemoveISCSITarget takes a target off the network. Its session ends and its disks
// vanish, without asking anyone; with their data they are detached disks then.
func (s *System) RemoveISCSITarget(iqn string) error {
	return s.controlTarget("remove", iqn, func(*targetRecord) error {
		if session, ok := s.node.Initiator.sessionOf(iqn); ok {
			s.endSession(session)
		}
		for _, d := range s.disks.luns(iqn) {
			d.Target = ""
			d.touch()
		}
		n := &s.node.Network
		n.Targets = slices.DeleteFunc(n.Targets, func(t targetRecord) bool { return strings.EqualFold(t.IQN, iqn) })
		s.changed = true
		return nil
	})
}

// controlTarget runs a control call on the target with a name.
func (s *System) controlTarget(what, iqn string, f func(*targetRecord) error) error {
	return s.control(func() error {
		t, ok := s.node.Network.target(iqn)
		if !ok {
			return notFound("iSCSI target", iqn)
		}
		if err := f(t); err != nil {
			return fmt.Errorf("%s iSCSI target %s: %w", what, iqn, err)
		}
		return nil
	})
}

// SetISCSIPortal lets a portal be reached or not; port 0 is 3260. A portal that no
// target has is added. While it can't be reached, sessions over it stay, but their
// disks are gone, without asking anyone: the initiator connects again when it can.
func (s *System) SetISCSIPortal(p win.ISCSIPortal, reachable bool) error {
	p.Port = cmp.Or(p.Port, defaultISCSIPort)
	return s.control(func() error {
		if err := checkPortal(p); err != nil {
			return fmt.Errorf("set iSCSI portal: %w", err)
		}
		state, there := s.node.Network.portal(p)
		if !there {
			s.node.Network.Portals = append(s.node.Network.Portals, ISCSIPortalState{p, false})
			state = &s.node.Network.Portals[len(s.node.Network.Portals)-1]
		}
		s.changed = true
		if state.Reachable == reachable {
			return nil
		}
		state.Reachable = reachable
		for _, session := range s.node.Initiator.Sessions {
			if !samePortal(session.Portal, p) {
				continue
			}
			if !reachable {
				s.detachLUNs(session.Target)
			} else {
				s.attachLUNs(session.Target)
			}
		}
		return nil
	})
}

// SetISCSIPersistentLogin stores a login that the initiator repeats whenever its
// service starts, as an administrator does in the control panel: this also makes
// the service start with the node. There is one for each target and portal.
func (s *System) SetISCSIPersistentLogin(l win.ISCSILogin) error {
	return s.control(func() error {
		login, err := s.iscsiLogin(l)
		if err != nil {
			return fmt.Errorf("store login to iSCSI target %s: %w", l.Target, err)
		}
		i := &s.node.Initiator
		i.Persistent = slices.DeleteFunc(i.Persistent, func(other iscsiLogin) bool { return other.reported() == login.reported() })
		i.Persistent, s.changed = append(i.Persistent, login), true
		if v, ok := s.services.find(initiatorService); ok {
			v.Spec.StartType = win.ServiceAutoStart
			s.services.touch(initiatorService)
		}
		return nil
	})
}

// ISCSITargetList lists the targets in the order in which they came, without
// secrets. The caller must not change what a LUN points to.
func (s *System) ISCSITargetList() []ISCSITarget {
	s.mu.Lock()
	defer s.mu.Unlock()
	var targets []ISCSITarget
	for _, t := range s.node.Network.Targets {
		target := ISCSITarget{IQN: t.IQN, Portals: slices.Clone(t.Portals), CHAPUser: t.CHAPUser}
		for _, d := range s.disks.luns(t.IQN) {
			target.LUNs = append(target.LUNs, d.Spec)
		}
		targets = append(targets, target)
	}
	return targets
}

// ISCSIPortals lists the portals in the order in which they came.
func (s *System) ISCSIPortals() []ISCSIPortalState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.node.Network.Portals)
}
