// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iscsitarget is the iSCSI targets and portals on a simulated node's network,
// and the node's initiator: what it has discovered, its sessions and its logins.
//
// It does no locking: the owner holds one lock around every call. It doesn't know
// disks: the owner implements LUNs, which makes the LUNs of a target disks of the node.
package iscsitarget

import (
	"errors"
	"net/netip"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/credential"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// LUNs are the disks of the targets, by the IQN of their target.
type LUNs interface {
	// Attach lets the disks of a target arrive, never before the present call is over.
	Attach(iqn string)
	// Detach takes the disks of a target away, even while they are in use.
	Detach(iqn string)
	// Dismount flushes the volumes on the disks of a target, which Detach will take
	// away. While anything on them is open it gives ISDSCDeviceBusyOnSession.
	Dismount(iqn string) error
	// Devices lists the disks of a target as GetDevicesForIScsiSessionW does.
	Devices(iqn string) []win.ISCSIDevice
}

// Network is the targets, their portals and the initiator.
type Network struct {
	luns    LUNs
	state   record
	changed bool // since the last Save
}

// record is what the state file has.
type record struct {
	Salt      []byte // of the hashes of all secrets: both ends keep only hashes, and compare them
	Portals   []PortalState
	Targets   []target // in the order in which they came
	Initiator initiator
}

// New returns a network without targets.
func New(luns LUNs) *Network {
	return &Network{luns: luns, state: record{Salt: credential.NewSalt()}, changed: true}
}

// The record in the state file.
const (
	bucketISCSI = "iscsi"
	keyNetwork  = "network"
)

// Save implements [statefile.Part].
func (n *Network) Save(f *statefile.File) {
	if n.changed {
		f.PutJSON(bucketISCSI, []byte(keyNetwork), n.state)
		n.changed = false
	}
}

// Restore implements [statefile.Part].
func (n *Network) Restore(r *statefile.Reader) error {
	n.state, n.changed = record{}, false
	if err := r.GetJSON(bucketISCSI, keyNetwork, &n.state); err != nil {
		return err
	}
	if len(n.state.Salt) != credential.SaltSize {
		return errors.New("iscsi: its record makes no sense")
	}
	return nil
}

func (n *Network) hash(text csiproxy.Secret) ([]byte, error) {
	return credential.Hash(text, n.state.Salt)
}

// target finds a target by its name.
func (n *Network) target(iqn string) (*target, bool) {
	at := slices.IndexFunc(n.state.Targets, func(t target) bool { return strings.EqualFold(t.IQN, iqn) })
	if at < 0 {
		return nil, false
	}
	return &n.state.Targets[at], true
}

func (n *Network) portal(p win.ISCSIPortal) (*PortalState, bool) {
	at := slices.IndexFunc(n.state.Portals, func(state PortalState) bool { return samePortal(p, state.ISCSIPortal) })
	if at < 0 {
		return nil, false
	}
	return &n.state.Portals[at], true
}

// reach connects to a portal.
func (n *Network) reach(p win.ISCSIPortal) error {
	if state, ok := n.portal(p); ok && state.Reachable {
		return nil
	}
	hasAddress := func(state PortalState) bool { return sameAddress(state.Address, p.Address) }
	if _, err := netip.ParseAddr(p.Address); err != nil && !slices.ContainsFunc(n.state.Portals, hasAddress) {
		return winerr.ISDSCDNSNameUnresolved
	}
	return winerr.ISDSCConnectionFailed
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
