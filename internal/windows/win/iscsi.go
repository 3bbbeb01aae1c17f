// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
)

// The functions of iscsidsc.dll return an ISDSC_STATUS, which is an Errno here: a
// Windows error number or an ISDSC code.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/

// ISCSIPortal is ISCSI_TARGET_PORTALW: where targets are offered.
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

// ISCSILogin are the arguments of LoginIScsiTargetW that operations use. The login
// isn't persistent: it ends with the node's next shutdown.
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

// ISCSISession is the part of ISCSI_SESSION_INFOW that operations use.
type ISCSISession struct {
	ID     ISCSISessionID
	Target string // IQN
	// Portals are where its connections lead. While it connects again, there is none.
	Portals []ISCSIPortal
}

// ISCSIDevice is the part of ISCSI_DEVICE_ON_SESSIONW that operations use.
type ISCSIDevice struct {
	SCSIAddress SCSIAddress
	// Device has NoNumber as its DeviceNumber until the disk has arrived. DeviceType
	// says whether the LUN is a disk or something else.
	Device DeviceNumber
}

// ISCSIPersistentLogin is the part of PERSISTENT_ISCSI_LOGIN_INFOW that names a
// login which the node repeats whenever it starts.
type ISCSIPersistentLogin struct {
	Target        string // IQN
	Initiator     string // instance name of the initiator
	InitiatorPort uint32
	Portal        ISCSIPortal
}
