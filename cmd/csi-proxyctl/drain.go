// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
)

// defaultDrainWait is as long as the daemon's own stop waits for calls by default.
const defaultDrainWait = 25 * time.Second

func (p *program) drain() *cobra.Command {
	var wait time.Duration
	cmd := p.leaf("drain", "Let the calls under way finish before the daemon is stopped",
		func(ctx context.Context, _ []string) (reply, error) {
			if wait < 0 || wait > admin.MaxWait || p.timeout > 0 && wait >= p.timeout {
				return reply{}, usageError{fmt.Errorf("--wait=%v: it must be less than --timeout, and no more than %v",
					wait, admin.MaxWait)}
			}
			running, err := admin.Drain(ctx, p.endpointDir, wait)
			if err == nil && running > 0 {
				err = csiproxy.Errorf(csiproxy.ErrUnavailable, "after %v, calls still run (%d): --wait allows more time",
					wait, running)
			}
			return done, err
		})
	cmd.Long = `Let the calls under way finish before the daemon is stopped. New ones are refused with
Unavailable, which drivers repeat. The command ends when no call runs any more, or when --wait is
over. The daemon refuses calls until 30 seconds after the end of --wait, also if the command ends
before that. Then it takes calls again, if it hasn't been stopped.

It is for a preStop hook where the end of a container gives the daemon a few seconds only, as it does
in HostProcess containers. A service needs no drain: it waits for its calls when it is stopped. Only
SYSTEM and the Administrators can do it, whatever -pipe-security says.`
	cmd.Flags().DurationVar(&wait, "wait", defaultDrainWait, "how long to wait for the calls under way")
	return cmd
}
