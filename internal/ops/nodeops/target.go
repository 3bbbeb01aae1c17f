// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// targetOf returns the target that provides an open disk, or the zero value for a disk without a
// target. If a disk doesn't report its bus, targetOf asks the initiator, too.
func (s *Staging) targetOf(ctx context.Context, h *opendisk.Disk) (csiproxy.ISCSISelector, error) {
	hardware := h.Hardware
	if hardware.DescriptorErr == nil && hardware.Descriptor.BusType != win.BusTypeISCSI {
		return csiproxy.ISCSISelector{}, nil
	}
	luns, err := s.Initiator.LUNs(ctx)
	lun := luns[h.Number]
	return csiproxy.ISCSISelector{Portal: lun.Portal, IQN: lun.IQN, LUN: lun.LUN}, err
}

// connect makes a portal known, and logs in to its target. Until release is called, logOut leaves
// the target connected.
func (s *Staging) connect(ctx context.Context, t csiproxy.ISCSISelector, l csiproxy.ISCSILogin) (
	release func(), err error) {
	release, err = s.keepConnected(ctx, t)
	if err != nil {
		return nil, err
	}
	if err = s.Initiator.AddTargetPortal(ctx, t.Portal); err == nil {
		err = s.Initiator.Connect(ctx, t.Portal, t.IQN, l)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// keepConnected keeps logOut from disconnecting a target until release is called. Callers need the
// target while a disk is being staged and isn't online yet. keepConnected waits for a running
// logout.
func (s *Staging) keepConnected(ctx context.Context, t csiproxy.ISCSISelector) (release func(), _ error) {
	owners := s.Initiator.Owners(t.Portal)
	unlock, err := s.logOuts.Lock(ctx, owners, t.IQN)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.addConnecting(owners, t.IQN, 1)
	return func() { s.addConnecting(owners, t.IQN, -1) }, nil
}

// addConnecting adds n to the number of a target's disks that are being staged for owners.
func (s *Staging) addConnecting(owners []string, target csiproxy.IQN, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, owner := range owners {
		c := connection{owner, strings.ToLower(string(target))}
		if s.connecting[c] += n; s.connecting[c] == 0 {
			delete(s.connecting, c)
		}
	}
}

// isConnecting reports whether disks of a target are being staged for one of the owners. A driver
// may name any target, but reaches only the targets at its own portals. One driver's staging is
// therefore irrelevant to another driver's target of the same name.
func (s *Staging) isConnecting(owners []string, target csiproxy.IQN) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(owners, func(owner string) bool {
		return s.connecting[connection{owner, strings.ToLower(string(target))}] > 0
	})
}

// logOut logs out of a target if none of its disks is online or being staged, and reports whether
// it did.
func (s *Staging) logOut(ctx context.Context, t csiproxy.ISCSISelector) (bool, error) {
	owners := s.Initiator.Owners(t.Portal)
	unlock, err := s.logOuts.Lock(ctx, owners, t.IQN)
	if err != nil {
		return false, err
	}
	defer unlock()
	if s.isConnecting(owners, t.IQN) {
		return false, nil
	}
	luns, err := s.Initiator.LUNs(ctx)
	if err != nil {
		return false, err
	}
	for n, lun := range luns {
		if !lun.IQN.Equal(t.IQN) {
			continue
		}
		// The disks of all owners count: a logout takes the target's disks away from each of them.
		online, err := s.Disks.IsOnline(ctx, n)
		if csiproxy.KindOf(err) == csiproxy.ErrNotFound { // a single answer may be transient
			if online, err = s.Disks.IsOnline(ctx, n); csiproxy.KindOf(err) == csiproxy.ErrNotFound {
				continue
			}
		}
		if err != nil || online {
			return false, err
		}
	}
	return s.Initiator.LogOut(ctx, t.Portal, t.IQN)
}
