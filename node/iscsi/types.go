// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsi

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// DefaultPort is the port of a portal that doesn't say which.
const DefaultPort = 3260

// Portal is where targets are offered.
type Portal struct {
	Address string // IP address or host name
	Port    uint16 // TCP; 0 is DefaultPort
}

// String returns the address with the port, as in 10.0.0.1:3260 and [2001:db8::1]:3260.
func (p Portal) String() string {
	return net.JoinHostPort(strings.Trim(p.Address, "[]"), strconv.Itoa(int(cmp.Or(p.Port, DefaultPort))))
}

// IQN is the name of a target: iqn.yyyy-mm.reversed.domain:name, eui.… or naa.…, at
// most 223 bytes (RFC 3720, 3.2.6). Upper and lower case are the same.
type IQN string

// AuthType tells who proves whom with CHAP.
type AuthType int

// Authentication types.
const (
	NoAuth     AuthType = iota // nobody
	OneWayCHAP                 // the node to the target
	MutualCHAP                 // each to the other; SetMutualCHAPSecret comes first
)

// Authentication is how the node logs in to a target. The zero value is without.
type Authentication struct {
	Type     AuthType
	Username string      // only with CHAP
	Secret   secret.Text // only with CHAP: 12 to 16 bytes
}

// login is what Windows takes for a login to a target.
func (a Authentication) login(p win.ISCSIPortal, target IQN) (win.ISCSILogin, error) {
	l := win.ISCSILogin{Target: string(target), Portal: p}
	switch a.Type {
	case NoAuth:
		return l, nil
	case OneWayCHAP:
		l.AuthType = win.ISCSICHAP
	case MutualCHAP:
		l.AuthType = win.ISCSIMutualCHAP
	default:
		return l, invalid("there is no authentication type %d", int(a.Type))
	}
	const longest = 256
	switch {
	case a.Username == "":
		return l, invalid("CHAP needs a user name")
	case len(a.Username) > longest:
		return l, invalid("the CHAP user name is longer than %d bytes", longest)
	case !utf8.ValidString(a.Username) || strings.Contains(a.Username, "\x00"):
		return l, invalid("the CHAP user name isn't valid UTF-8 or has a null character")
	}
	l.Username, l.Secret = a.Username, a.Secret
	return l, checkSecret(a.Secret)
}

// checkSecret refuses what Windows doesn't take for a CHAP secret where no IPsec
// protects the connection.
func checkSecret(s secret.Text) error {
	const shortest, longest = 12, 16
	if n := len(s.Reveal()); n < shortest || n > longest {
		return invalid("a CHAP secret has %d to %d bytes", shortest, longest)
	}
	return nil
}

func invalid(format string, a ...any) error {
	return &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Detail: fmt.Sprintf(format, a...)}
}
