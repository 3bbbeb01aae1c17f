// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsi

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// portals is what the initiator knows of portals and of the targets there.
type portals interface {
	// AddISCSISendTargetPortal is AddIScsiSendTargetPortalW, which also discovers.
	AddISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error
	// RemoveISCSISendTargetPortal is RemoveIScsiSendTargetPortalW.
	RemoveISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error
	// RefreshISCSISendTargetPortal is RefreshIScsiSendTargetPortalW: it discovers.
	RefreshISCSISendTargetPortal(ctx context.Context, p win.ISCSIPortal) error
	// ISCSISendTargetPortals is ReportIScsiSendTargetPortalsExW.
	ISCSISendTargetPortals(ctx context.Context) ([]win.ISCSIPortal, error)
	// ISCSITargets is ReportIScsiTargetsW: all known targets.
	ISCSITargets(ctx context.Context) ([]string, error)
	// ISCSIDiscoveryMechanisms is GetIScsiTargetInformationW: how a target was found.
	ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error)
}

// AddTargetPortal makes a portal known to the initiator, for good, and discovers the
// targets there. A known portal is a success. One that can't be reached is
// csiproxy.ErrUnavailable.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-addiscsisendtargetportalw
func (i *Initiator) AddTargetPortal(ctx context.Context, p Portal) error {
	return i.do(ctx, "AddTargetPortal", p.object(), func(ctx context.Context) error {
		want, err := p.check()
		if err != nil {
			return err
		}
		_, known, err := i.known(ctx, want)
		if err != nil || known {
			return err
		}
		err = i.call(ctx, func() error { return i.sys.AddISCSISendTargetPortal(ctx, want) })
		if errors.Is(err, win.ISDSCTargetPortalAlreadyExists) { // added by somebody else
			return nil
		}
		return err
	})
}

// DiscoverTargetPortal asks a portal for its targets and returns their names, sorted.
// A portal that AddTargetPortal hasn't made known is csiproxy.ErrNotFound, one that
// can't be reached csiproxy.ErrUnavailable.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-refreshiscsisendtargetportalw,
// https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getiscsitargetinformationw
func (i *Initiator) DiscoverTargetPortal(ctx context.Context, p Portal) ([]IQN, error) {
	return operation.Get(ctx, i.options.Runner, "DiscoverTargetPortal", p.object(), func(ctx context.Context) ([]IQN, error) {
		want, err := p.check()
		if err != nil {
			return nil, err
		}
		portal, known, err := i.known(ctx, want)
		if err != nil {
			return nil, err
		}
		if !known {
			return nil, &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: "the portal isn't known: add it first"}
		}
		if err := i.call(ctx, func() error { return i.sys.RefreshISCSISendTargetPortal(ctx, portal) }); err != nil {
			return nil, err
		}
		return i.targetsOf(ctx, want)
	})
}

// targetsOf returns the targets that were found at a portal.
func (i *Initiator) targetsOf(ctx context.Context, p win.ISCSIPortal) ([]IQN, error) {
	targets, err := ask(ctx, i, i.sys.ISCSITargets)
	if err != nil {
		return nil, err
	}
	var found []IQN
	for _, target := range targets {
		mechanisms, err := i.sys.ISCSIDiscoveryMechanisms(ctx, target)
		if errors.Is(err, win.ISDSCTargetNotFound) { // it has gone meanwhile
			continue
		}
		if err != nil {
			return nil, &csiproxy.Error{Object: "target " + target, Err: err}
		}
		if slices.ContainsFunc(mechanisms, func(m string) bool { at, ok := parseMechanism(m); return ok && samePortal(at, p) }) {
			found = append(found, IQN(target))
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// ListTargetPortals returns the portals that the initiator knows.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-reportiscsisendtargetportalsexw
func (i *Initiator) ListTargetPortals(ctx context.Context) ([]Portal, error) {
	return operation.Get(ctx, i.options.Runner, "ListTargetPortals", "", func(ctx context.Context) ([]Portal, error) {
		known, err := ask(ctx, i, i.sys.ISCSISendTargetPortals)
		if err != nil {
			return nil, err
		}
		var list []Portal
		for _, p := range known {
			list = append(list, Portal(p))
		}
		return list, nil
	})
}

// RemoveTargetPortal makes the initiator forget a portal. Sessions with targets found
// there go on. An unknown portal is csiproxy.ErrNotFound.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-removeiscsisendtargetportalw
func (i *Initiator) RemoveTargetPortal(ctx context.Context, p Portal) error {
	return i.do(ctx, "RemoveTargetPortal", p.object(), func(ctx context.Context) error {
		want, err := p.check()
		if err != nil {
			return err
		}
		portal, known, err := i.known(ctx, want)
		if err != nil {
			return err
		}
		if !known {
			return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: "the portal isn't known"}
		}
		return i.call(ctx, func() error { return i.sys.RemoveISCSISendTargetPortal(ctx, portal) })
	})
}

// known returns the portal in the spelling in which the initiator knows it.
func (i *Initiator) known(ctx context.Context, want win.ISCSIPortal) (p win.ISCSIPortal, known bool, err error) {
	list, err := ask(ctx, i, i.sys.ISCSISendTargetPortals)
	if err != nil {
		return p, false, err
	}
	at := slices.IndexFunc(list, func(p win.ISCSIPortal) bool { return samePortal(p, want) })
	if at < 0 {
		return p, false, nil
	}
	return list[at], true, nil
}

// object names the portal in errors.
func (p Portal) object() string { return "portal " + strconv.Quote(p.String()) }

// check returns the portal as Windows takes it: an IPv6 address without brackets and
// in its shortest form.
func (p Portal) check() (win.ISCSIPortal, error) {
	const longest = 255 // ISCSI_TARGET_PORTALW has room for it and a null character
	checked := win.ISCSIPortal{Address: plainAddress(p.Address), Port: p.Port}
	if checked.Port == 0 {
		checked.Port = DefaultPort
	}
	switch {
	case p.Address == "":
		return checked, invalid("the address is empty")
	case len(p.Address) > longest:
		return checked, invalid("the address is longer than %d characters", longest)
	}
	if _, err := netip.ParseAddr(checked.Address); err == nil {
		// A zone is the only part of an address with free text.
		if strings.ContainsFunc(checked.Address, func(r rune) bool { return r <= ' ' || r >= 0x7F }) {
			return checked, invalid("the address has a zone that can't be one")
		}
		return checked, nil
	}
	for _, r := range checked.Address {
		if !('a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r)) {
			return checked, invalid("the address is neither an IP address nor the name of a host: it has the character %q", r)
		}
	}
	return checked, nil
}

// plainAddress returns an IP address in its shortest form, without the brackets that an
// IPv6 address may have; a host name as it is.
func plainAddress(address string) string {
	bare := address
	if inner, ok := strings.CutPrefix(address, "["); ok && strings.HasSuffix(inner, "]") {
		bare = strings.TrimSuffix(inner, "]")
	}
	if a, err := netip.ParseAddr(bare); err == nil && (bare == address || a.Is6()) {
		return a.String()
	}
	return address
}

func samePortal(a, b win.ISCSIPortal) bool {
	return a.Port == b.Port && strings.EqualFold(plainAddress(a.Address), plainAddress(b.Address))
}

// parseMechanism returns the portal at which a target was found, from the text that
// the initiator has for that: "SendTargets:*10.61.169.28 0003260 Root\ISCSIPRT\0000_0".
// Of other ways to find targets, ok is false.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getiscsitargetinformationw
// (DiscoveryMechanisms), whose text isn't documented
func parseMechanism(s string) (p win.ISCSIPortal, ok bool) {
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
	return win.ISCSIPortal{Address: plainAddress(fields[0]), Port: uint16(port)}, true
}
