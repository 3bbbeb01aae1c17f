// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
)

func (p *program) status() *cobra.Command {
	var alive bool
	cmd := p.leaf("status", "Say whether the daemon is ready",
		func(ctx context.Context, _ []string) (reply, error) {
			page, state := admin.Readyz, "ready"
			if alive {
				page, state = admin.Healthz, "alive"
			}
			_, err := admin.Get(ctx, p.endpointDir, page)
			return line(map[string]bool{state: true}, state), err
		})
	cmd.Long = `Say whether the daemon takes drivers' calls. If it doesn't, that is an error with the reason, and
exit code 6. The daemon is asked at an endpoint that only SYSTEM and the Administrators can open. The
manifests' probes are this command: they need no port. So it looks at no volume; csi-proxyctl doctor
says what is wrong with those, and which are kept on the node by pods that kubelet has forgotten.`
	cmd.Flags().BoolVar(&alive, "alive", false, "only ask whether the daemon's process answers, as a liveness probe does")
	return cmd
}
