// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// AddTargetPortal implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-addiscsisendtargetportalw
func (i *Initiator) AddTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) (err error) {
	defer i.options.Observer.End("AddTargetPortal", portalObject(p), time.Now(), &err)
	want, err := win.ParsePortal(p)
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

// rediscover asks a known portal for new targets. Errors are only logged: if the portal is silent,
// the targets found before are still known, and another portal may lead to them.
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
	defer i.options.Observer.End("DiscoverTargetPortal", portalObject(p), time.Now(), &err)
	want, err := win.ParsePortal(p)
	if err != nil {
		return nil, err
	}
	shared, err := i.discoveries.Do(ctx, want, func(ctx context.Context) ([]csiproxy.IQN, error) { return i.discover(ctx, want) })
	return slices.Clone(shared), err
}

// discover asks a portal for its targets.
func (i *Initiator) discover(ctx context.Context, want win.ISCSIPortal) ([]csiproxy.IQN, error) {
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

const (
	// maxSilentTargets is how many silent targets may take up calls at the same time.
	maxSilentTargets = 128
	// targetsTimeout is how long a query of all targets may take in all.
	targetsTimeout = 5 * time.Second
	// silentTimeout is how long a query of all targets waits while no target answers, on a node whose
	// drivers have their own operations: the silent targets may belong to another driver.
	silentTimeout = 200 * time.Millisecond
)

// targetsOf returns the targets found at a portal. It leaves out silent and failing targets: they may
// belong to another portal.
func (i *Initiator) targetsOf(ctx context.Context, p win.ISCSIPortal) ([]csiproxy.IQN, error) {
	targets, err := query(ctx, i, i.sys.ISCSITargets)
	if err != nil {
		return nil, err
	}
	timeout := targetsTimeout
	if i.options.Targets.count > 1 {
		timeout = silentTimeout
	}
	answering, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(timeout, cancel)
	defer silence.Stop()
	var found []csiproxy.IQN
	silent := len(targets)
	// The answers for thousands of targets would take much memory.
	isAtPortal := func(ctx context.Context, target string) (bool, error) {
		mechanisms, err := i.sys.ISCSIDiscoveryMechanisms(ctx, target)
		return slices.ContainsFunc(portalsIn(mechanisms), func(portal win.ISCSIPortal) bool { return win.SamePortal(portal, p) }), err
	}
	for target, outcome := range operation.AskSome(answering, targets, operation.UnknownOwner, maxSilentTargets, targetsTimeout, isAtPortal) {
		silence.Reset(timeout)
		silent--
		isFound, err := outcome.Get()
		if err != nil && !errors.Is(err, winerr.ISDSCTargetNotFound) { // a missing target has gone meanwhile, or is another driver's
			i.options.Logger.Warn("a target doesn't say where it was found", "target", quote.Text(target), "err", err)
		}
		if isFound {
			found = append(found, csiproxy.IQN(target))
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if silent > 0 {
		i.options.Logger.Warn("targets don't say in time where they were found", "count", silent)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// foundAt returns the portals at which a target was found.
func (i *Initiator) foundAt(ctx context.Context, target string) ([]win.ISCSIPortal, error) {
	mechanisms, err := query(ctx, i, func(ctx context.Context) ([]string, error) {
		return i.sys.ISCSIDiscoveryMechanisms(ctx, target)
	})
	return portalsIn(mechanisms), err
}

// portalsIn returns the portals among discovery mechanisms.
func portalsIn(mechanisms []string) (portals []win.ISCSIPortal) {
	for _, m := range mechanisms {
		if p, ok := win.ParsePortalMechanism(m); ok {
			portals = append(portals, p)
		}
	}
	return portals
}

// ListTargetPortals implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-reportiscsisendtargetportalsexw
func (i *Initiator) ListTargetPortals(ctx context.Context) (_ []csiproxy.ISCSIPortal, err error) {
	defer i.options.Observer.End("ListTargetPortals", "", time.Now(), &err)
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
	defer i.options.Observer.End("RemoveTargetPortal", portalObject(p), time.Now(), &err)
	want, err := win.ParsePortal(p)
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

// known returns the portal in the initiator's spelling.
func (i *Initiator) known(ctx context.Context, want win.ISCSIPortal) (p win.ISCSIPortal, known bool, err error) {
	list, err := query(ctx, i, i.sys.ISCSISendTargetPortals)
	if err != nil {
		return p, false, err
	}
	index := slices.IndexFunc(list, func(p win.ISCSIPortal) bool { return win.SamePortal(p, want) })
	if index < 0 {
		return p, false, nil
	}
	return list[index], true, nil
}

// portalObject names the portal in errors.
func portalObject(p csiproxy.ISCSIPortal) string { return "portal " + strconv.Quote(p.String()) }
