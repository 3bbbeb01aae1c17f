// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// ConnectTarget implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-loginiscsitargetw
func (i *Initiator) ConnectTarget(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN, a csiproxy.ISCSIAuthentication) error {
	isFirst := i.noteDriver(iqn)
	err := i.Connect(ctx, p, iqn, csiproxy.ISCSILogin{ISCSIAuthentication: a})
	if err != nil && isFirst {
		i.dropDriver(iqn)
	}
	return err
}

// maxOfDrivers bounds the records of noteDriver. A node has far fewer connected targets.
const maxOfDrivers = 4096

// noteDriver records a target connected by a driver through ConnectTarget. LogOut then keeps the
// target connected until the driver disconnects it. isFirst is true if the record is new.
func (i *Initiator) noteDriver(iqn csiproxy.IQN) (isFirst bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := strings.ToLower(string(iqn))
	isFirst = !i.ofDrivers[key]
	if isFirst && len(i.ofDrivers) == maxOfDrivers {
		for other := range i.ofDrivers {
			delete(i.ofDrivers, other)
			break
		}
	}
	i.ofDrivers[key] = true
	return isFirst
}

// dropDriver drops the record.
func (i *Initiator) dropDriver(iqn csiproxy.IQN) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.ofDrivers, strings.ToLower(string(iqn)))
}

func (i *Initiator) isOfDriver(iqn csiproxy.IQN) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ofDrivers[strings.ToLower(string(iqn))]
}

// Connect is ConnectTarget for a login with an optional mutual CHAP secret of the node. Connect
// sets the secret if the node has to log in.
func (i *Initiator) Connect(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN, l csiproxy.ISCSILogin) (err error) {
	defer i.options.Observer.End("ConnectTarget", targetObject(iqn), time.Now(), &err)
	login, err := checkLogin(p, iqn, l)
	if err != nil {
		return err
	}
	at := place{login.Portal, i.Owners(p)}
	unlock, err := i.options.Targets.Lock(ctx, at.owners, iqn)
	if err != nil {
		return err
	}
	defer unlock()
	sessions, err := i.sessions(ctx, at, iqn)
	if err != nil {
		return err
	}
	if len(sessions) == 0 {
		if l.MutualSecret.Reveal() != "" {
			if err := i.setMutualSecret(ctx, l.MutualSecret); err != nil {
				return err
			}
		}
		err := i.login(ctx, login)
		if errors.Is(err, winerr.ISDSCTargetNotFound) {
			err = i.discoverAndLogin(ctx, login)
		}
		switch {
		case winerr.IsAny(err, winerr.ISDSCTargetAlreadyLoggedIn, winerr.ISDSCSessionAlreadyExists):
			if err := i.checkConnected(ctx, at, iqn, err); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
	_, err = i.awaitDisks(ctx, at, iqn)
	return err
}

// checkConnected returns an error if there is no session with a target that is connected according
// to loginErr: another owner has connected the target, through its own portal. The locks of two
// owners do not exclude each other.
func (i *Initiator) checkConnected(ctx context.Context, at place, iqn csiproxy.IQN, loginErr error) error {
	if i.areAll(at.owners) {
		return nil
	}
	sessions, err := i.sessions(ctx, at, iqn)
	if err == nil && len(sessions) == 0 {
		err = &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: loginErr,
			Detail: "another program has connected the target, but not through this portal; try again"}
	}
	return err
}

func (i *Initiator) login(ctx context.Context, l win.ISCSILogin) error {
	err := i.call(ctx, func() error {
		_, err := i.sys.LoginISCSITarget(ctx, l)
		return err
	})
	if err == nil {
		i.options.Logger.Info("target connected", "target", l.Target, "portal", csiproxy.ISCSIPortal(l.Portal).String())
	}
	return err
}

// discoverAndLogin rediscovers the portal's targets, in case the target is new, and logs in.
func (i *Initiator) discoverAndLogin(ctx context.Context, l win.ISCSILogin) error {
	portal, known, err := i.known(ctx, l.Portal)
	if err != nil {
		return err
	}
	if !known {
		return winerr.ISDSCTargetNotFound
	}
	if err := i.call(ctx, func() error { return i.sys.RefreshISCSISendTargetPortal(ctx, portal) }); err != nil {
		return err
	}
	return i.login(ctx, l)
}

// logoutTimeout is how long a logout is retried while the session is busy.
const logoutTimeout = 5 * time.Second

// DisconnectTarget implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-logoutiscsitarget,
// https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-removeiscsipersistenttargetw
func (i *Initiator) DisconnectTarget(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) (err error) {
	defer i.options.Observer.End("DisconnectTarget", targetObject(iqn), time.Now(), &err)
	portal, err := win.ParsePortal(p)
	if err != nil {
		return err
	}
	if err := iqn.Validate(); err != nil {
		return err
	}
	at := place{portal, i.Owners(p)}
	unlock, err := i.options.Targets.Lock(ctx, at.owners, iqn)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := i.sessions(ctx, at, iqn); err != nil {
		return err
	}
	if err := i.forget(ctx, portal, iqn); err != nil {
		return err
	}
	if err := i.logoutWhenFree(ctx, at, iqn); err != nil {
		return err
	}
	i.dropDriver(iqn)
	return nil
}

// CheckLogin checks the arguments of Connect, as far as possible without the node's state.
func (i *Initiator) CheckLogin(p csiproxy.ISCSIPortal, iqn csiproxy.IQN, l csiproxy.ISCSILogin) error {
	_, err := checkLogin(p, iqn, l)
	return err
}

// checkLogin checks the arguments of a login, and returns them in Windows' form.
func checkLogin(p csiproxy.ISCSIPortal, iqn csiproxy.IQN, l csiproxy.ISCSILogin) (win.ISCSILogin, error) {
	portal, err := win.ParsePortal(p)
	if err != nil {
		return win.ISCSILogin{}, err
	}
	if err := iqn.Validate(); err != nil {
		return win.ISCSILogin{}, err
	}
	if l.MutualSecret.Reveal() != "" {
		if l.Type != csiproxy.ISCSIMutualCHAP {
			return win.ISCSILogin{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument,
				"a mutual CHAP secret is given for a login without mutual CHAP")
		}
		if err := checkSecret(l.MutualSecret); err != nil {
			return win.ISCSILogin{}, err
		}
	}
	return login(l.ISCSIAuthentication, portal, iqn)
}

// LogOut ends the sessions with a target for calls at a portal (see Owners), and reports whether
// there were any. It keeps sessions with a login that Windows repeats at the start of the node: an
// administrator has set them up. It also keeps sessions with a target connected by a driver through
// ConnectTarget, until the driver disconnects the target: the driver may still have to bring the
// target's disk online.
func (i *Initiator) LogOut(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) (_ bool, err error) {
	defer i.options.Observer.End("DisconnectTarget", targetObject(iqn), time.Now(), &err)
	owners := i.Owners(p)
	unlock, err := i.options.Targets.Lock(ctx, owners, iqn)
	if err != nil {
		return false, err
	}
	defer unlock()
	if i.isOfDriver(iqn) {
		return false, nil
	}
	logins, err := query(ctx, i, i.sys.ISCSIPersistentLogins)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(logins, func(l win.ISCSIPersistentLogin) bool { return iqn.Equal(csiproxy.IQN(l.Target)) }) {
		return false, nil
	}
	all, err := query(ctx, i, i.sys.ISCSISessions)
	if err != nil {
		return false, err
	}
	index := slices.IndexFunc(all, func(s win.ISCSISession) bool {
		return iqn.Equal(csiproxy.IQN(s.Target)) && len(s.Portals) > 0 && i.isOf(s, owners)
	})
	if index < 0 {
		return false, nil
	}
	return true, i.logoutWhenFree(ctx, place{all[index].Portals[0], owners}, iqn)
}

// logoutWhenFree retries logout for a moment while a disk of the target is in use.
func (i *Initiator) logoutWhenFree(ctx context.Context, at place, iqn csiproxy.IQN) error {
	err := operation.Retry(ctx, logoutTimeout, retryInterval, sessionBusy, func() error { return i.logout(ctx, at, iqn) })
	if winerr.IsAny(err, sessionBusy...) && ctx.Err() == nil {
		err = &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
			Detail: "a disk of the target is in use; end that use, then try again", Err: err}
	}
	return err
}

// forget removes the persistent logins to a target through a portal.
func (i *Initiator) forget(ctx context.Context, p win.ISCSIPortal, iqn csiproxy.IQN) error {
	logins, err := query(ctx, i, i.sys.ISCSIPersistentLogins)
	if err != nil {
		return err
	}
	for _, l := range logins {
		if !iqn.Equal(csiproxy.IQN(l.Target)) || !win.SamePortal(l.Portal, p) {
			continue
		}
		err := i.sys.RemoveISCSIPersistentLogin(ctx, l)
		if err != nil && !errors.Is(err, winerr.ErrorNotFound) { // somebody else did
			return err
		}
		if err == nil {
			i.options.Logger.Info("persistent login removed", "target", l.Target, "portal", csiproxy.ISCSIPortal(l.Portal).String())
		}
	}
	return nil
}

// logout ends the current sessions with a target. It ends them by their ids, and a session begun by
// somebody else meanwhile stays.
func (i *Initiator) logout(ctx context.Context, at place, iqn csiproxy.IQN) error {
	sessions, err := i.sessions(ctx, at, iqn)
	if err != nil {
		return err
	}
	for _, s := range sessions {
		if len(s.Portals) == 0 && !i.areAll(at.owners) { // another owner may use the session: its calls are not excluded
			return csiproxy.Errorf(csiproxy.ErrUnavailable, "a session with the target has no connection now; try again later")
		}
		err := i.sys.LogoutISCSITarget(ctx, s.ID)
		if err == nil {
			i.options.Logger.Info("target disconnected", "target", s.Target, "portal", csiproxy.ISCSIPortal(at.portal).String())
			continue
		}
		left, listErr := query(ctx, i, i.sys.ISCSISessions)
		if listErr != nil {
			return listErr
		}
		if slices.ContainsFunc(left, func(l win.ISCSISession) bool { return l.ID == s.ID }) { // otherwise the session has ended by itself
			return err
		}
	}
	return nil
}

// sessionBusy are the errors of a logout from a session that is too busy to end now.
var sessionBusy = []winerr.Errno{
	winerr.ISDSCDeviceBusyOnSession, winerr.ISDSCSessionBusy, winerr.ISDSCRemoveConnectionInProgress,
}

// GetTargetDisks implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getdevicesforiscsisessionw
func (i *Initiator) GetTargetDisks(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) (_ []csiproxy.DiskNumber, err error) {
	defer i.options.Observer.End("GetTargetDisks", targetObject(iqn), time.Now(), &err)
	portal, err := win.ParsePortal(p)
	if err != nil {
		return nil, err
	}
	if err := iqn.Validate(); err != nil {
		return nil, err
	}
	return i.awaitDisks(ctx, place{portal, i.Owners(p)}, iqn)
}

// sessions returns the sessions with a target for a call at a portal. If there are sessions, but
// the portal belongs to another target, sessions returns an error: the caller means the other
// target.
func (i *Initiator) sessions(ctx context.Context, at place, iqn csiproxy.IQN) ([]win.ISCSISession, error) {
	all, err := query(ctx, i, i.sys.ISCSISessions)
	if err != nil {
		return nil, err
	}
	sessions := slices.DeleteFunc(all, func(s win.ISCSISession) bool { return !iqn.Equal(csiproxy.IQN(s.Target)) || !i.isOf(s, at.owners) })
	if len(sessions) == 0 {
		return nil, nil
	}
	var portals []win.ISCSIPortal
	for _, s := range sessions {
		portals = append(portals, s.Portals...)
	}
	if slices.ContainsFunc(portals, func(own win.ISCSIPortal) bool { return win.MaybeSamePortal(own, at.portal) }) {
		return sessions, nil
	}
	// A session that reconnects has no portal, and may have moved to another portal. The portals
	// where the target was found therefore count too.
	found, err := i.foundAt(ctx, string(iqn))
	if err != nil && !errors.Is(err, winerr.ISDSCTargetNotFound) {
		return nil, err
	}
	portals = append(portals, found...)
	// If no portals are known, such as for a session of the firmware, any portal is accepted.
	if len(portals) > 0 && !slices.ContainsFunc(portals,
		func(own win.ISCSIPortal) bool { return win.MaybeSamePortal(own, at.portal) }) {
		return nil, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the target is connected, but not through %s; its portals are %s",
			quote.Text(csiproxy.ISCSIPortal(at.portal).String()), portalList(portals))
	}
	return sessions, nil
}

// portalList names portals in errors.
func portalList(portals []win.ISCSIPortal) string {
	var names []string
	for _, p := range portals {
		names = append(names, quote.Text(csiproxy.ISCSIPortal(p).String()))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// targetObject names the target in errors.
func targetObject(n csiproxy.IQN) string { return "target " + quote.Text(string(n)) }
