// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1"
	filesystemv1 "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1"
	iscsiv1alpha2 "github.com/kubernetes-csi/csi-proxy/client/api/iscsi/v1alpha2"
	smbv1 "github.com/kubernetes-csi/csi-proxy/client/api/smb/v1"
	volumev1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1"

	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
)

// stubs are the generated clients of the versions that drivers use most.
type stubs []any

// clients returns the calls of drivers, made with the generated clients. Unless nil, before is called
// ahead of each call, with its name. If before fails, so does the call, without reaching the daemon.
func (n *node) clients(before func(method string) error) drivers.Calls {
	connection := func(group, version string) *reconnecting {
		return &reconnecting{node: n, group: group, version: version, before: before}
	}
	return drivers.Calls{Node: stubs{
		diskv1.NewDiskClient(connection("disk", "v1")),
		volumev1.NewVolumeClient(connection("volume", "v1")),
		filesystemv1.NewFilesystemClient(connection("filesystem", "v1")),
		smbv1.NewSmbClient(connection("smb", "v1")),
		iscsiv1alpha2.NewIscsiClient(connection("iscsi", "v1alpha2")),
	}}
}

// Call calls a method through the generated client that has it.
func (s stubs) Call(ctx context.Context, method string, request drivers.Fields) ([]byte, error) {
	for _, stub := range s {
		generated := reflect.ValueOf(stub).MethodByName(method)
		if !generated.IsValid() {
			continue
		}
		req := reflect.New(generated.Type().In(1).Elem())
		if err := drivers.Encode(message(req), request); err != nil {
			return nil, err
		}
		results := generated.Call([]reflect.Value{reflect.ValueOf(ctx), req})
		if err, failed := results[1].Interface().(error); failed {
			return nil, err
		}
		return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message(results[0]).Interface())
	}
	return nil, fmt.Errorf("no client has the method %s", method)
}

// reconnecting is a connection to an endpoint that is dialled again after the daemon
// was started again, as a driver that was restarted does.
type reconnecting struct {
	node           *node
	group, version string
	before         func(method string) error

	mu   sync.Mutex // guards the fields below
	conn *grpc.ClientConn
	life int // of the daemon at the other end of conn
}

func (c *reconnecting) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if c.before != nil {
		if err := c.before(method); err != nil {
			return err
		}
	}
	conn, err := c.current()
	if err != nil {
		return err
	}
	return conn.Invoke(ctx, method, args, reply, opts...)
}

// current returns the connection to the daemon's life.
func (c *reconnecting) current() (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if life := c.node.life(); c.life != life {
		conn, err := c.node.dial(c.group, c.version)
		if err != nil {
			return nil, err
		}
		c.conn, c.life = conn, life
	}
	return c.conn, nil
}

func (c *reconnecting) NewStream(context.Context, *grpc.StreamDesc, string,
	...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("the API has no streams")
}

// operator does on the node what a test needs done, with a version that isn't
// under test.
type operator struct {
	drivers.Calls
	t testing.TB
}

func (n *node) operator() operator { return operator{n.clients(nil), n.t} }

func (o operator) must(err error) {
	o.t.Helper()
	must(o.t, err)
}

// try makes calls, up to the first that fails, and returns its error.
func (o operator) try(calls func(*drivers.Step)) error {
	s := o.Step(context.Background())
	calls(s)
	return s.Err
}

// do makes calls that have to succeed.
func (o operator) do(calls func(*drivers.Step)) {
	o.t.Helper()
	o.must(o.try(calls))
}

// volumes returns the volumes of a disk.
func (o operator) volumes(disk uint32) (ids []string) {
	o.t.Helper()
	o.do(func(s *drivers.Step) { ids = s.ListVolumesOnDisk(disk) })
	return ids
}

// rawVolume partitions a disk and returns its only volume.
func (o operator) rawVolume(disk uint32) string {
	o.t.Helper()
	o.do(func(s *drivers.Step) { s.PartitionDisk(disk) })
	ids := o.volumes(disk)
	if len(ids) != 1 {
		o.t.Fatalf("disk %d has the volumes %q, want one", disk, ids)
	}
	return ids[0]
}

// formattedVolume partitions a disk, formats its only volume and returns it.
func (o operator) formattedVolume(disk uint32) string {
	o.t.Helper()
	id := o.rawVolume(disk)
	o.do(func(s *drivers.Step) { s.FormatVolume(id) })
	return id
}

// mounted returns the volume that is mounted at a path, "" if none is.
func (o operator) mounted(path string) (volume string) {
	o.t.Helper()
	err := o.try(func(s *drivers.Step) { volume = s.VolumeAt(path) })
	if status.Code(err) == codes.NotFound {
		return ""
	}
	o.must(err)
	return volume
}

func (o operator) mkdir(path string) {
	o.t.Helper()
	o.do(func(s *drivers.Step) { s.Mkdir(path) })
}

// size returns the size of a volume's file system in bytes.
func (o operator) size(volume string) (size int64) {
	o.t.Helper()
	o.do(func(s *drivers.Step) { size = s.VolumeSize(volume) })
	return size
}
