// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/simnode"
	"github.com/csi-proxy/csi-proxy/storage"
)

// BenchmarkNodeComesBack measures a node that comes back: one driver stages, or unstages, 60 volumes
// at once, over the endpoint, on two processors, with the delays of a quick cloud node. The metric
// x-alone is how many times longer that takes than one volume alone. The simulated node and the
// driver are in the same process.
func BenchmarkNodeComesBack(b *testing.B) {
	const volumes = 60
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for _, c := range []struct {
		name    string
		prepare []func(context.Context, *client.Client, int) error
		measure func(context.Context, *client.Client, int) error
		aim     float64
	}{
		{"raw", nil, clientStage, 1.15},
		{"with data", []func(context.Context, *client.Client, int) error{clientStage, clientUnstage}, clientStage, 1.15},
		{"unstage", []func(context.Context, *client.Client, int) error{clientStage}, clientUnstage, 1.5},
	} {
		b.Run(c.name, func(b *testing.B) {
			run := func(count int) time.Duration {
				n := simnode.New(b, simnode.WithRealisticDelays())
				for i := range count {
					n.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Offline: true, Serial: fmt.Sprintf("vol-%d", i)})
				}
				waitForDisks(b, n, count+1)
				driver := client.New(client.WithEndpointDir(n.EndpointDir()))
				defer driver.Close()
				at := func(f func(context.Context, *client.Client, int) error) time.Duration {
					start := time.Now()
					var wg sync.WaitGroup
					for i := range count {
						wg.Go(func() {
							if err := f(b.Context(), driver, i); err != nil {
								b.Error(err)
							}
						})
					}
					wg.Wait()
					return time.Since(start)
				}
				for _, f := range c.prepare {
					at(f)
				}
				return at(c.measure)
			}
			var alone, together time.Duration
			for b.Loop() {
				alone += run(1)
				together += run(volumes)
			}
			report(b, float64(together)/float64(alone), "x-alone", c.aim)
			b.ReportMetric(float64(alone.Milliseconds())/float64(b.N), "ms/one")
			b.ReportMetric(float64(together.Milliseconds())/float64(b.N), fmt.Sprintf("ms/%d", volumes))
		})
	}
}

func clientStage(ctx context.Context, c *client.Client, i int) error {
	_, err := c.Storage.StageVolume(ctx, storage.StageVolumeRequest{
		Disk: storage.Selector{SerialNumber: fmt.Sprintf("vol-%d", i)}, StagingPath: stagingPath(i)})
	return err
}

func clientUnstage(ctx context.Context, c *client.Client, i int) error {
	_, err := c.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: stagingPath(i)})
	return err
}
