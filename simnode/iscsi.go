// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsim"
	"github.com/csi-proxy/csi-proxy/internal/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
)

// iSCSI targets stand outside of the node: they and their data outlast its reboots
// and losses of power, and sessions don't. The portals that were added on the node
// stay known there.

// ISCSITarget is an iSCSI target.
type ISCSITarget struct {
	IQN     iscsi.IQN
	Portals []iscsi.Portal
	// CHAPUser is whom the target lets in, with CHAPSecret; "": anybody, without
	// CHAP.
	CHAPUser   string
	CHAPSecret secret.Text // 12 to 16 bytes
	// MutualSecret is what the target proves itself with: the node needs the same by
	// SetMutualCHAPSecret. Empty: it can't prove itself.
	MutualSecret secret.Text
	// LUNs are its disks, from LUN 0 on. They are disks of the node while it is
	// connected. Adapter, Target and LUN aren't theirs to choose: they must be 0.
	LUNs []Disk
}

// AddISCSITarget puts a target on the network, and its portals if they aren't there.
func (n *Node) AddISCSITarget(t ISCSITarget) {
	n.helper()
	target := iscsitarget.Target{
		IQN: string(t.IQN), CHAPUser: t.CHAPUser, CHAPSecret: t.CHAPSecret, MutualSecret: t.MutualSecret,
	}
	for _, p := range t.Portals {
		target.Portals = append(target.Portals, win.ISCSIPortal(p))
	}
	var luns []winsim.DiskSpec
	for _, lun := range t.LUNs {
		luns = append(luns, lun.spec())
	}
	n.must(n.sys.ISCSI().AddTarget(target, luns...))
}

// RemoveISCSITarget takes a target off the network: the node loses its session and
// the disks. They are detached disks then, with their data.
func (n *Node) RemoveISCSITarget(iqn iscsi.IQN) {
	n.helper()
	n.must(n.sys.ISCSI().RemoveTarget(string(iqn)))
}

// AddISCSILUN gives a target another disk. If the node is connected it arrives there.
func (n *Node) AddISCSILUN(iqn iscsi.IQN, d Disk) {
	n.helper()
	n.must(n.sys.ISCSI().AddLUN(string(iqn), d.spec()))
}

// SetISCSIPortal lets a portal be reached or not. While it can't be, the node's
// sessions over it have no disks, and what was open on them fails; afterwards the
// disks come back.
func (n *Node) SetISCSIPortal(p iscsi.Portal, reachable bool) {
	n.helper()
	n.must(n.sys.ISCSI().SetPortal(win.ISCSIPortal(p), reachable))
}
