// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"bytes"
	"context"
	"errors"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/lab/conformance"
)

// planter plants links and data on the simulated node.
type planter struct{ p *program }

func (p *program) planter() conformance.Node { return planter{p} }

func (n planter) Mkdir(ctx context.Context, path string) error {
	return n.p.callSim(ctx, "MakeDirectory", &simv1.Path{Path: path}, &simv1.Empty{})
}

func (n planter) Symlink(ctx context.Context, link, target string) error {
	return n.p.callSim(ctx, "CreateSymlink", &simv1.CreateSymlinkRequest{SourcePath: target, TargetPath: link}, &simv1.Empty{})
}

func (n planter) Names(ctx context.Context, path string) (names []string, err error) {
	var response simv1.ListDirectoryResponse
	err = n.p.callSim(ctx, "ListDirectory", &simv1.Path{Path: path}, &response)
	for _, entry := range response.Entries {
		names = append(names, entry.Name)
	}
	return names, err
}

func (n planter) Remove(ctx context.Context, path string) error {
	return n.p.callSim(ctx, "Remove", &simv1.Path{Path: path}, &simv1.Empty{})
}

func (n planter) Overwrite(ctx context.Context, disk uint32, before, after []byte) error {
	var there simv1.Data
	err := n.p.callSim(ctx, "ReadDisk", &simv1.ReadDiskRequest{DiskNumber: disk, Length: int64(len(before))}, &there)
	if err == nil && !bytes.Equal(there.Data, before) {
		err = errors.New("the disk begins with other data")
	}
	if err != nil {
		return err
	}
	return n.p.callSim(ctx, "WriteDisk", &simv1.WriteDiskRequest{DiskNumber: disk, Data: after}, &simv1.Empty{})
}
