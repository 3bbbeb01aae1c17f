// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	csiproxy "github.com/csi-proxy/csi-proxy"
	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// BenchmarkWaiting compares calls that a driver makes at once over one connection, each on a disk of
// its own and with 50 ms in Windows, with one alone: the metric x-alone is how many times longer
// they take. That is a node which comes back: its driver has all volumes to look after at once.
func BenchmarkWaiting(b *testing.B) {
	for _, calls := range []int{32, 60} {
		b.Run(fmt.Sprintf("calls=%d", calls), func(b *testing.B) {
			n := simnode.New(b)
			disks := make([]csiproxy.DiskNumber, calls)
			for i := range disks {
				disks[i] = n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: fmt.Sprintf("vol-%d", i)})
			}
			conn := connect(b, filepath.Join(n.EndpointDir(), "csi-proxy-disk-v1.sock"))
			must(b, diskState(b.Context(), conn, disks[0]))
			n.Delay("IOCTL_DISK_GET_DISK_ATTRIBUTES", 50*time.Millisecond, 0)
			var alone, together time.Duration
			for b.Loop() { // by turns, since the speed of machines drifts
				alone += timed(b, func() error { return diskState(b.Context(), conn, disks[0]) })
				start := time.Now()
				var driver sync.WaitGroup
				for _, d := range disks {
					driver.Go(func() {
						if err := diskState(b.Context(), conn, d); err != nil {
							b.Error(err)
						}
					})
				}
				driver.Wait()
				together += time.Since(start)
			}
			report(b, float64(together)/float64(alone), "x-alone", 1.3)
			b.ReportMetric(float64(alone.Milliseconds())/float64(b.N), "ms/one")
			b.ReportMetric(float64(together.Milliseconds())/float64(b.N), fmt.Sprintf("ms/%d", calls))
		})
	}
}

func diskState(ctx context.Context, conn *grpc.ClientConn, n csiproxy.DiskNumber) error {
	return conn.Invoke(ctx, "/v1.Disk/GetDiskState", &diskv1.GetDiskStateRequest{DiskNumber: uint32(n)},
		new(diskv1.GetDiskStateResponse))
}
