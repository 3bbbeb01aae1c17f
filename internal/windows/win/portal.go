// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// longestAddress is the longest address for ISCSI_TARGET_PORTALW, whose field also holds a null
// character.
const longestAddress = 255

// ParsePortal returns a portal in Windows' form: with a port, and with an IP address in its
// shortest form, without brackets. Anything but an IP address or the name of a host gives
// csiproxy.ErrInvalidArgument.
func ParsePortal(p csiproxy.ISCSIPortal) (ISCSIPortal, error) {
	parsed := ISCSIPortal{Address: PlainAddress(p.Address), Port: p.Port}
	if parsed.Port == 0 {
		parsed.Port = csiproxy.DefaultISCSIPort
	}
	switch {
	case p.Address == "":
		return parsed, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the address is empty")
	case len(p.Address) > longestAddress:
		return parsed, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the address is longer than %d characters", longestAddress)
	}
	host, kind := parsed.Address, "the address is neither an IP address nor the name of a host"
	if ip, err := netip.ParseAddr(parsed.Address); err == nil {
		// netip accepts any text as a zone. For Windows, the zone is the index or the name of an
		// interface.
		host, kind = ip.Zone(), "the zone of the IPv6 address is no name"
	} else if isNumber(parsed.Address[strings.LastIndexByte(parsed.Address, '.')+1:]) {
		// Resolvers take a name ending with a number for an IP address.
		return parsed, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s: it ends with a number", kind)
	}
	for _, r := range host {
		if !isNameCharacter(r) {
			return parsed, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s: it has the character %q", kind, r)
		}
	}
	return parsed, nil
}

// ParsePortalText is ParsePortal for the text of an address, with or without a port: 10.0.0.1, [2001:db8::1]:3260, 2001:db8::1.
func ParsePortalText(text string) (ISCSIPortal, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil { // there is no port
		return ParsePortal(csiproxy.ISCSIPortal{Address: text})
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return ISCSIPortal{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the port is no number from 1 to 65535")
	}
	return ParsePortal(csiproxy.ISCSIPortal{Address: host, Port: uint16(n)})
}

func isNameCharacter(r rune) bool {
	return 'a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r)
}

func isNumber(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

// PlainAddress returns an IP address in its shortest form, without the brackets of IPv6, and a host
// name unchanged.
func PlainAddress(address string) string {
	bare := address
	if inner, ok := strings.CutPrefix(address, "["); ok && strings.HasSuffix(inner, "]") {
		bare = strings.TrimSuffix(inner, "]")
	}
	if ip, err := netip.ParseAddr(bare); err == nil && (bare == address || ip.Is6()) {
		return ip.Unmap().String() // ::ffff:10.0.0.1 is 10.0.0.1
	}
	return address
}

// SamePortal reports whether two portals are the same, by their texts.
func SamePortal(a, b ISCSIPortal) bool {
	return a.Port == b.Port && strings.EqualFold(PlainAddress(a.Address), PlainAddress(b.Address))
}

// MaybeSamePortal is SamePortal, but a host name may be any address.
func MaybeSamePortal(a, b ISCSIPortal) bool {
	return SamePortal(a, b) || a.Port == b.Port && IsIP(a.Address) != IsIP(b.Address)
}

// IsIP reports whether the address of a portal is an IP address.
func IsIP(address string) bool {
	_, err := netip.ParseAddr(PlainAddress(address))
	return err == nil
}

// ParsePortalMechanism returns the portal at which a target was found, from the initiator's text:
// "SendTargets:*10.61.169.28 0003260 Root\ISCSIPRT\0000_0". For other ways to find targets, ok is
// false.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getiscsitargetinformationw
// (DiscoveryMechanisms), whose text is undocumented
func ParsePortalMechanism(s string) (p ISCSIPortal, ok bool) {
	const prefix = "SendTargets:"
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return p, false
	}
	fields := strings.Fields(strings.TrimPrefix(s[len(prefix):], "*"))
	if len(fields) < 2 {
		return p, false
	}
	port, err := strconv.ParseUint(fields[1], 10, 16)
	if err != nil || port == 0 {
		return p, false
	}
	return ISCSIPortal{Address: PlainAddress(fields[0]), Port: uint16(port)}, true
}
