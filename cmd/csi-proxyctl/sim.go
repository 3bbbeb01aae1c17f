// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"errors"
	"net"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/pipe"
	"github.com/csi-proxy/csi-proxy/internal/wire"
)

func init() { simulated = (*program).sim }

func (p *program) sim() *cobra.Command {
	return p.group("sim", "Control the simulated node that the daemon runs on",
		p.simDisk(),
		p.simVolume(),
		p.simProcess(),
		p.simFile(),
		p.simSMB(),
		p.simISCSI(),
		p.simService(),
		p.simBIOS(),
		p.simFail(),
		p.simDelay(),
		p.simRules(),
		p.simCalls(),
		p.simLeaf("power-loss", "Cut the node's power, and start the node again", func(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
			_, err := sim.PowerLoss(ctx, &simv1.PowerLossRequest{})
			return done, err
		}),
		p.simLeaf("reboot", "Shut the node down and start it again", func(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
			_, err := sim.Reboot(ctx, &simv1.RebootRequest{})
			return done, err
		}),
	)
}

// simLeaf is a leaf that controls the simulated node.
func (p *program) simLeaf(use, short string, do func(context.Context, simv1.SimClient, []string) (reply, error)) *cobra.Command {
	return p.leaf(use, short, func(ctx context.Context, args []string) (reply, error) {
		conn, err := p.dialSim(ctx)
		if err != nil {
			return reply{}, err
		}
		r, err := do(ctx, simv1.NewSimClient(conn), args)
		return r, errors.Join(wire.FromStatus(err), conn.Close())
	})
}

// dialSim connects to the control of the simulated node.
func (p *program) dialSim(ctx context.Context) (*grpc.ClientConn, error) {
	address := pipe.Address(p.endpointDir, simv1.EndpointName)
	probe, err := pipe.Dial(ctx, address)
	if err != nil {
		return nil, &csiproxy.Error{
			Op: "connect", Object: "to the simulated node", Kind: csiproxy.ErrUnavailable,
			Detail: "CSI Proxy isn't running, or doesn't run on a simulated node", Err: err,
		}
	}
	_ = probe.Close() // nothing was sent that could get lost
	return grpc.NewClient("passthrough:///"+simv1.EndpointName,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.Dial(ctx, address) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}
