// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iscsi holds the words for the node's iSCSI initiator: portals, targets, how to
// log in to them, and the operations on them.
package iscsi

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/secret"
)

// DefaultPort is the port of a portal that doesn't say which.
const DefaultPort = 3260

// Portal is where targets are offered.
type Portal struct {
	Address string `json:"address"` // IP address or host name
	Port    uint16 `json:"port"`    // TCP; 0 is DefaultPort
}

// String returns the address with the port, as in 10.0.0.1:3260 and [2001:db8::1]:3260.
func (p Portal) String() string {
	return net.JoinHostPort(strings.Trim(p.Address, "[]"), strconv.Itoa(int(cmp.Or(p.Port, DefaultPort))))
}

// IQN is the name of a target: iqn.yyyy-mm.reversed.domain:name, eui.… or naa.…, at
// most 223 bytes (RFC 3720, 3.2.6). Upper and lower case are the same.
type IQN string

// AuthType says who authenticates to whom with CHAP.
type AuthType int

// Authentication types.
const (
	NoAuth     AuthType = iota // nobody
	OneWayCHAP                 // the node to the target
	MutualCHAP                 // each to the other; the node needs a mutual CHAP secret
)

// Authentication is how the node logs in to a target. The zero value is without.
type Authentication struct {
	Type     AuthType
	Username string      // only with CHAP
	Secret   secret.Text // only with CHAP: 12 to 16 bytes
}
