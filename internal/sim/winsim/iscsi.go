// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"net"
	"strconv"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// iscsiCall runs a call of iscsidsc.dll, which needs the initiator's service.
func (s *System) iscsiCall(ctx context.Context, name, object string, f func() error) error {
	_, err := iscsiAsk(ctx, s, name, object, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// iscsiAsk is iscsiCall of a call that has an answer.
func iscsiAsk[T any](ctx context.Context, s *System, name, object string, f func() (T, error)) (T, error) {
	return ask(ctx, s, Call{name, object}, func() (answer T, err error) {
		if !s.services.Runs(services.ISCSIInitiator) {
			return answer, winerr.ISDSCServiceNotRunning
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
	return look(s, func() string { return s.iscsi.SessionTarget(id) })
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
func (s *System) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	return iscsiAsk(ctx, s, win.CallISCSIPortals, "", sure(s.iscsi.SendTargetPortals))
}

// ISCSITargets is ReportIScsiTargetsW: what was discovered, and what has a session.
func (s *System) ISCSITargets(ctx context.Context) ([]string, error) {
	return iscsiAsk(ctx, s, win.CallISCSITargets, "", sure(s.iscsi.KnownTargets))
}

// ISCSIDiscoveryMechanisms is GetIScsiTargetInformationW(DiscoveryMechanisms).
func (s *System) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	return iscsiAsk(ctx, s, win.CallISCSITargetInformation, target, func() ([]string, error) {
		return s.iscsi.DiscoveryMechanisms(target)
	})
}

// LoginISCSITarget is LoginIScsiTargetW for a session that isn't persistent.
func (s *System) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error) {
	object := l.Target + " " + portalObject(l.Portal)
	return iscsiAsk(ctx, s, win.CallLoginISCSITarget, object, func() (win.ISCSISessionID, error) {
		return s.iscsi.Login(l)
	})
}

// LogoutISCSITarget is LogoutIScsiTarget. It is refused while anything of the
// session's disks is open.
func (s *System) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	return s.iscsiCall(ctx, win.CallLogoutISCSITarget, s.sessionObject(id), func() error { return s.iscsi.Logout(id) })
}

// ISCSISessions is GetIScsiSessionListW.
func (s *System) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	return iscsiAsk(ctx, s, win.CallISCSISessions, "", sure(s.iscsi.Sessions))
}

// ISCSISessionDevices is GetDevicesForIScsiSessionW. Paths of multipath disks aren't
// among them.
func (s *System) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	return iscsiAsk(ctx, s, win.CallISCSISessionDevices, s.sessionObject(id), func() ([]win.ISCSIDevice, error) {
		return s.iscsi.SessionDevices(id)
	})
}

// ISCSIPersistentLogins is ReportIScsiPersistentLoginsW.
func (s *System) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	return iscsiAsk(ctx, s, win.CallISCSIPersistentLogins, "", sure(s.iscsi.PersistentLogins))
}

// RemoveISCSIPersistentLogin is RemoveIScsiPersistentTargetW of a login as it is
// reported: ErrorNotFound if it isn't.
func (s *System) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	return s.iscsiCall(ctx, win.CallRemoveISCSIPersistent, l.Target+" "+portalObject(l.Portal), func() error {
		return s.iscsi.RemovePersistentLogin(l)
	})
}

// SetISCSIInitiatorCHAPSecret is SetIScsiInitiatorCHAPSharedSecret.
func (s *System) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap csiproxy.Secret) error {
	return s.iscsiCall(ctx, win.CallSetISCSICHAPSecret, "", func() error { return s.iscsi.SetInitiatorCHAPSecret(chap) })
}
