// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"google.golang.org/grpc"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// maxSeries is how many series a node with a few volumes may have: a Prometheus that scrapes
// a thousand nodes keeps each of them a thousand times.
const maxSeries = 400

// stage does what a CSI driver does to stage and publish a volume, and what kubelet asks
// for afterwards.
func stage(ctx context.Context, c *client.Client, sim grpc.ClientConnInterface, i int) error {
	attached, err := simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
		&simv1.DiskHardware{SizeBytes: 1 << 30, SerialNumber: fmt.Sprintf("vol-%d", i)})
	if err != nil {
		return err
	}
	n := csiproxy.DiskNumber(attached.GetDiskNumber())
	staging := fmt.Sprintf(`C:\var\lib\kubelet\plugins\kubernetes.io\csi\example.com\%d\globalmount`, i)
	pod := fmt.Sprintf(`C:\var\lib\kubelet\pods\%d\volumes\kubernetes.io~csi\pv`, i)
	if err := errors.Join(c.Disk.Rescan(ctx), c.Disk.PartitionDisk(ctx, n)); err != nil {
		return err
	}
	_, listed := c.Disk.ListDiskIDs(ctx)
	_, state := c.Disk.GetDiskState(ctx, n)
	ids, err := c.Volume.ListVolumesOnDisk(ctx, n, 0)
	if err := errors.Join(listed, state, err); err != nil {
		return err
	}
	formatted, err := c.Volume.IsVolumeFormatted(ctx, ids[0])
	if err == nil && !formatted {
		err = c.Volume.FormatVolume(ctx, ids[0])
	}
	if err != nil {
		return err
	}
	if _, err := c.Volume.GetVolumeIDFromTargetPath(ctx, staging); !errors.Is(err, csiproxy.ErrNotFound) {
		return err
	}
	if _, err := c.Filesystem.IsSymlink(ctx, pod+`\mount`); !errors.Is(err, csiproxy.ErrNotFound) {
		return err
	}
	err = errors.Join(
		c.Filesystem.Mkdir(ctx, staging),
		c.Volume.MountVolume(ctx, ids[0], staging),
		c.Filesystem.Mkdir(ctx, pod),
		c.Filesystem.CreateSymlink(ctx, staging, pod+`\mount`),
		c.Volume.ResizeVolume(ctx, ids[0], 0),
		c.Volume.WriteVolumeCache(ctx, ids[0]))
	_, stats := c.Volume.GetVolumeStats(ctx, ids[0])
	_, exists := c.Filesystem.PathExists(ctx, pod+`\mount`)
	return errors.Join(err, stats, exists)
}

func TestSeriesAreFew(t *testing.T) {
	dir := simtest.SocketDir(t)
	p := startProcess(t, "main", "-endpoint-dir", dir, "-metrics-bind-address", "127.0.0.1:0")
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(p.log.await("serving metrics"))
	p.log.await(served)
	c := client.New(client.WithEndpointDir(dir))
	defer c.Close()
	sim := dialEndpoint(t, dir, simv1.EndpointName)
	for i := range 4 {
		must(t, stage(t.Context(), c, sim, i))
	}
	scrape(t, address) // counts itself
	body := scrape(t, address)
	docs, err := os.ReadFile("../../docs/monitoring.md")
	must(t, err)
	families := make(map[string]int)
	total := 0
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			total++
			if name := regexp.MustCompile(`^[a-z_]+?(?:_bucket|_sum|_count)?[{ ]`).FindString(line); !strings.HasPrefix(name,
				"go_") && !strings.HasPrefix(name, "process_") {
				name = strings.TrimRight(name, "{ ")
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					name = strings.TrimSuffix(name, suffix)
				}
				if !strings.Contains(string(docs), "`"+name+"`") {
					t.Errorf("docs/monitoring.md doesn't explain %s", name)
				}
			}
			families[regexp.MustCompile(`^[a-z_]+?_[a-z]+_[a-z]+`).FindString(line)]++
		}
	}
	t.Logf("%d series: %v", total, families)
	if total > maxSeries {
		t.Errorf("%d series, more than %d: %v", total, maxSeries, families)
	}
}
