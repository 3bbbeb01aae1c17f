// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"context"
	"errors"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
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
	key := strings.ToLower(string(target))
	unlock, err := s.targets.Lock(ctx, key, "target "+quote.Text(string(target)))
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.addConnecting(key, 1)
	return func() { s.addConnecting(key, -1) }, nil
}

// addConnecting adds n to the number of disks of a target that are being staged, and returns the sum.
func (s *Staging) addConnecting(key string, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := s.connecting[key] + n
	if s.connecting[key] = count; count == 0 {
		delete(s.connecting, key)
	}
	return count
}

// logOut logs out of a target if none of its disks is online or being staged, and reports
// whether it has.
func (s *Staging) logOut(ctx context.Context, target csiproxy.IQN) (bool, error) {
	key := strings.ToLower(string(target))
	unlock, err := s.targets.Lock(ctx, key, "target "+quote.Text(string(target)))
	if err != nil {
		return false, err
	}
	defer unlock()
	if s.addConnecting(key, 0) > 0 {
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
		online, err := s.Disks.Node().GetDiskState(ctx, n)
		if errors.Is(err, csiproxy.ErrNotFound) { // one answer proves nothing
			if online, err = s.Disks.Node().GetDiskState(ctx, n); errors.Is(err, csiproxy.ErrNotFound) {
				continue
			}
		}
		if err != nil || online {
			return false, err
		}
	}
	return s.Initiator.LogOut(ctx, target)
}
