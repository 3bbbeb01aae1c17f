// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// AddTargetPortal implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-addiscsisendtargetportalw
func (i *Initiator) AddTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) (err error) {
	defer i.options.Runner.Done("AddTargetPortal", portalObject(p), time.Now(), &err)
	want, err := checkPortal(p)
	if err != nil {
		return err
	}
	portal, known, err := i.known(ctx, want)
	if err != nil {
		return err
	}
	if known {
		i.rediscover(ctx, portal)
		return nil
	}
	err = i.call(ctx, func() error { return i.sys.AddISCSISendTargetPortal(ctx, want) })
	if errors.Is(err, winerr.ISDSCTargetPortalAlreadyExists) { // added by somebody else
		return nil
	}
	if err == nil {
		i.options.Logger.Info("portal added", "portal", csiproxy.ISCSIPortal(want).String())
	}
	return err
}

// rediscover asks a known portal for its targets, since there may be new ones. It returns no error:
// if the portal doesn't answer, the targets found before are still known, and another portal may
// lead to them.
func (i *Initiator) rediscover(ctx context.Context, p win.ISCSIPortal) {
	err := i.call(ctx, func() error { return i.sys.RefreshISCSISendTargetPortal(ctx, p) })
	if err != nil && ctx.Err() == nil {
		i.options.Logger.Warn("targets not discovered again", "portal", csiproxy.ISCSIPortal(p).String(), "err", err)
	}
}

// DiscoverTargetPortal implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-refreshiscsisendtargetportalw,
// https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-getiscsitargetinformationw
func (i *Initiator) DiscoverTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) (_ []csiproxy.IQN, err error) {
	defer i.options.Runner.Done("DiscoverTargetPortal", portalObject(p), time.Now(), &err)
	want, err := checkPortal(p)
	if err != nil {
		return nil, err
	}
	portal, known, err := i.known(ctx, want)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, csiproxy.Errorf(csiproxy.ErrNotFound, "the initiator doesn't know the portal: add it first")
	}
	if err := i.call(ctx, func() error { return i.sys.RefreshISCSISendTargetPortal(ctx, portal) }); err != nil {
		return nil, err
	}
	return i.targetsOf(ctx, want)
}

// targetsOf returns the targets that were found at a portal.
func (i *Initiator) targetsOf(ctx context.Context, p win.ISCSIPortal) ([]csiproxy.IQN, error) {
	targets, err := query(ctx, i, i.sys.ISCSITargets)
	if err != nil {
		return nil, err
	}
	var found []csiproxy.IQN
	for _, target := range targets {
		portals, err := i.foundAt(ctx, target)
		if errors.Is(err, winerr.ISDSCTargetNotFound) { // it has gone meanwhile
			continue
		}
		if err != nil {
			return nil, &csiproxy.Error{Object: "target " + target, Err: err}
		}
		if slices.ContainsFunc(portals, func(portal win.ISCSIPortal) bool { return samePortal(portal, p) }) {
			found = append(found, csiproxy.IQN(target))
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// foundAt returns the portals at which a target was found.
func (i *Initiator) foundAt(ctx context.Context, target string) ([]win.ISCSIPortal, error) {
	mechanisms, err := query(ctx, i, func(ctx context.Context) ([]string, error) {
		return i.sys.ISCSIDiscoveryMechanisms(ctx, target)
	})
	if err != nil {
		return nil, err
	}
	var portals []win.ISCSIPortal
	for _, m := range mechanisms {
		if p, ok := parseMechanism(m); ok {
			portals = append(portals, p)
		}
	}
	return portals, nil
}

// ListTargetPortals implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-reportiscsisendtargetportalsexw
func (i *Initiator) ListTargetPortals(ctx context.Context) (_ []csiproxy.ISCSIPortal, err error) {
	defer i.options.Runner.Done("ListTargetPortals", "", time.Now(), &err)
	known, err := query(ctx, i, i.sys.ISCSISendTargetPortals)
	if err != nil {
		return nil, err
	}
	var list []csiproxy.ISCSIPortal
	for _, p := range known {
		list = append(list, csiproxy.ISCSIPortal(p))
	}
	return list, nil
}

// RemoveTargetPortal implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-removeiscsisendtargetportalw
func (i *Initiator) RemoveTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) (err error) {
	defer i.options.Runner.Done("RemoveTargetPortal", portalObject(p), time.Now(), &err)
	want, err := checkPortal(p)
	if err != nil {
		return err
	}
	portal, known, err := i.known(ctx, want)
	if err != nil {
		return err
	}
	if !known {
		return csiproxy.Errorf(csiproxy.ErrNotFound, "the initiator doesn't know the portal")
	}
	err = i.call(ctx, func() error { return i.sys.RemoveISCSISendTargetPortal(ctx, portal) })
	if err == nil {
		i.options.Logger.Info("portal removed", "portal", csiproxy.ISCSIPortal(portal).String())
	}
	return err
}

// known returns the portal in the spelling in which the initiator knows it.
func (i *Initiator) known(ctx context.Context, want win.ISCSIPortal) (p win.ISCSIPortal, known bool, err error) {
	list, err := query(ctx, i, i.sys.ISCSISendTargetPortals)
	if err != nil {
		return p, false, err
	}
	index := slices.IndexFunc(list, func(p win.ISCSIPortal) bool { return samePortal(p, want) })
	if index < 0 {
		return p, false, nil
	}
	return list[index], true, nil
}

// portalObject names the portal in errors.
func portalObject(p csiproxy.ISCSIPortal) string { return "portal " + strconv.Quote(p.String()) }

// checkPortal returns the portal as Windows takes it: an IPv6 address without brackets and
// in its shortest form.
func checkPortal(p csiproxy.ISCSIPortal) (win.ISCSIPortal, error) {
	const longest = 255 // ISCSI_TARGET_PORTALW has room for it and a null character
	checked := win.ISCSIPortal{Address: plainAddress(p.Address), Port: p.Port}
	if checked.Port == 0 {
		checked.Port = csiproxy.DefaultISCSIPort
	}
	switch {
	case p.Address == "":
		return checked, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the address is empty")
	case len(p.Address) > longest:
		return checked, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the address is longer than %d characters", longest)
	}
	if _, err := netip.ParseAddr(checked.Address); err == nil {
		// A zone is the only part of an address with free text.
		if strings.ContainsFunc(checked.Address, func(r rune) bool { return r <= ' ' || r >= 0x7F }) {
			return checked, csiproxy.Errorf(csiproxy.ErrInvalidArgument,
				"the zone of the IPv6 address has a space or a character that isn't ASCII")
		}
		return checked, nil
	}
	for _, r := range checked.Address {
		if !('a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r)) {
			return checked, csiproxy.Errorf(csiproxy.ErrInvalidArgument,
				"the address is neither an IP address nor the name of a host: it has the character %q", r)
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

// maybeSamePortal is samePortal, but a host name may be any address.
func maybeSamePortal(a, b win.ISCSIPortal) bool {
	return samePortal(a, b) || a.Port == b.Port && isAddress(a.Address) != isAddress(b.Address)
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(plainAddress(host))
	return err == nil
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
