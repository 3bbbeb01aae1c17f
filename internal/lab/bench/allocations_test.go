// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// measureAllocations returns how often calls allocate memory. Those of the client and of the simulated node count too.
func measureAllocations(t *testing.T) table {
	n := simnode.New(t)
	must(t, n.MkdirAll(simtest.Kubelet))
	endpoint := func(name string) string { return filepath.Join(n.EndpointDir(), name+".sock") }
	files, disks := connect(t, endpoint("csi-proxy-filesystem-v1")), connect(t, endpoint("csi-proxy-disk-v1"))
	// Which release of Go it is counts, and what its pools and the scheduler do meanwhile.
	const spread = 0.1
	result := table{title: "allocations of a call on a simulated node, all in one process", columns: []string{"in process", "over the endpoint"}}
	for _, call := range []struct {
		name                  string
		inProcess, atEndpoint func(ctx context.Context) error
	}{
		{"PathExists", func(ctx context.Context) error {
			_, err := n.Operations().Filesystem.PathExists(ctx, simtest.Kubelet)
			return err
		}, func(ctx context.Context) error { return pathExists(ctx, files, simtest.Kubelet) }},
		{"ListDiskIDs", func(ctx context.Context) error {
			_, err := n.Operations().Disk.ListDiskIDs(ctx)
			return err
		}, func(ctx context.Context) error {
			return disks.Invoke(ctx, "/v1.Disk/ListDiskIDs", new(diskv1.ListDiskIDsRequest), new(diskv1.ListDiskIDsResponse))
		}},
	} {
		made := &row{name: call.name, spread: spread}
		for _, f := range []func(ctx context.Context) error{call.inProcess, call.atEndpoint} {
			allocations := testing.AllocsPerRun(500, func() { must(t, f(t.Context())) })
			made.cells = append(made.cells, strconv.Itoa(int(allocations)))
		}
		result.rows = append(result.rows, made)
	}
	return result
}
