// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"context"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/storage"
)

// ListRefusedLogOns implements [storage.Operations].
func (s *Staging) ListRefusedLogOns(ctx context.Context, forget bool) ([]storage.RefusedLogOn, error) {
	return operation.Get(ctx, s.options.Runner, "ListRefusedLogOns", "", func(context.Context) (all []storage.RefusedLogOn, _ error) {
		refused := s.LogOns.Refused()
		if forget {
			refused = s.LogOns.Forget()
		}
		for _, r := range refused {
			number, _ := csiproxy.WindowsErrorOf(r.Err)
			all = append(all, storage.RefusedLogOn{
				RemotePath: r.RemotePath, WindowsError: number,
				RefusedFor: time.Since(r.Since), HeldBackFor: max(0, time.Until(r.NextAttempt)),
			})
		}
		return all, nil
	})
}
