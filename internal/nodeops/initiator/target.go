// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/iscsi"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// ConnectTarget implements [iscsi.Operations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-loginiscsitargetw
func (i *Initiator) ConnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN, a iscsi.Authentication) error {
	return i.do(ctx, "ConnectTarget", targetObject(iqn), func(ctx context.Context) error {
		portal, err := checkPortal(p)
		if err != nil {
			return err
		}
		if err := iqn.Validate(); err != nil {
			return err
		}
		login, err := login(a, portal, iqn)
		if err != nil {
			return err
		}
		unlock, err := i.lock(ctx, iqn)
		if err != nil {
			return err
		}
		defer unlock()
		sessions, err := i.sessions(ctx, iqn)
		if err != nil {
			return err
		}
		if len(sessions) == 0 {
			err := i.login(ctx, login)
			if errors.Is(err, win.ISDSCTargetNotFound) {
				err = i.discoverAndLogin(ctx, login)
			}
			there := errors.Is(err, win.ISDSCTargetAlreadyLoggedIn) || errors.Is(err, win.ISDSCSessionAlreadyExists)
			if err != nil && !there {
				return err
			}
		}
		_, err = i.awaitDisks(ctx, iqn)
		return err
	})
}

func (i *Initiator) login(ctx context.Context, l win.ISCSILogin) error {
	return i.call(ctx, func() error {
		_, err := i.sys.LoginISCSITarget(ctx, l)
		return err
	})
}

// discoverAndLogin logs in to a target that may have come to its portal since the
// portal was asked last.
func (i *Initiator) discoverAndLogin(ctx context.Context, l win.ISCSILogin) error {
	portal, known, err := i.known(ctx, l.Portal)
	if err != nil {
		return err
	}
	if !known {
		return win.ISDSCTargetNotFound
	}
	if err := i.call(ctx, func() error { return i.sys.RefreshISCSISendTargetPortal(ctx, portal) }); err != nil {
		return err
	}
	return i.login(ctx, l)
}

// logoutPatience is how long a session may be busy.
const logoutPatience = 5 * time.Second

// DisconnectTarget implements [iscsi.Operations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-logoutiscsitarget,
// https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-removeiscsipersistenttargetw
func (i *Initiator) DisconnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) error {
	return i.do(ctx, "DisconnectTarget", targetObject(iqn), func(ctx context.Context) error {
		portal, err := checkPortal(p)
		if err != nil {
			return err
		}
		if err := iqn.Validate(); err != nil {
			return err
		}
		unlock, err := i.lock(ctx, iqn)
		if err != nil {
			return err
		}
		defer unlock()
		if err := i.forget(ctx, portal, iqn); err != nil {
			return err
		}
		err = operation.Retry(ctx, logoutPatience, retryInterval, busy, func() error { return i.logout(ctx, iqn) })
		if busy(err) && ctx.Err() == nil {
			err = &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "a disk of the target is in use", Err: err}
		}
		return err
	})
}

// forget removes the persistent logins to a target through a portal.
func (i *Initiator) forget(ctx context.Context, p win.ISCSIPortal, iqn iscsi.IQN) error {
	logins, err := query(ctx, i, i.sys.ISCSIPersistentLogins)
	if err != nil {
		return err
	}
	for _, l := range logins {
		if !iqn.Equal(iscsi.IQN(l.Target)) || !samePortal(l.Portal, p) {
			continue
		}
		err := i.sys.RemoveISCSIPersistentLogin(ctx, l)
		if err != nil && !errors.Is(err, win.ErrorNotFound) { // somebody else did
			return err
		}
	}
	return nil
}

// logout ends the sessions with a target.
func (i *Initiator) logout(ctx context.Context, iqn iscsi.IQN) error {
	sessions, err := i.sessions(ctx, iqn)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		err := i.sys.LogoutISCSITarget(ctx, s.ID)
		if err == nil {
			continue
		}
		left, listErr := i.sessions(ctx, iqn)
		if listErr != nil {
			return listErr
		}
		if slices.Contains(left, s) { // else it has ended by itself
			return err
		}
	}
	return nil
}

// busy reports whether a session can't end for now.
func busy(err error) bool {
	return errors.Is(err, win.ISDSCDeviceBusyOnSession) || errors.Is(err, win.ISDSCSessionBusy) || errors.Is(err, win.ISDSCRemoveConnectionInProgress)
}

// GetTargetDisks implements [iscsi.Operations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getdevicesforiscsisessionw
func (i *Initiator) GetTargetDisks(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) ([]disk.Number, error) {
	return operation.Get(ctx, i.options.Runner, "GetTargetDisks", targetObject(iqn), func(ctx context.Context) ([]disk.Number, error) {
		if _, err := checkPortal(p); err != nil {
			return nil, err
		}
		if err := iqn.Validate(); err != nil {
			return nil, err
		}
		return i.awaitDisks(ctx, iqn)
	})
}

// sessions returns the sessions with a target.
func (i *Initiator) sessions(ctx context.Context, iqn iscsi.IQN) ([]win.ISCSISession, error) {
	all, err := query(ctx, i, i.sys.ISCSISessions)
	return slices.DeleteFunc(all, func(s win.ISCSISession) bool { return !iqn.Equal(iscsi.IQN(s.Target)) }), err
}

func (i *Initiator) lock(ctx context.Context, iqn iscsi.IQN) (unlock func(), err error) {
	return i.locks.Lock(ctx, strings.ToLower(string(iqn)))
}

// object names the target in errors.
func targetObject(n iscsi.IQN) string { return "target " + quote.Text(string(n)) }
