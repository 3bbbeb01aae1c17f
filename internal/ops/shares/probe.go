// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// queryTimeout is how long a caller waits for a server, or for WMI. A call to a dead server takes
// 20 to 60 seconds. A caller that comes after the timeout, while the call is still under way, gets
// the error at once.
const queryTimeout = 10 * time.Second

// List returns the SMB global mappings of the node. Concurrent callers share a query that begins
// after their calls, and each caller sees its own earlier changes. If ctx ends first, List returns
// the error of ctx. If WMI times out, List returns csiproxy.ErrUnavailable, at once for later
// callers.
func (m *Mappings) List(ctx context.Context) ([]win.SMBMapping, error) {
	return m.lists.Do(ctx, struct{}{}, m.sys.SMBGlobalMappings)
}

// Probe returns nil if a path on a share exists, or else Windows' error. Concurrent callers for the
// same path share a query that begins after their calls. If ctx ends first, Probe returns the error
// of ctx. If the server times out, Probe returns csiproxy.ErrUnavailable, at once for later
// callers. While log-ons to the share are throttled, Probe returns the last refusal.
//
// A query makes Windows log on to the server. Probe only servers trusted with a log-on.
func (m *Mappings) Probe(ctx context.Context, path win.UNCPath) error {
	_, err := m.probes.Do(ctx, path.Folded(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, m.logOns.probe(path, func() error {
			_, err := m.sys.FileAttributes(ctx, path.String())
			return err
		})
	})
	return err
}
