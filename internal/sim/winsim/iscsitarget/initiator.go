// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsitarget

import (
	"fmt"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	// initiatorInstance is the name of the initiator's adapter.
	initiatorInstance = `Root\ISCSIPRT\0000_0`
	// anyInitiatorPort is ISCSI_ANY_INITIATOR_PORT.
	anyInitiatorPort = 0xFFFFFFFF

	minCHAPSecret = 12 // bytes, without IPsec
	maxCHAPSecret = 16
)

// initiator is what the node keeps of iSCSI.
type initiator struct {
	Portals     []win.ISCSIPortal // for discovery by SendTargets
	Discovered  []discovered
	CHAPSecret  []byte // hash of the initiator's own secret; nil: none
	Sessions    []session
	LastSession uint64  // specific part of its id
	Persistent  []login // repeated when the service starts
}

// discovered says that a portal has told of a target.
type discovered struct {
	Target string // IQN
	Portal win.ISCSIPortal
}

type session struct {
	ID     win.ISCSISessionID
	Target string
	Portal win.ISCSIPortal
}

// login is a login without its secret.
type login struct {
	Target   string
	Portal   win.ISCSIPortal
	AuthType win.ISCSIAuthType
	Username string
	Secret   []byte // hash; nil: none
}

// AddSendTargetPortal is AddIScsiSendTargetPortalW. A portal that is known already is
// asked again.
func (n *Network) AddSendTargetPortal(p win.ISCSIPortal) error {
	if err := n.discover(p); err != nil {
		return err
	}
	if i := &n.state.Initiator; !containsPortal(i.Portals, p) {
		i.Portals, n.changed = append(i.Portals, p), true
	}
	return nil
}

// RemoveSendTargetPortal is RemoveIScsiSendTargetPortalW. The targets of which only
// this portal has told are forgotten; sessions go on.
func (n *Network) RemoveSendTargetPortal(p win.ISCSIPortal) error {
	i := &n.state.Initiator
	if !containsPortal(i.Portals, p) {
		return winerr.ISDSCPortalNotFound
	}
	i.Portals = slices.DeleteFunc(i.Portals, func(other win.ISCSIPortal) bool { return samePortal(p, other) })
	i.forget(p)
	n.changed = true
	return nil
}

// RefreshSendTargetPortal is RefreshIScsiSendTargetPortalW.
func (n *Network) RefreshSendTargetPortal(p win.ISCSIPortal) error {
	if !containsPortal(n.state.Initiator.Portals, p) {
		return winerr.ISDSCPortalNotFound
	}
	return n.discover(p)
}

// SendTargetPortals is ReportIScsiSendTargetPortalsExW.
func (n *Network) SendTargetPortals() []win.ISCSIPortal {
	return slices.Clone(n.state.Initiator.Portals)
}

// KnownTargets is ReportIScsiTargetsW: what was discovered, and what has a session.
func (n *Network) KnownTargets() []string {
	var names []string
	for _, d := range n.state.Initiator.Discovered {
		names = append(names, d.Target)
	}
	for _, s := range n.state.Initiator.Sessions {
		names = append(names, s.Target)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// DiscoveryMechanisms is GetIScsiTargetInformationW(DiscoveryMechanisms).
func (n *Network) DiscoveryMechanisms(target string) ([]string, error) {
	if !n.state.Initiator.knows(target) {
		return nil, winerr.ISDSCTargetNotFound
	}
	var mechanisms []string
	for _, d := range n.state.Initiator.Discovered {
		if strings.EqualFold(d.Target, target) {
			text := fmt.Sprintf(`SendTargets:*%s %07d %s`, d.Portal.Address, d.Portal.Port, initiatorInstance)
			mechanisms = append(mechanisms, text)
		}
	}
	return mechanisms, nil
}

// knows reports whether a target is in the initiator's list.
func (i *initiator) knows(target string) bool {
	_, connected := i.sessionWith(target)
	return connected || slices.ContainsFunc(i.Discovered,
		func(d discovered) bool { return strings.EqualFold(d.Target, target) })
}

// forget drops what a portal has told.
func (i *initiator) forget(p win.ISCSIPortal) {
	i.Discovered = slices.DeleteFunc(i.Discovered, func(d discovered) bool { return samePortal(p, d.Portal) })
}

// sessionWith finds the session with a target.
func (i *initiator) sessionWith(target string) (session, bool) {
	return i.session(func(s session) bool { return strings.EqualFold(s.Target, target) })
}

// sessionByID finds a session by its id: ISDSCInvalidSessionID if there is none.
func (i *initiator) sessionByID(id win.ISCSISessionID) (session, error) {
	s, ok := i.session(func(s session) bool { return s.ID == id })
	if !ok {
		return session{}, winerr.ISDSCInvalidSessionID
	}
	return s, nil
}

func (i *initiator) session(f func(session) bool) (session, bool) {
	if at := slices.IndexFunc(i.Sessions, f); at >= 0 {
		return i.Sessions[at], true
	}
	return session{}, false
}

// discover asks a portal for its targets and notes them, instead of what it has told
// before.
func (n *Network) discover(p win.ISCSIPortal) error {
	if err := n.reach(p); err != nil {
		return err
	}
	i := &n.state.Initiator
	i.forget(p)
	for _, t := range n.state.Targets {
		if containsPortal(t.Portals, p) {
			i.Discovered = append(i.Discovered, discovered{t.IQN, p})
		}
	}
	n.changed = true
	return nil
}

// Login is LoginIScsiTargetW for a session that isn't persistent.
func (n *Network) Login(l win.ISCSILogin) (win.ISCSISessionID, error) {
	hashed, err := n.hashed(l)
	if err != nil {
		return win.ISCSISessionID{}, err
	}
	if !n.state.Initiator.knows(l.Target) {
		return win.ISCSISessionID{}, winerr.ISDSCTargetNotFound
	}
	return n.login(hashed)
}

// hashed checks a login and replaces its secret by a hash.
func (n *Network) hashed(l win.ISCSILogin) (login, error) {
	hashed := login{Target: l.Target, Portal: l.Portal, AuthType: l.AuthType, Username: l.Username}
	if l.AuthType == win.ISCSINoAuth {
		return hashed, nil
	}
	if err := checkCHAPSecret(l.Secret); err != nil {
		return hashed, err
	}
	var err error
	hashed.Secret, err = n.hash(l.Secret)
	return hashed, err
}

// checkCHAPSecret checks the length of a secret for a connection without IPsec.
func checkCHAPSecret(chap csiproxy.Secret) error {
	switch n := len(chap.Reveal()); {
	case n < minCHAPSecret:
		return winerr.ISDSCShortCHAPSecret
	case n > maxCHAPSecret:
		return winerr.ISDSCInvalidCHAPSecret
	}
	return nil
}

// login makes a session, whose disks arrive later.
func (n *Network) login(l login) (win.ISCSISessionID, error) {
	i := &n.state.Initiator
	if _, connected := i.sessionWith(l.Target); connected {
		return win.ISCSISessionID{}, winerr.ISDSCTargetAlreadyLoggedIn
	}
	if err := n.reach(l.Portal); err != nil {
		return win.ISCSISessionID{}, err
	}
	t, ok := n.target(l.Target)
	if !ok || !containsPortal(t.Portals, l.Portal) {
		return win.ISCSISessionID{}, winerr.ISDSCNotFound
	}
	if err := t.authenticate(l, i.CHAPSecret); err != nil {
		return win.ISCSISessionID{}, err
	}
	i.LastSession++
	s := session{
		ID:     win.ISCSISessionID{AdapterUnique: 0xFFFF8000_00001000, AdapterSpecific: 0x4000013700000000 + i.LastSession},
		Target: t.IQN, Portal: l.Portal,
	}
	i.Sessions, n.changed = append(i.Sessions, s), true
	n.luns.Attach(t.IQN)
	return s.ID, nil
}

// Logout is LogoutIScsiTarget. It is refused while anything of the session's disks is
// open.
func (n *Network) Logout(id win.ISCSISessionID) error {
	s, err := n.state.Initiator.sessionByID(id)
	if err != nil {
		return err
	}
	if err := n.luns.Dismount(s.Target); err != nil {
		return err
	}
	n.end(s)
	return nil
}

// end takes a session and its disks away.
func (n *Network) end(s session) {
	i := &n.state.Initiator
	i.Sessions = slices.DeleteFunc(i.Sessions, func(other session) bool { return other.ID == s.ID })
	n.changed = true
	n.luns.Detach(s.Target)
}

// Sessions is GetIScsiSessionListW.
func (n *Network) Sessions() []win.ISCSISession {
	var sessions []win.ISCSISession
	for _, s := range n.state.Initiator.Sessions {
		sessions = append(sessions, win.ISCSISession{ID: s.ID, Target: s.Target, Portals: []win.ISCSIPortal{s.Portal}})
	}
	return sessions
}

// SessionTarget names the target of a session, "" if there is no such session.
func (n *Network) SessionTarget(id win.ISCSISessionID) string {
	s, _ := n.state.Initiator.sessionByID(id)
	return s.Target
}

// SessionDevices is GetDevicesForIScsiSessionW.
func (n *Network) SessionDevices(id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	s, err := n.state.Initiator.sessionByID(id)
	if err != nil {
		return nil, err
	}
	return n.luns.Devices(s.Target), nil
}

// PersistentLogins is ReportIScsiPersistentLoginsW.
func (n *Network) PersistentLogins() []win.ISCSIPersistentLogin {
	var logins []win.ISCSIPersistentLogin
	for _, l := range n.state.Initiator.Persistent {
		logins = append(logins, l.reported())
	}
	return logins
}

// reported is how the initiator tells of a persistent login.
func (l login) reported() win.ISCSIPersistentLogin {
	return win.ISCSIPersistentLogin{Target: l.Target, Initiator: initiatorInstance, InitiatorPort: anyInitiatorPort,
		Portal: l.Portal}
}

// RemovePersistentLogin is RemoveIScsiPersistentTargetW of a login as it is reported:
// ErrorNotFound if it isn't.
func (n *Network) RemovePersistentLogin(l win.ISCSIPersistentLogin) error {
	i := &n.state.Initiator
	at := slices.IndexFunc(i.Persistent, func(other login) bool { return other.reported() == l })
	if at < 0 {
		return winerr.ErrorNotFound
	}
	i.Persistent, n.changed = slices.Delete(i.Persistent, at, at+1), true
	return nil
}

// SetPersistentLogin stores a login that Start repeats. There is one for each target
// and portal.
func (n *Network) SetPersistentLogin(l win.ISCSILogin) error {
	hashed, err := n.hashed(l)
	if err != nil {
		return fmt.Errorf("store login to iSCSI target %s: %w", l.Target, err)
	}
	i := &n.state.Initiator
	i.Persistent = slices.DeleteFunc(i.Persistent, func(other login) bool { return other.reported() == hashed.reported() })
	i.Persistent, n.changed = append(i.Persistent, hashed), true
	return nil
}

// SetInitiatorCHAPSecret is SetIScsiInitiatorCHAPSharedSecret.
func (n *Network) SetInitiatorCHAPSecret(chap csiproxy.Secret) error {
	if err := checkCHAPSecret(chap); err != nil {
		return err
	}
	hash, err := n.hash(chap)
	if err == nil {
		n.state.Initiator.CHAPSecret, n.changed = hash, true
	}
	return err
}

// Start is the start of the initiator's service: it asks all portals, and repeats the
// persistent logins that have no session. What fails isn't tried again.
func (n *Network) Start() {
	for _, p := range n.state.Initiator.Portals {
		_ = n.discover(p) // then what it has told before still counts
	}
	for _, l := range n.state.Initiator.Persistent {
		_, _ = n.login(l) // then it has no session
	}
}

// Restart is what a restart of the node does before it starts services: it ends all
// sessions. The owner takes their disks away.
func (n *Network) Restart() {
	i := &n.state.Initiator
	i.Sessions, i.Discovered, n.changed = nil, nil, true
}
