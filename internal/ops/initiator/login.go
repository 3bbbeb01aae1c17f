// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"strings"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// login returns a login to a target in Windows' form.
func login(a csiproxy.ISCSIAuthentication, p win.ISCSIPortal, target csiproxy.IQN) (win.ISCSILogin, error) {
	l := win.ISCSILogin{Target: string(target), Portal: p}
	switch a.Type {
	case csiproxy.ISCSINoAuth:
		return l, nil
	case csiproxy.ISCSIOneWayCHAP:
		l.AuthType = win.ISCSICHAP
	case csiproxy.ISCSIMutualCHAP:
		l.AuthType = win.ISCSIMutualCHAP
	default:
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown authentication type %d", int(a.Type))
	}
	const longest = 256
	if a.Username == "" {
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "CHAP needs a user name")
	}
	if len(a.Username) > longest {
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the CHAP user name is longer than %d bytes", longest)
	}
	if !utf8.ValidString(a.Username) || strings.Contains(a.Username, "\x00") {
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the CHAP user name isn't valid UTF-8 or has a null character")
	}
	l.Username, l.Secret = a.Username, a.Secret
	return l, checkSecret(a.Secret)
}

// checkSecret returns an error if Windows refuses a CHAP secret on a connection without IPsec.
func checkSecret(s csiproxy.Secret) error {
	const shortest, longest = 12, 16
	if n := len(s.Reveal()); n < shortest || n > longest {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "a CHAP secret must have %d to %d bytes", shortest, longest)
	}
	return nil
}
