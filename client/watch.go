// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire/storagewire"
)

// WatchDisks implements [csiproxy.StorageOperations]: yields the disks matching a selector, and
// then all changes. After the daemon has stopped or the connection is lost, the sequence ends: call
// WatchDisks again, after a moment.
func (s *Storage) WatchDisks(ctx context.Context, wanted csiproxy.Selector) iter.Seq2[csiproxy.DiskChanges, error] {
	return func(yield func(csiproxy.DiskChanges, error) bool) {
		if err := s.watchDisks(ctx, wanted, yield); err != nil {
			yield(csiproxy.DiskChanges{}, err)
		}
	}
}

// watchDisks passes changes to yield until yield returns false. The end of the stream is an error.
func (s *Storage) watchDisks(ctx context.Context, wanted csiproxy.Selector,
	yield func(csiproxy.DiskChanges, error) bool) error {
	const op = "WatchDisks"
	g, request := s.group, &storagev1alpha1.WatchDisksRequest{Disk: storagewire.EncodeSelector(wanted)}
	version, err := g.version(ctx)
	if err != nil {
		return &csiproxy.Error{Op: op, Err: err}
	}
	l, err := g.begin(ctx, version)
	if err != nil {
		return operationError(op, "", request, err)
	}
	defer g.end(version, l)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // which ends the stream

	stream, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/"+api.ServiceName(g.name, version)+"/"+op)
	if err != nil {
		return operationError(op, "", request, g.lostError(ctx, l, err))
	}
	for {
		// Each request asks for one response. io.EOF means an ended stream; receiving returns the
		// reason.
		if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
			return operationError(op, "", request, err)
		}
		response := new(storagev1alpha1.WatchDisksResponse)
		err := stream.RecvMsg(response)
		if errors.Is(err, io.EOF) {
			return &csiproxy.Error{Op: op, Kind: csiproxy.ErrUnavailable, Detail: "the daemon has ended the call"}
		}
		if err != nil {
			return operationError(op, "", request, g.lostError(ctx, l, err))
		}
		changes, err := storagewire.DecodeDiskChanges(response)
		if err != nil {
			return &csiproxy.Error{Op: op, Err: malformedError("an invalid value: %v", err)}
		}
		if !yield(changes, nil) {
			return nil
		}
	}
}
