// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	diskapi "github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

const (
	initiatorService = "MSiSCSI"
	// initiatorInstance is the name of the initiator's adapter.
	initiatorInstance = `Root\ISCSIPRT\0000_0`
	// initiatorPort is the number of its SCSI port. Disks that are attached by hand
	// can't be there, so that targets have their addresses to themselves.
	initiatorPort = 255
	// anyInitiatorPort is ISCSI_ANY_INITIATOR_PORT.
	anyInitiatorPort = 0xFFFFFFFF

	minCHAPSecret = 12 // bytes, without IPsec
	maxCHAPSecret = 16
)

// initiatorRecord is what the node keeps of iSCSI.
type initiatorRecord struct {
	Portals     []win.ISCSIPortal // for discovery by SendTargets
	Discovered  []discovered
	CHAPSecret  []byte // hash of the initiator's own secret; nil: none
	Sessions    []initiatorSession
	LastSession uint64       // specific part of its id
	Persistent  []iscsiLogin // repeated when the service starts
}

// discovered says that a portal has told of a target.
type discovered struct {
	Target string // IQN
	Portal win.ISCSIPortal
}

type initiatorSession struct {
	ID     win.ISCSISessionID
	Target string
	Portal win.ISCSIPortal
}

// iscsiLogin is a login without its secret.
type iscsiLogin struct {
	Target   string
	Portal   win.ISCSIPortal
	AuthType win.ISCSIAuthType
	Username string
	Secret   []byte // hash; nil: none
}

// iscsiCall runs a call of iscsidsc.dll, which is in need of the service.
func (s *System) iscsiCall(ctx context.Context, name, object string, f func(*initiatorRecord) error) error {
	return s.call(ctx, Call{name, object}, func() error {
		if !s.serviceRuns(initiatorService) {
			return win.ISDSCServiceNotRunning
		}
		return f(&s.node.Initiator)
	})
}

// portalObject names a portal for hooks and rules.
func portalObject(p win.ISCSIPortal) string {
	return net.JoinHostPort(p.Address, strconv.FormatUint(uint64(p.Port), 10))
}

// samePortal compares portals: IP addresses by their value, names without case.
func samePortal(a, b win.ISCSIPortal) bool {
	return a.Port == b.Port && sameAddress(a.Address, b.Address)
}

func sameAddress(a, b string) bool {
	ipA, errA := netip.ParseAddr(a)
	ipB, errB := netip.ParseAddr(b)
	if errA == nil && errB == nil {
		return ipA == ipB
	}
	return strings.EqualFold(a, b)
}

func containsPortal(portals []win.ISCSIPortal, p win.ISCSIPortal) bool {
	return slices.ContainsFunc(portals, func(other win.ISCSIPortal) bool { return samePortal(p, other) })
}

// AddISCSISendTargetPortal is AddIScsiSendTargetPortalW. A portal that is known
// already is asked again.
func (s *System) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return s.iscsiCall(ctx, win.CallAddISCSIPortal, portalObject(p), func(i *initiatorRecord) error {
		if err := s.discover(p); err != nil {
			return err
		}
		if !containsPortal(i.Portals, p) {
			i.Portals, s.changed = append(i.Portals, p), true
		}
		return nil
	})
}

// RemoveISCSISendTargetPortal is RemoveIScsiSendTargetPortalW. The targets of which
// only this portal has told are forgotten; sessions go on.
func (s *System) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return s.iscsiCall(ctx, win.CallRemoveISCSIPortal, portalObject(p), func(i *initiatorRecord) error {
		if !containsPortal(i.Portals, p) {
			return win.ISDSCPortalNotFound
		}
		i.Portals = slices.DeleteFunc(i.Portals, func(other win.ISCSIPortal) bool { return samePortal(p, other) })
		i.Discovered = slices.DeleteFunc(i.Discovered, func(d discovered) bool { return samePortal(p, d.Portal) })
		s.changed = true
		return nil
	})
}

// RefreshISCSISendTargetPortal is RefreshIScsiSendTargetPortalW.
func (s *System) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return s.iscsiCall(ctx, win.CallRefreshISCSIPortal, portalObject(p), func(i *initiatorRecord) error {
		if !containsPortal(i.Portals, p) {
			return win.ISDSCPortalNotFound
		}
		return s.discover(p)
	})
}

// ISCSISendTargetPortals is ReportIScsiSendTargetPortalsExW.
func (s *System) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	var portals []win.ISCSIPortal
	err := s.iscsiCall(ctx, win.CallISCSIPortals, "", func(i *initiatorRecord) error {
		portals = slices.Clone(i.Portals)
		return nil
	})
	return portals, err
}

// ISCSITargets is ReportIScsiTargetsW: what was discovered, and what has a session.
func (s *System) ISCSITargets(ctx context.Context) ([]string, error) {
	var names []string
	err := s.iscsiCall(ctx, win.CallISCSITargets, "", func(i *initiatorRecord) error {
		for _, d := range i.Discovered {
			names = append(names, d.Target)
		}
		for _, session := range i.Sessions {
			names = append(names, session.Target)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		return nil
	})
	return names, err
}

// ISCSIDiscoveryMechanisms is GetIScsiTargetInformationW(DiscoveryMechanisms).
func (s *System) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	var mechanisms []string
	err := s.iscsiCall(ctx, win.CallISCSITargetInformation, target, func(i *initiatorRecord) error {
		if !i.knows(target) {
			return win.ISDSCTargetNotFound
		}
		for _, d := range i.Discovered {
			if strings.EqualFold(d.Target, target) {
				text := fmt.Sprintf(`SendTargets:*%s %07d %s`, d.Portal.Address, d.Portal.Port, initiatorInstance)
				mechanisms = append(mechanisms, text)
			}
		}
		return nil
	})
	return mechanisms, err
}

// knows reports whether a target is in the initiator's list.
func (i *initiatorRecord) knows(target string) bool {
	_, connected := i.sessionOf(target)
	return connected || slices.ContainsFunc(i.Discovered, func(d discovered) bool { return strings.EqualFold(d.Target, target) })
}

func (i *initiatorRecord) sessionOf(target string) (initiatorSession, bool) {
	return i.session(func(session initiatorSession) bool { return strings.EqualFold(session.Target, target) })
}

func (i *initiatorRecord) session(f func(initiatorSession) bool) (initiatorSession, bool) {
	if at := slices.IndexFunc(i.Sessions, f); at >= 0 {
		return i.Sessions[at], true
	}
	return initiatorSession{}, false
}

// discover asks a portal for its targets and notes them, instead of what it has told
// before.
func (s *System) discover(p win.ISCSIPortal) error {
	if err := s.node.Network.reach(p); err != nil {
		return err
	}
	i := &s.node.Initiator
	i.Discovered = slices.DeleteFunc(i.Discovered, func(d discovered) bool { return samePortal(p, d.Portal) })
	for _, t := range s.node.Network.Targets {
		if containsPortal(t.Portals, p) {
			i.Discovered = append(i.Discovered, discovered{t.IQN, p})
		}
	}
	s.changed = true
	return nil
}

// LoginISCSITarget is LoginIScsiTargetW for a session that isn't persistent.
func (s *System) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error) {
	var id win.ISCSISessionID
	err := s.iscsiCall(ctx, win.CallLoginISCSITarget, l.Target+" "+portalObject(l.Portal), func(i *initiatorRecord) error {
		login, err := s.iscsiLogin(l)
		if err != nil {
			return err
		}
		if !i.knows(l.Target) {
			return win.ISDSCTargetNotFound
		}
		id, err = s.login(login)
		return err
	})
	return id, err
}

// iscsiLogin checks a login and takes its secret away.
func (s *System) iscsiLogin(l win.ISCSILogin) (iscsiLogin, error) {
	login := iscsiLogin{Target: l.Target, Portal: l.Portal, AuthType: l.AuthType, Username: l.Username}
	switch l.AuthType {
	case win.ISCSINoAuth:
		return login, nil
	case win.ISCSICHAP, win.ISCSIMutualCHAP:
		if err := checkCHAPSecret(l.Secret); err != nil {
			return login, err
		}
		var err error
		login.Secret, err = s.node.Network.hash(l.Secret)
		return login, err
	}
	return login, win.ErrorInvalidParameter
}

// checkCHAPSecret checks the length of a secret for a connection without IPsec.
func checkCHAPSecret(chap secret.Text) error {
	switch n := len(chap.Reveal()); {
	case n < minCHAPSecret:
		return win.ISDSCShortCHAPSecret
	case n > maxCHAPSecret:
		return win.ISDSCInvalidCHAPSecret
	}
	return nil
}

// login makes a session, whose disks arrive later.
func (s *System) login(l iscsiLogin) (win.ISCSISessionID, error) {
	i := &s.node.Initiator
	if _, connected := i.sessionOf(l.Target); connected {
		return win.ISCSISessionID{}, win.ISDSCTargetAlreadyLoggedIn
	}
	if err := s.node.Network.reach(l.Portal); err != nil {
		return win.ISCSISessionID{}, err
	}
	t, ok := s.node.Network.target(l.Target)
	if !ok || !containsPortal(t.Portals, l.Portal) {
		return win.ISCSISessionID{}, win.ISDSCNotFound
	}
	if err := t.authenticate(l, i.CHAPSecret); err != nil {
		return win.ISCSISessionID{}, err
	}
	i.LastSession++
	session := initiatorSession{
		ID:     win.ISCSISessionID{AdapterUnique: 0xFFFF8000_00001000, AdapterSpecific: 0x4000013700000000 + i.LastSession},
		Target: t.IQN, Portal: l.Portal,
	}
	i.Sessions, s.changed = append(i.Sessions, session), true
	s.attachLUNs(t.IQN)
	return session.ID, nil
}

// LogoutISCSITarget is LogoutIScsiTarget. It is refused while anything of the
// session's disks is open.
func (s *System) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	return s.sessionCall(ctx, win.CallLogoutISCSITarget, id, func(session initiatorSession) error {
		for _, d := range s.disks.luns(session.Target) {
			if s.diskInUse(d) {
				return win.ISDSCDeviceBusyOnSession
			}
		}
		for _, d := range s.disks.luns(session.Target) {
			for _, t := range d.trees { // the volumes are dismounted in order
				t.fs.Flush()
			}
		}
		s.endSession(session)
		return nil
	})
}

// diskInUse reports whether the disk, one of its volumes or anything on them is open.
func (s *System) diskInUse(d *disk) bool {
	return s.handles.any(func(h *handle) bool {
		_, on := s.volumes.find(func(v *volume) bool { return v.disk == d && h.on(v) })
		return on || h.disk == d
	})
}

// sessionCall runs a call about a session.
func (s *System) sessionCall(ctx context.Context, name string, id win.ISCSISessionID, f func(initiatorSession) error) error {
	find := func() (initiatorSession, bool) {
		return s.node.Initiator.session(func(session initiatorSession) bool { return session.ID == id })
	}
	s.mu.Lock()
	session, _ := find()
	s.mu.Unlock()
	return s.iscsiCall(ctx, name, session.Target, func(*initiatorRecord) error {
		session, ok := find()
		if !ok {
			return win.ISDSCInvalidSessionID
		}
		return f(session)
	})
}

// endSession takes a session and its disks away.
func (s *System) endSession(session initiatorSession) {
	i := &s.node.Initiator
	i.Sessions = slices.DeleteFunc(i.Sessions, func(other initiatorSession) bool { return other.ID == session.ID })
	s.changed = true
	s.detachLUNs(session.Target)
}

// ISCSISessions is GetIScsiSessionListW.
func (s *System) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	var sessions []win.ISCSISession
	err := s.iscsiCall(ctx, win.CallISCSISessions, "", func(i *initiatorRecord) error {
		for _, session := range i.Sessions {
			sessions = append(sessions, win.ISCSISession{ID: session.ID, Target: session.Target})
		}
		return nil
	})
	return sessions, err
}

// ISCSISessionDevices is GetDevicesForIScsiSessionW. Paths of multipath disks aren't
// among them.
func (s *System) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	var devices []win.ISCSIDevice
	err := s.sessionCall(ctx, win.CallISCSISessionDevices, id, func(session initiatorSession) error {
		for _, d := range s.disks.luns(session.Target) {
			if d.State == DiskShelved || d.Spec.MultipathMember {
				continue
			}
			number := win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: win.NoNumber}
			if d.present() {
				number.DeviceNumber = diskapi.Number(d.Number)
			}
			devices = append(devices, win.ISCSIDevice{SCSIAddress: *d.Spec.SCSI, Device: number})
		}
		return nil
	})
	return devices, err
}

// ISCSIPersistentLogins is ReportIScsiPersistentLoginsW.
func (s *System) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	var logins []win.ISCSIPersistentLogin
	err := s.iscsiCall(ctx, win.CallISCSIPersistentLogins, "", func(i *initiatorRecord) error {
		for _, l := range i.Persistent {
			logins = append(logins, l.reported())
		}
		return nil
	})
	return logins, err
}

// reported is how the initiator tells of a persistent login.
func (l iscsiLogin) reported() win.ISCSIPersistentLogin {
	return win.ISCSIPersistentLogin{Target: l.Target, Initiator: initiatorInstance, InitiatorPort: anyInitiatorPort, Portal: l.Portal}
}

// RemoveISCSIPersistentLogin is RemoveIScsiPersistentTargetW of a login as it is
// reported: ErrorNotFound if it isn't.
func (s *System) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	return s.iscsiCall(ctx, win.CallRemoveISCSIPersistent, l.Target+" "+portalObject(l.Portal), func(i *initiatorRecord) error {
		at := slices.IndexFunc(i.Persistent, func(other iscsiLogin) bool { return other.reported() == l })
		if at < 0 {
			return win.ErrorNotFound
		}
		i.Persistent, s.changed = slices.Delete(i.Persistent, at, at+1), true
		return nil
	})
}

// SetISCSIInitiatorCHAPSecret is SetIScsiInitiatorCHAPSharedSecret.
func (s *System) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap secret.Text) error {
	return s.iscsiCall(ctx, win.CallSetISCSICHAPSecret, "", func(i *initiatorRecord) error {
		if err := checkCHAPSecret(chap); err != nil {
			return err
		}
		hash, err := s.node.Network.hash(chap)
		if err == nil {
			i.CHAPSecret, s.changed = hash, true
		}
		return err
	})
}

// initiatorStarts is the start of the initiator's service: it asks all portals, and
// repeats the persistent logins that have no session. What fails isn't tried again.
func (s *System) initiatorStarts() {
	i := &s.node.Initiator
	for _, p := range i.Portals {
		_ = s.discover(p) // it has told what it has told before
	}
	for _, l := range i.Persistent {
		_, _ = s.login(l) // it has no session then
	}
}

// restartInitiator is what a restart of the node does before it starts services: it
// ends all sessions.
func (s *System) restartInitiator() {
	i := &s.node.Initiator
	for d := range s.disks.all() {
		if d.Target != "" {
			d.State, d.Number, d.Arriving = DiskShelved, win.NoNumber, false
			d.touch()
		}
	}
	i.Sessions, i.Discovered, s.changed = nil, nil, true
}
