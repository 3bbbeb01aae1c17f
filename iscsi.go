// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"cmp"
	"net"
	"strconv"
	"strings"
)

// DefaultISCSIPort is the port of a portal with Port 0.
const DefaultISCSIPort = 3260

// ISCSIPortal is a network address at which targets are offered.
type ISCSIPortal struct {
	Address string `json:"address"` // IP address or host name
	Port    uint16 `json:"port"`    // TCP; 0 is DefaultPort
}

// String returns the address with the port, as in 10.0.0.1:3260 and [2001:db8::1]:3260.
func (p ISCSIPortal) String() string {
	return net.JoinHostPort(strings.Trim(p.Address, "[]"), strconv.Itoa(int(cmp.Or(p.Port, DefaultISCSIPort))))
}

// IQN is the name of a target: iqn.yyyy-mm.reversed.domain:name, eui.… or naa.…, at
// most 223 bytes (RFC 3720, 3.2.6). Upper and lower case are the same.
type IQN string

// ISCSIAuthType selects the sides that authenticate with CHAP.
type ISCSIAuthType int

// Authentication types.
const (
	ISCSINoAuth     ISCSIAuthType = iota // nobody
	ISCSIOneWayCHAP                      // the node to the target
	ISCSIMutualCHAP                      // each to the other; the node needs a mutual CHAP secret
)

// ISCSIAuthentication is how the node logs in to a target. The zero value uses no authentication.
type ISCSIAuthentication struct {
	Type     ISCSIAuthType
	Username string // only with CHAP
	Secret   Secret // only with CHAP: 12 to 16 bytes
}
