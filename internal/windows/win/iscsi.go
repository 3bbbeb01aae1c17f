// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
)

// The functions of iscsidsc.dll return an ISDSC_STATUS, represented here by Errno: a Windows error
// number or an ISDSC code.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/

// ISCSIPortal is ISCSI_TARGET_PORTALW: an address at which targets are offered.
type ISCSIPortal struct {
	Address string // IP address or host name, at most 255 UTF-16 units
	Port    uint16 // TCP
}

// ISCSIAuthType is ISCSI_AUTH_TYPES: who proves its identity to whom.
type ISCSIAuthType uint32

// Authentication types.
const (
	ISCSINoAuth     ISCSIAuthType = 0
	ISCSICHAP       ISCSIAuthType = 1 // the initiator to the target
	ISCSIMutualCHAP ISCSIAuthType = 2 // each to the other
)

// ISCSILogin are the arguments of LoginIScsiTargetW used by operations. The login ends with the
// node's next shutdown.
type ISCSILogin struct {
	Target   string // IQN
	Portal   ISCSIPortal
	AuthType ISCSIAuthType
	Username string          // only with CHAP; bytes, as the target compares them
	Secret   csiproxy.Secret // only with CHAP
}

// ISCSISessionID is ISCSI_UNIQUE_SESSION_ID.
type ISCSISessionID struct {
	AdapterUnique, AdapterSpecific uint64
}

// ISCSISession is the part of ISCSI_SESSION_INFOW used by operations.
type ISCSISession struct {
	ID     ISCSISessionID
	Target string // IQN
	// Portals are the remote ends of the session's connections. During a reconnect, Portals is
	// empty.
	Portals []ISCSIPortal
}

// ISCSIDevice is the part of ISCSI_DEVICE_ON_SESSIONW used by operations.
type ISCSIDevice struct {
	SCSIAddress SCSIAddress
	// Device has NoNumber as its DeviceNumber until the disk has arrived. DeviceType tells a disk
	// from another kind of LUN.
	Device DeviceNumber
}

// ISCSIPersistentLogin is the part of PERSISTENT_ISCSI_LOGIN_INFOW that names a login. The node
// repeats the login at every start.
type ISCSIPersistentLogin struct {
	Target        string // IQN
	Initiator     string // instance name of the initiator
	InitiatorPort uint32
	Portal        ISCSIPortal
}
