// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// iSCSI targets are outside of the node. Targets and their data survive the node's reboots and
// power losses; sessions end. The node remembers added portals.

// ISCSITarget is an iSCSI target.
type ISCSITarget struct {
	IQN     csiproxy.IQN
	Portals []csiproxy.ISCSIPortal
	// CHAPUser and CHAPSecret are the credentials required by the target. With an empty CHAPUser,
	// the target requires none.
	CHAPUser   string
	CHAPSecret csiproxy.Secret // 12 to 16 bytes
	// MutualSecret is the secret with which the target proves its identity. SetMutualCHAPSecret
	// must set the same secret. With an empty MutualSecret, the target cannot prove its identity.
	MutualSecret csiproxy.Secret
	// LUNs are the target's disks, from LUN 0 on. While the node is connected, they are disks of
	// the node. Their Adapter, Target and LUN must be 0: the node chooses them.
	LUNs []Disk
}

// AddISCSITarget adds a target to the network, and its portals if missing.
func (n *Node) AddISCSITarget(t ISCSITarget) {
	n.helper()
	target := iscsitarget.Target{
		IQN: string(t.IQN), CHAPUser: t.CHAPUser, CHAPSecret: t.CHAPSecret, MutualSecret: t.MutualSecret,
	}
	for _, p := range t.Portals {
		target.Portals = append(target.Portals, win.ISCSIPortal(p))
	}
	n.must(n.sys.ISCSI().AddTarget(target, t.LUNs...))
}

// RemoveISCSITarget removes a target from the network. The node loses its session and the disks.
// The disks become detached disks and keep their data.
func (n *Node) RemoveISCSITarget(iqn csiproxy.IQN) {
	n.helper()
	n.must(n.sys.ISCSI().RemoveTarget(string(iqn)))
}

// AddISCSILUN adds a disk to a target. If the node is connected, the disk arrives there.
func (n *Node) AddISCSILUN(iqn csiproxy.IQN, d Disk) {
	n.helper()
	n.must(n.sys.ISCSI().AddLUN(string(iqn), d))
}

// SetISCSIPortal makes a portal reachable or unreachable. While the portal is unreachable, the
// node's sessions over it have no disks, and open files on the disks fail. The disks come back with
// the portal.
func (n *Node) SetISCSIPortal(p csiproxy.ISCSIPortal, reachable bool) {
	n.helper()
	n.must(n.sys.ISCSI().SetPortal(win.ISCSIPortal(p), reachable))
}
