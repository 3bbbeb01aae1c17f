// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// iSCSI targets are outside of the node. They and their data survive its reboots and
// power losses. Sessions don't. The node remembers the portals that were added.

// ISCSITarget is an iSCSI target.
type ISCSITarget struct {
	IQN     csiproxy.IQN
	Portals []csiproxy.ISCSIPortal
	// CHAPUser and CHAPSecret are the credentials that the target requires. If
	// CHAPUser is "", it requires none.
	CHAPUser   string
	CHAPSecret csiproxy.Secret // 12 to 16 bytes
	// MutualSecret is the secret with which the target proves its identity. It must
	// be that of SetMutualCHAPSecret. If empty, the target can't prove its identity.
	MutualSecret csiproxy.Secret
	// LUNs are its disks, from LUN 0 on. While the node is connected, they are disks
	// of the node. Their Adapter, Target and LUN must be 0: the node chooses them.
	LUNs []Disk
}

// AddISCSITarget adds a target to the network, and its portals if they don't exist.
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

// RemoveISCSITarget removes a target from the network. The node loses its session and
// the disks, which become detached disks and keep their data.
func (n *Node) RemoveISCSITarget(iqn csiproxy.IQN) {
	n.helper()
	n.must(n.sys.ISCSI().RemoveTarget(string(iqn)))
}

// AddISCSILUN adds a disk to a target. If the node is connected, the disk arrives there.
func (n *Node) AddISCSILUN(iqn csiproxy.IQN, d Disk) {
	n.helper()
	n.must(n.sys.ISCSI().AddLUN(string(iqn), d))
}

// SetISCSIPortal sets whether a portal can be reached. While it can't, the node's
// sessions over it have no disks, and open files on them fail. When it can again, the
// disks come back.
func (n *Node) SetISCSIPortal(p csiproxy.ISCSIPortal, reachable bool) {
	n.helper()
	n.must(n.sys.ISCSI().SetPortal(win.ISCSIPortal(p), reachable))
}
