// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsitarget

import (
	"cmp"
	"crypto/hmac"
	"fmt"
	"math"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/refusal"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Target is a target on the node's network.
type Target struct {
	IQN     string // iqn.…, eui.… or naa.…
	Portals []win.ISCSIPortal
	// CHAPUser is the user that the target accepts, with CHAPSecret. If it is "", the
	// target accepts anybody, without CHAP.
	CHAPUser   string
	CHAPSecret csiproxy.Secret // 12 to 16 bytes
	// MutualSecret is the secret with which the target proves its identity; the
	// initiator's own secret must be the same text. If it is empty, the target can't
	// prove its identity.
	MutualSecret csiproxy.Secret
}

// PortalState is a portal on the node's network.
type PortalState struct {
	win.ISCSIPortal
	Reachable bool
}

// target is what the state file has of a target.
type target struct {
	IQN          string
	Number       byte // SCSI target id, the same for each session
	Portals      []win.ISCSIPortal
	CHAPUser     string
	CHAPSecret   []byte // hash
	MutualSecret []byte // hash; nil: none
}

const defaultPort = 3260

// authenticate checks a login; own is the hash of the initiator's secret. A login with
// CHAP at a target without it fails: the two can't agree on a method.
func (t *target) authenticate(l login, own []byte) error {
	if l.AuthType == win.ISCSINoAuth {
		if t.CHAPUser != "" {
			return winerr.ISDSCAuthenticationFailed
		}
		return nil
	}
	if t.CHAPUser == "" || t.CHAPUser != l.Username || !hmac.Equal(t.CHAPSecret, l.Secret) {
		return winerr.ISDSCAuthenticationFailed
	}
	if l.AuthType == win.ISCSIMutualCHAP {
		if own == nil {
			return winerr.ISDSCAuthInfoUnavailable
		}
		if !hmac.Equal(t.MutualSecret, own) {
			return winerr.ISDSCAuthenticationFailed
		}
	}
	return nil
}

// Add puts a target on the network. Portals that weren't there are, and can be
// reached. A target with the name gives ErrorAlreadyExists.
func (n *Network) Add(t Target) error {
	if err := n.add(t); err != nil {
		return fmt.Errorf("add iSCSI target %q: %w", t.IQN, err)
	}
	return nil
}

func (n *Network) add(spec Target) error {
	if err := spec.check(); err != nil {
		return err
	}
	if _, exists := n.target(spec.IQN); exists {
		return winerr.ErrorAlreadyExists
	}
	id, err := n.FreeID()
	t := target{IQN: spec.IQN, Number: id, CHAPUser: spec.CHAPUser}
	if err == nil && spec.CHAPUser != "" {
		t.CHAPSecret, err = n.hash(spec.CHAPSecret)
	}
	if err == nil && spec.MutualSecret.Reveal() != "" {
		t.MutualSecret, err = n.hash(spec.MutualSecret)
	}
	if err != nil {
		return err
	}
	for _, p := range spec.Portals {
		p.Port = cmp.Or(p.Port, defaultPort)
		t.Portals = append(t.Portals, p)
		if _, there := n.portal(p); !there {
			n.state.Portals = append(n.state.Portals, PortalState{p, true})
		}
	}
	n.state.Targets, n.changed = append(n.state.Targets, t), true
	return nil
}

// FreeID returns the SCSI target id that the next target gets.
func (n *Network) FreeID() (byte, error) {
	id := 0
	for slices.ContainsFunc(n.state.Targets, func(t target) bool { return int(t.Number) == id }) {
		id++
	}
	if id > math.MaxUint8 {
		return 0, fmt.Errorf("there are %d targets: %w", id, winerr.ErrorNotSupported)
	}
	return byte(id), nil
}

// check checks what can be checked without the network. Its errors don't hold secrets.
func (t Target) check() error {
	const maxName = 223
	bad := func(r rune) bool { return r <= ' ' || r > '~' }
	named := slices.ContainsFunc([]string{"iqn.", "eui.", "naa."}, func(prefix string) bool {
		return len(t.IQN) > len(prefix) && strings.EqualFold(t.IQN[:len(prefix)], prefix)
	})
	switch {
	case !named:
		return fmt.Errorf("its name must begin with iqn., eui. or naa.: %w", winerr.ErrorInvalidParameter)
	case len(t.IQN) > maxName || strings.ContainsFunc(t.IQN, bad):
		return fmt.Errorf("its name: %w", winerr.ErrorInvalidParameter)
	case len(t.Portals) == 0:
		return fmt.Errorf("it has no portal: %w", winerr.ErrorInvalidParameter)
	case t.CHAPUser == "" && (t.CHAPSecret.Reveal() != "" || t.MutualSecret.Reveal() != ""):
		return fmt.Errorf("there is a secret, and no user: %w", winerr.ErrorInvalidParameter)
	case t.CHAPUser != "" && checkCHAPSecret(t.CHAPSecret) != nil,
		t.MutualSecret.Reveal() != "" && checkCHAPSecret(t.MutualSecret) != nil:
		return fmt.Errorf("a CHAP secret has %d to %d bytes: %w", minCHAPSecret, maxCHAPSecret, winerr.ErrorInvalidParameter)
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
		return fmt.Errorf("the portal address %q: %w", p.Address, winerr.ErrorInvalidParameter)
	}
	return nil
}

// Remove takes a target off the network. Its session ends and its disks vanish, even
// while they are in use. No such target gives ErrorNotFound.
func (n *Network) Remove(iqn string) error {
	if _, ok := n.target(iqn); !ok {
		return refusal.NotFound("iSCSI target", iqn)
	}
	if s, ok := n.state.Initiator.sessionWith(iqn); ok {
		n.end(s)
	}
	n.state.Targets = slices.DeleteFunc(n.state.Targets, func(t target) bool { return strings.EqualFold(t.IQN, iqn) })
	n.changed = true
	return nil
}

// Find returns the name of a target in its own case and its SCSI target id. No such
// target gives ErrorNotFound.
func (n *Network) Find(iqn string) (name string, id byte, err error) {
	t, ok := n.target(iqn)
	if !ok {
		return "", 0, refusal.NotFound("iSCSI target", iqn)
	}
	return t.IQN, t.Number, nil
}

// Connected reports whether there is a session with a target over a portal that can
// be reached.
func (n *Network) Connected(iqn string) bool {
	s, ok := n.state.Initiator.sessionWith(iqn)
	return ok && n.reach(s.Portal) == nil
}

// SetPortal lets a portal be reached or not; port 0 is 3260. A portal that no target
// has is added. While it can't be reached, sessions over it stay, but their disks are
// gone, even while they are in use. The initiator connects again when it can.
func (n *Network) SetPortal(p win.ISCSIPortal, reachable bool) error {
	p.Port = cmp.Or(p.Port, defaultPort)
	if err := checkPortal(p); err != nil {
		return fmt.Errorf("set iSCSI portal: %w", err)
	}
	state, there := n.portal(p)
	if !there {
		n.state.Portals = append(n.state.Portals, PortalState{p, false})
		state = &n.state.Portals[len(n.state.Portals)-1]
	}
	n.changed = true
	if state.Reachable == reachable {
		return nil
	}
	state.Reachable = reachable
	for _, s := range n.state.Initiator.Sessions {
		if !samePortal(s.Portal, p) {
			continue
		}
		if reachable {
			n.luns.Attach(s.Target)
		} else {
			n.luns.Detach(s.Target)
		}
	}
	return nil
}

// Targets lists the targets in the order in which they came, without secrets.
func (n *Network) Targets() []Target {
	var targets []Target
	for _, t := range n.state.Targets {
		targets = append(targets, Target{IQN: t.IQN, Portals: slices.Clone(t.Portals), CHAPUser: t.CHAPUser})
	}
	return targets
}

// Portals lists the portals in the order in which they came.
func (n *Network) Portals() []PortalState { return slices.Clone(n.state.Portals) }
