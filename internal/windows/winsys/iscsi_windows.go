// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The iSCSI initiator is the service MSiSCSI, which iscsidsc.dll calls. Such calls are
// uninterruptible; after the end of ctx, new calls fail at once. Errors are those of the service.
//
// Portals and sessions are those of all initiator ports of the node.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/

// AddISCSISendTargetPortal implements [win.ISCSIPortals].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-addiscsisendtargetportalw
func (s *System) AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return callWithPortal(ctx, p, func(portal *targetPortal) error {
		return addISCSISendTargetPortal(nil, iscsiAllInitiatorPorts, nil, 0, portal)
	})
}

// RemoveISCSISendTargetPortal is RemoveIScsiSendTargetPortalW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-removeiscsisendtargetportalw
func (s *System) RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return callWithPortal(ctx, p, func(portal *targetPortal) error {
		return removeISCSISendTargetPortal(nil, iscsiAllInitiatorPorts, portal)
	})
}

// RefreshISCSISendTargetPortal implements [win.ISCSIPortals].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-refreshiscsisendtargetportalw
func (s *System) RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error {
	return callWithPortal(ctx, p, func(portal *targetPortal) error {
		return refreshISCSISendTargetPortal(nil, iscsiAllInitiatorPorts, portal)
	})
}

// ISCSISendTargetPortals is ReportIScsiSendTargetPortalsExW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-reportiscsisendtargetportalsexw
func (s *System) ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error) {
	var count uint32
	return iscsiReport(ctx, 1, func(size *uint32, buf []byte) error {
		return iscsiStatus(reportISCSISendTargetPortals(&count, size, &buf[0]))
	}, func(buf []byte) ([]win.ISCSIPortal, error) { return decodePortals(buf, count) })
}

// ISCSITargets implements [win.ISCSIPortals].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-reportiscsitargetsw
func (s *System) ISCSITargets(ctx context.Context) ([]string, error) {
	return iscsiReport(ctx, 2, func(units *uint32, buf []byte) error {
		return iscsiStatus(reportISCSITargets(false, units, &buf[0]))
	}, decodeMultiSZ)
}

// ISCSIDiscoveryMechanisms implements [win.ISCSIPortals].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getiscsitargetinformationw
func (s *System) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	name, err := iscsiNamePtr(target)
	if err != nil {
		return nil, err
	}
	// The size is in bytes. The buffer has room for the same number of UTF-16 units, in case
	// Windows takes the size as units, as ReportIScsiTargetsW does.
	return iscsiReport(ctx, 2, func(size *uint32, buf []byte) error {
		return iscsiStatus(getISCSITargetInformation(name, nil, iscsiDiscoveryMechanisms, size, &buf[0]))
	}, decodeMultiSZ)
}

// LoginISCSITarget implements [win.ISCSISessions].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-loginiscsitargetw
func (s *System) LoginISCSITarget(ctx context.Context, l win.ISCSILogin) (win.ISCSISessionID, error) {
	name, err := iscsiNamePtr(l.Target)
	if err != nil {
		return win.ISCSISessionID{}, err
	}
	options, erase := newLoginOptions(l)
	defer erase()
	var session, connection iscsiUniqueID
	err = callWithPortal(ctx, l.Portal, func(portal *targetPortal) error {
		return loginISCSITarget(name, false, nil, iscsiAllInitiatorPorts, portal, 0, nil, options, 0, nil, false,
			&session, &connection)
	})
	return session, err
}

// LogoutISCSITarget implements [win.ISCSISessions].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-logoutiscsitarget
func (s *System) LogoutISCSITarget(ctx context.Context, id win.ISCSISessionID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return iscsiStatus(logoutISCSITarget(&id))
}

// ISCSISessions is GetIScsiSessionListW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getiscsisessionlistw
func (s *System) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	var count uint32
	return iscsiReport(ctx, 1, func(size *uint32, buf []byte) error {
		return iscsiStatus(getISCSISessionList(size, &count, &buf[0]))
	}, func(buf []byte) ([]win.ISCSISession, error) {
		return decodeSessions(buf, uint64(uintptr(unsafe.Pointer(&buf[0]))), count)
	})
}

// ISCSISessionDevices is GetDevicesForIScsiSessionW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getdevicesforiscsisessionw
func (s *System) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	var count uint32
	size := uint32(unsafe.Sizeof(deviceOnSession{}))
	return iscsiReport(ctx, size, func(room *uint32, buf []byte) error {
		err := iscsiStatus(getDevicesForISCSISession(&id, room, &buf[0]))
		count = *room
		return err
	}, func(buf []byte) ([]win.ISCSIDevice, error) { return decodeSessionDevices(buf, count) })
}

// ISCSIPersistentLogins is ReportIScsiPersistentLoginsW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-reportiscsipersistentloginsw
func (s *System) ISCSIPersistentLogins(ctx context.Context) ([]win.ISCSIPersistentLogin, error) {
	infos, err := persistentLogins(ctx)
	if err != nil {
		return nil, err
	}
	logins := make([]win.ISCSIPersistentLogin, len(infos))
	for i := range infos {
		logins[i] = infos[i].decode()
	}
	return logins, nil
}

func persistentLogins(ctx context.Context) ([]persistentLogin, error) {
	var count uint32
	return iscsiReport(ctx, 1, func(size *uint32, buf []byte) error {
		return iscsiStatus(reportISCSIPersistentLogins(&count, &buf[0], size))
	}, func(buf []byte) ([]persistentLogin, error) { return decodePersistentLogins(buf, count) })
}

// RemoveISCSIPersistentLogin is RemoveIScsiPersistentTargetW with the values returned by
// ReportIScsiPersistentLoginsW for the login, including the symbolic name of its portal. For an
// unknown login, the error is [winerr.ErrorNotFound].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-removeiscsipersistenttargetw
func (s *System) RemoveISCSIPersistentLogin(ctx context.Context, l win.ISCSIPersistentLogin) error {
	logins, err := persistentLogins(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(logins, func(login persistentLogin) bool { return login.decode() == l })
	if i < 0 {
		return winerr.ErrorNotFound
	}
	login := &logins[i]
	initiator, err := utf16Ptr(l.Initiator)
	if err != nil {
		return err
	}
	target, err := utf16Ptr(l.Target)
	if err != nil {
		return err
	}
	return iscsiStatus(removeISCSIPersistentTarget(initiator, login.initiatorPortNumber, target, &login.targetPortal))
}

// SetISCSIInitiatorCHAPSecret implements [win.ISCSISessions].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-setiscsiinitiatorchapsharedsecret
func (s *System) SetISCSIInitiatorCHAPSecret(ctx context.Context, chap csiproxy.Secret) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b := revealedBytes(chap)
	defer clear(b)
	return iscsiStatus(setISCSIInitiatorCHAPSharedSecret(uint32(len(b)), bytesPtr(b)))
}

// callWithPortal makes one call with a portal.
func callWithPortal(ctx context.Context, p win.ISCSIPortal, call func(*targetPortal) error) error {
	portal, err := newTargetPortal(p)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return iscsiStatus(call(portal))
}

func iscsiNamePtr(name string) (*uint16, error) {
	if err := checkISCSIName(name); err != nil {
		return nil, err
	}
	return utf16Ptr(name)
}

// iscsiStatus returns the error of a call: an ISDSC_STATUS, or the error for a Windows without the
// DLL or the function.
func iscsiStatus(err error) error {
	switch e := err.(type) {
	case syscall.Errno:
		return winerr.Errno(e)
	case *windows.DLLError:
		return fmt.Errorf("%s: %w", e.ObjName, errno(e.Err))
	}
	return err
}
