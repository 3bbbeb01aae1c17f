// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"bytes"
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/lab/conformance"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// planter plants links and data on the simulated node.
type planter struct{ endpointDir string }

func newPlanter(endpointDir string) conformance.Node { return planter{endpointDir} }

func (n planter) Mkdir(ctx context.Context, path string) error {
	_, err := call[simv1.Empty](ctx, n, "MakeDirectory", &simv1.Path{Path: path})
	return err
}

func (n planter) Symlink(ctx context.Context, link, target string) error {
	_, err := call[simv1.Empty](ctx, n, "CreateSymlink", &simv1.CreateSymlinkRequest{SourcePath: target, TargetPath: link})
	return err
}

func (n planter) Names(ctx context.Context, path string) (names []string, err error) {
	response, err := call[simv1.ListDirectoryResponse](ctx, n, "ListDirectory", &simv1.Path{Path: path})
	for _, entry := range response.GetEntries() {
		names = append(names, entry.Name)
	}
	return names, err
}

func (n planter) Remove(ctx context.Context, path string) error {
	_, err := call[simv1.Empty](ctx, n, "Remove", &simv1.Path{Path: path})
	return err
}

func (n planter) Overwrite(ctx context.Context, disk uint32, before, after []byte) error {
	there, err := call[simv1.Data](ctx, n, "ReadDisk", &simv1.ReadDiskRequest{DiskNumber: disk, Length: int64(len(before))})
	if err == nil && !bytes.Equal(there.Data, before) {
		err = errors.New("the disk begins with other data")
	}
	if err != nil {
		return err
	}
	_, err = call[simv1.Empty](ctx, n, "WriteDisk", &simv1.WriteDiskRequest{DiskNumber: disk, Data: after})
	return err
}

// call makes a call to the control of the simulated node.
func call[Response any, Message interface {
	*Response
	proto.Message
}](ctx context.Context, n planter, method string, request proto.Message) (response Message, err error) {
	conn, err := grpc.NewClient("passthrough:///"+simv1.EndpointName,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return pipe.Dial(ctx, pipe.Address(n.endpointDir, simv1.EndpointName))
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return simv1.Call[Response, Message](ctx, conn, method, request)
}
