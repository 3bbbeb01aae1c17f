// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"io/fs"
	"net"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/examples/csi-driver/driver"
	"github.com/csi-proxy/csi-proxy/simnode"
)

func TestProbe(t *testing.T) {
	node := simnode.New(t)
	var gone atomic.Bool
	c := client.New(client.WithDialer(func(ctx context.Context, group, version string) (net.Conn, error) {
		if gone.Load() {
			return nil, fs.ErrNotExist
		}
		return node.Dial(ctx, group, version)
	}))
	defer c.Close()
	d := driver.New(driver.Options{Proxy: driver.OverPipe(c)})
	for _, isGone := range []bool{true, false, true, false} {
		gone.Store(isGone)
		node.RestartDaemon() // ends the connections
		probe, err := d.Probe(t.Context(), &csi.ProbeRequest{})
		if err != nil || probe.Ready.GetValue() == isGone {
			t.Errorf("with the daemon gone %t: %v, %v", isGone, probe, err)
		}
	}
}
