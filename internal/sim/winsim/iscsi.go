// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"net"
	"strconv"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// iscsiCall runs a call of iscsidsc.dll, which needs the initiator's service.
func (s *System) iscsiCall(ctx context.Context, name, object string, f func() error) error {
	return s.call(ctx, Call{name, object}, func() error {
		if !s.services.Runs(services.ISCSIInitiator) {
			return win.ISDSCServiceNotRunning
		}
		return f()
	})
}

// portalObject names a portal for hooks and rules.
func portalObject(p win.ISCSIPortal) string {
	return net.JoinHostPort(p.Address, strconv.FormatUint(uint64(p.Port), 10))
}

// sessionObject names a session for hooks and rules: by its target.
func (s *System) sessionObject(id win.ISCSISessionID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.iscsi.SessionTarget(id)
}

// AddISCSISendTargetPortal is AddIScsiSendTargetPortalW. A portal that is known
// already is asked again.
func (s *System) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return s.iscsiCall(ctx, win.CallAddISCSIPortal, portalObject(p), func() error {
		return s.iscsi.AddSendTargetPortal(p)
	})
}

// RemoveISCSISendTargetPortal is RemoveIScsiSendTargetPortalW. The targets of which
// only this portal has told are forgotten; sessions go on.
func (s *System) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return s.iscsiCall(ctx, win.CallRemoveISCSIPortal, portalObject(p), func() error {
		return s.iscsi.RemoveSendTargetPortal(p)
	})
}

// RefreshISCSISendTargetPortal is RefreshIScsiSendTargetPortalW.
func (s *System) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return s.iscsiCall(ctx, win.CallRefreshISCSIPortal, portalObject(p), func() error {
		return s.iscsi.RefreshSendTargetPortal(p)
	})
}

// ISCSISendTargetPortals is ReportIScsiSendTargetPortalsExW.
func (s *System) ISCSISendTargetPortals(ctx context.Context) (portals []win.ISCSIPortal, err error) {
	err = s.iscsiCall(ctx, win.CallISCSIPortals, "", func() error {
		portals = s.iscsi.SendTargetPortals()
		return nil
	})
	return portals, err
}

// ISCSITargets is ReportIScsiTargetsW: what was discovered, and what has a session.
func (s *System) ISCSITargets(ctx context.Context) (names []string, err error) {
	err = s.iscsiCall(ctx, win.CallISCSITargets, "", func() error {
		names = s.iscsi.KnownTargets()
		return nil
	})
	return names, err
}

// ISCSIDiscoveryMechanisms is GetIScsiTargetInformationW(DiscoveryMechanisms).
func (s *System) ISCSIDiscoveryMechanisms(ctx context.Context, target string) (mechanisms []string, err error) {
	err = s.iscsiCall(ctx, win.CallISCSITargetInformation, target, func() error {
		mechanisms, err = s.iscsi.DiscoveryMechanisms(target)
		return err
	})
	return mechanisms, err
}

// LoginISCSITarget is LoginIScsiTargetW for a session that isn't persistent.
func (s *System) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (id win.ISCSISessionID, err error) {
	err = s.iscsiCall(ctx, win.CallLoginISCSITarget, l.Target+" "+portalObject(l.Portal), func() error {
		id, err = s.iscsi.Login(l)
		return err
	})
	return id, err
}

// LogoutISCSITarget is LogoutIScsiTarget. It is refused while anything of the
// session's disks is open.
func (s *System) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	return s.iscsiCall(ctx, win.CallLogoutISCSITarget, s.sessionObject(id), func() error { return s.iscsi.Logout(id) })
}

// ISCSISessions is GetIScsiSessionListW.
func (s *System) ISCSISessions(ctx context.Context) (sessions []win.ISCSISession, err error) {
	err = s.iscsiCall(ctx, win.CallISCSISessions, "", func() error {
		sessions = s.iscsi.Sessions()
		return nil
	})
	return sessions, err
}

// ISCSISessionDevices is GetDevicesForIScsiSessionW. Paths of multipath disks aren't
// among them.
func (s *System) ISCSISessionDevices(ctx context.Context,
	id win.ISCSISessionID) (devices []win.ISCSIDevice, err error) {
	err = s.iscsiCall(ctx, win.CallISCSISessionDevices, s.sessionObject(id), func() error {
		devices, err = s.iscsi.SessionDevices(id)
		return err
	})
	return devices, err
}

// ISCSIPersistentLogins is ReportIScsiPersistentLoginsW.
func (s *System) ISCSIPersistentLogins(ctx context.Context) (logins []win.ISCSIPersistentLogin, err error) {
	err = s.iscsiCall(ctx, win.CallISCSIPersistentLogins, "", func() error {
		logins = s.iscsi.PersistentLogins()
		return nil
	})
	return logins, err
}

// RemoveISCSIPersistentLogin is RemoveIScsiPersistentTargetW of a login as it is
// reported: ErrorNotFound if it isn't.
func (s *System) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	return s.iscsiCall(ctx, win.CallRemoveISCSIPersistent, l.Target+" "+portalObject(l.Portal), func() error {
		return s.iscsi.RemovePersistentLogin(l)
	})
}

// SetISCSIInitiatorCHAPSecret is SetIScsiInitiatorCHAPSharedSecret.
func (s *System) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap secret.Text) error {
	return s.iscsiCall(ctx, win.CallSetISCSICHAPSecret, "", func() error { return s.iscsi.SetInitiatorCHAPSecret(chap) })
}
