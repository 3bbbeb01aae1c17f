// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/unc"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// queryTimeout is how long a caller waits for a server, or for WMI. A call to a dead server takes 20 to
// 60 seconds. A caller that comes after the timeout, while that call is still under way, gets the error
// at once.
const queryTimeout = 10 * time.Second

// List returns the SMB global mappings of the node. Concurrent callers share a query that begins
// after they called, so each sees its own earlier changes. If ctx ends first, the error is ctx's. If
// WMI doesn't answer before the timeout, it is csiproxy.ErrUnavailable; later callers get that at
// once.
func (m *Mappings) List(ctx context.Context) ([]win.SMBMapping, error) {
	return m.lists.Do(ctx, struct{}{}, m.sys.SMBGlobalMappings)
}

// Probe returns nil if a path on a share is there, and else Windows' error. Concurrent callers for one
// path share a query that begins after they called. If ctx ends first, the error is ctx's. If the
// server doesn't answer before the timeout, it is csiproxy.ErrUnavailable; later callers get that at
// once. While log-ons to the share are throttled, the server isn't queried.
//
// Windows logs in to any server that it is asked about. So callers must know that the server may
// be trusted with that.
func (m *Mappings) Probe(ctx context.Context, path unc.Path) error {
	_, err := m.probes.Do(ctx, path.Folded(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, m.logOns.probe(path, func() error {
			_, err := m.sys.FileAttributes(ctx, path.String())
			return err
		})
	})
	return err
}
