// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"context"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// targetOf returns the target that provides an open disk; "" if none does. If a disk doesn't
// say on which bus it is, targetOf asks the initiator, too.
func (s *Staging) targetOf(ctx context.Context, h *opendisk.Disk) (csiproxy.IQN, error) {
	hardware := h.Hardware
	if hardware.DescriptorErr == nil && hardware.Descriptor.BusType != win.BusTypeISCSI {
		return "", nil
	}
	luns, err := s.Initiator.LUNs(ctx)
	return luns[h.Number].IQN, err
}

// connect makes a portal known, and logs in to its target. Until release is called, logOut doesn't
// disconnect the target.
func (s *Staging) connect(ctx context.Context, t csiproxy.ISCSISelector, l csiproxy.ISCSILogin) (
	release func(), err error) {
	release, err = s.keepConnected(ctx, t.IQN)
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

// keepConnected keeps logOut from disconnecting a target until release is called. It is needed while
// a disk of the target is being staged, and isn't online yet. It waits for a logout that is under
// way.
func (s *Staging) keepConnected(ctx context.Context, target csiproxy.IQN) (release func(), _ error) {
	unlock, err := s.logOuts.Lock(ctx, s.options.Driver, target)
	if err != nil {
		return nil, err
	}
	defer unlock()
	own := connection{s.options.Driver, strings.ToLower(string(target))}
	s.addConnecting(own, 1)
	return func() { s.addConnecting(own, -1) }, nil
}

// addConnecting adds n to the number of disks that are being staged by a connection.
func (s *Staging) addConnecting(c connection, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connecting[c] += n; s.connecting[c] == 0 {
		delete(s.connecting, c)
	}
}

// isConnecting reports whether disks of a target are being staged. A driver may name any target, and has only those at
// its own portals. So one driver's staging says nothing of another's target. The node's may be of either.
func (s *Staging) isConnecting(target csiproxy.IQN) bool {
	driver := s.options.Driver
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.connecting {
		if target.Equal(csiproxy.IQN(c.target)) && (driver == "" || c.driver == "" || c.driver == driver) {
			return true
		}
	}
	return false
}

// logOut logs out of a target if none of its disks is online or being staged, and reports
// whether it has.
func (s *Staging) logOut(ctx context.Context, target csiproxy.IQN) (bool, error) {
	unlock, err := s.logOuts.Lock(ctx, s.options.Driver, target)
	if err != nil {
		return false, err
	}
	defer unlock()
	if s.isConnecting(target) {
		return false, nil
	}
	luns, err := s.Initiator.LUNs(ctx)
	if err != nil {
		return false, err
	}
	for n, lun := range luns {
		if !lun.IQN.Equal(target) {
			continue
		}
		// Also of a disk that isn't the caller's: it would lose it.
		online, err := s.Disks.IsOnline(ctx, n)
		if csiproxy.KindOf(err) == csiproxy.ErrNotFound { // one answer proves nothing
			if online, err = s.Disks.IsOnline(ctx, n); csiproxy.KindOf(err) == csiproxy.ErrNotFound {
				continue
			}
		}
		if err != nil || online {
			return false, err
		}
	}
	return s.Initiator.LogOut(ctx, target)
}
