// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/wire/storagewire"
	"github.com/csi-proxy/csi-proxy/storage"
)

// WatchDisks implements [storage.Operations]: which disks a selector means, and then what changes.
// After the daemon has stopped or the connection to it was lost, the client doesn't begin again by
// itself: call WatchDisks again, after a moment.
func (s *Storage) WatchDisks(ctx context.Context, wanted storage.Selector) iter.Seq2[storage.DiskChanges, error] {
	return func(yield func(storage.DiskChanges, error) bool) {
		request := &storagev1alpha1.WatchDisksRequest{Disk: storagewire.FromSelector(wanted)}
		err := receive(ctx, s.group, "WatchDisks", request, func(m *storagev1alpha1.WatchDisksResponse) bool {
			return yield(storagewire.ToChanges(m), nil)
		})
		if err != nil {
			yield(storage.DiskChanges{}, err)
		}
	}
}

// receive calls a method whose responses are a stream, and passes them to tell until that
// returns false. The method has the operation's name. The stream's end is an error.
func receive[T any, Response message[T]](ctx context.Context, g *group, op string, request proto.Message,
	tell func(Response) bool) error {
	version, err := g.version(ctx)
	if err != nil {
		return &csiproxy.Error{Op: op, Err: err}
	}
	l, err := g.begin(ctx, version)
	if err != nil {
		return failure(op, "", request, err)
	}
	defer g.end(version, l)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // which ends the stream

	stream, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
		"/"+api.ServiceName(g.name, version)+"/"+op)
	if err != nil {
		return failure(op, "", request, g.lost(ctx, l, err))
	}
	// io.EOF stands for a stream that has ended. Receiving tells why.
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return failure(op, "", request, err)
	}
	_ = stream.CloseSend()
	for {
		response := Response(new(T))
		err := stream.RecvMsg(response)
		if errors.Is(err, io.EOF) {
			return &csiproxy.Error{Op: op, Kind: csiproxy.ErrUnavailable, Detail: "the daemon has ended the call"}
		}
		if err != nil {
			return failure(op, "", request, g.lost(ctx, l, err))
		}
		if !tell(response) {
			return nil
		}
	}
}
