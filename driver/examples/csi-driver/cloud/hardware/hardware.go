// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hardware attaches the disks of the example's cloud to a simulated node: that of
// a daemon, or one in this process.
package hardware

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// Simulated is the hardware of a simulated node.
type Simulated struct {
	conn *grpc.ClientConn
}

// OfDaemon returns the hardware of a daemon's node. On Windows the control of the node is a
// named pipe; elsewhere it is a socket in endpointDir, with the daemon's endpoints.
func OfDaemon(endpointDir string) (*Simulated, error) { return dialControl(endpointDir) }

// InProcess returns the hardware of a node in this process.
func InProcess(n *simnode.Node) (*Simulated, error) {
	return dial("passthrough:///"+simv1.EndpointName,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return n.Dial(ctx, "sim", "v1")
		}))
}

// dial returns hardware to which the first call connects.
func dial(target string, o ...grpc.DialOption) (*Simulated, error) {
	conn, err := grpc.NewClient(target, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("dial the simulated node: %w", err)
	}
	return &Simulated{conn}, nil
}

// Close ends the connection.
func (s *Simulated) Close() error { return s.conn.Close() }

// Attach implements cloud.Hardware. Simulated hardware has no write protection, so a
// read-only disk is one with Windows' read-only attribute.
func (s *Simulated) Attach(ctx context.Context, serial string, sizeBytes int64, readOnly bool) error {
	_, err := simv1.Call[simv1.DiskNumber](ctx, s.conn, "AttachDisk",
		&simv1.DiskHardware{SerialNumber: serial, SizeBytes: sizeBytes})
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return wrap("attach", serial, err)
	}
	if !readOnly {
		return nil // staging the volume makes the disk writable
	}
	number, err := s.find(ctx, serial)
	if err != nil || number == nil {
		return err
	}
	_, err = simv1.Call[simv1.Empty](ctx, s.conn, "SetDiskAttributes", &simv1.SetDiskAttributesRequest{
		DiskNumber: *number, ReadOnly: new(true), Persist: true,
	})
	return wrap("make read-only", serial, err)
}

// Detach implements cloud.Hardware.
func (s *Simulated) Detach(ctx context.Context, serial string) error {
	number, err := s.find(ctx, serial)
	if err != nil || number == nil {
		return err
	}
	_, err = simv1.Call[simv1.Empty](ctx, s.conn, "DetachDisk", &simv1.DiskNumber{DiskNumber: number})
	return wrap("detach", serial, err)
}

// Grow implements cloud.Hardware.
func (s *Simulated) Grow(ctx context.Context, serial string, sizeBytes int64) error {
	number, err := s.find(ctx, serial)
	if err != nil || number == nil {
		return err
	}
	_, err = simv1.Call[simv1.Empty](ctx, s.conn, "GrowDisk",
		&simv1.GrowDiskRequest{DiskNumber: *number, SizeBytes: sizeBytes})
	return wrap("grow", serial, err)
}

// Delete implements cloud.Hardware.
func (s *Simulated) Delete(ctx context.Context, serial string) error {
	_, err := simv1.Call[simv1.Empty](ctx, s.conn, "DeleteDisk", &simv1.SerialNumber{SerialNumber: serial})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return wrap("delete", serial, err)
}

// find returns the number of a disk, nil if it isn't attached.
func (s *Simulated) find(ctx context.Context, serial string) (*uint32, error) {
	response, err := simv1.Call[simv1.ListDisksResponse](ctx, s.conn, "ListDisks", &simv1.Empty{})
	if err != nil {
		return nil, wrap("find", serial, err)
	}
	for _, d := range response.Disks {
		if d.SerialNumber == serial {
			return d.DiskNumber, nil
		}
	}
	return nil, nil
}

// wrap adds what a call was for. It keeps only the codes that mean that the caller should
// try again, as during an upgrade of the daemon: a CO would take others to be about the
// volume.
func wrap(op, serial string, err error) error {
	if err == nil {
		return nil
	}
	code := codes.Internal
	switch c := status.Code(err); c {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		code = c
	}
	return status.Errorf(code, "%s disk %s: %s", op, serial, status.Convert(err).Message())
}
