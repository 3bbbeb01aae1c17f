// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"iter"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/system"
	"github.com/csi-proxy/csi-proxy/volume"
)

// fakeNode records which operation is called with which arguments. Each returns its result, or
// nothing, and err.
type fakeNode struct {
	calls   []operationCall
	results map[string]any
	err     error
}

// operationCall is a call of an operation.
type operationCall struct {
	Operation string // fmt uses the String of what is exported
	Args      []any
}

func (n *fakeNode) do(operation string, args ...any) error {
	n.calls = append(n.calls, operationCall{operation, args})
	return n.err
}

func get[T any](n *fakeNode, operation string, args ...any) (T, error) {
	result, _ := n.results[operation].(T)
	return result, n.do(operation, args...)
}

func (n *fakeNode) ListDiskLocations(context.Context) (map[disk.Number]disk.Location, error) {
	return get[map[disk.Number]disk.Location](n, "ListDiskLocations")
}

func (n *fakeNode) ListDiskIDs(context.Context) (map[disk.Number]disk.IDs, error) {
	return get[map[disk.Number]disk.IDs](n, "ListDiskIDs")
}

func (n *fakeNode) FindDiskByPage83(_ context.Context, page83 string) (disk.Number, error) {
	return get[disk.Number](n, "FindDiskByPage83", page83)
}

func (n *fakeNode) PartitionDisk(_ context.Context, number disk.Number) error {
	return n.do("PartitionDisk", number)
}

func (n *fakeNode) Rescan(context.Context) error { return n.do("Rescan") }

func (n *fakeNode) GetDiskStats(_ context.Context, number disk.Number) (disk.Stats, error) {
	return get[disk.Stats](n, "GetDiskStats", number)
}

func (n *fakeNode) SetDiskState(_ context.Context, number disk.Number, online bool) error {
	return n.do("SetDiskState", number, online)
}

func (n *fakeNode) GetDiskState(_ context.Context, number disk.Number) (bool, error) {
	return get[bool](n, "GetDiskState", number)
}

func (n *fakeNode) ListVolumesOnDisk(_ context.Context, number disk.Number, partition uint32) ([]volume.ID, error) {
	return get[[]volume.ID](n, "ListVolumesOnDisk", number, partition)
}

func (n *fakeNode) DataVolumeOfDisk(_ context.Context, number disk.Number) (volume.ID, error) {
	return get[volume.ID](n, "DataVolumeOfDisk", number)
}

func (n *fakeNode) MountVolume(_ context.Context, id volume.ID, targetPath string) error {
	return n.do("MountVolume", id, targetPath)
}

func (n *fakeNode) UnmountVolume(_ context.Context, id volume.ID, targetPath string) error {
	return n.do("UnmountVolume", id, targetPath)
}

func (n *fakeNode) IsVolumeFormatted(_ context.Context, id volume.ID) (bool, error) {
	return get[bool](n, "IsVolumeFormatted", id)
}

func (n *fakeNode) FormatVolume(_ context.Context, id volume.ID) error {
	return n.do("FormatVolume", id)
}

func (n *fakeNode) ResizeVolume(_ context.Context, id volume.ID, sizeBytes int64) error {
	return n.do("ResizeVolume", id, sizeBytes)
}

func (n *fakeNode) GetVolumeStats(_ context.Context, id volume.ID) (volume.Stats, error) {
	return get[volume.Stats](n, "GetVolumeStats", id)
}

func (n *fakeNode) GetDiskNumberFromVolumeID(_ context.Context, id volume.ID) (disk.Number, error) {
	return get[disk.Number](n, "GetDiskNumberFromVolumeID", id)
}

func (n *fakeNode) GetVolumeIDFromTargetPath(_ context.Context, path string) (volume.ID, error) {
	return get[volume.ID](n, "GetVolumeIDFromTargetPath", path)
}

func (n *fakeNode) GetClosestVolumeIDFromTargetPath(_ context.Context, path string) (volume.ID, error) {
	return get[volume.ID](n, "GetClosestVolumeIDFromTargetPath", path)
}

func (n *fakeNode) WriteVolumeCache(_ context.Context, id volume.ID) error {
	return n.do("WriteVolumeCache", id)
}

func (n *fakeNode) PathExists(_ context.Context, path string) (bool, error) {
	return get[bool](n, "PathExists", path)
}

func (n *fakeNode) Mkdir(_ context.Context, path string) error { return n.do("Mkdir", path) }

func (n *fakeNode) Rmdir(_ context.Context, path string, force bool) error {
	return n.do("Rmdir", path, force)
}

func (n *fakeNode) RmdirContents(_ context.Context, path string) error {
	return n.do("RmdirContents", path)
}

func (n *fakeNode) CreateSymlink(_ context.Context, sourcePath, targetPath string) error {
	return n.do("CreateSymlink", sourcePath, targetPath)
}

func (n *fakeNode) IsSymlink(_ context.Context, path string) (bool, error) {
	return get[bool](n, "IsSymlink", path)
}

func (n *fakeNode) NewSMBGlobalMapping(_ context.Context, remotePath, localPath string, c smb.Credentials) error {
	return n.do("NewSMBGlobalMapping", remotePath, localPath, c)
}

func (n *fakeNode) RemoveSMBGlobalMapping(_ context.Context, remotePath string) error {
	return n.do("RemoveSMBGlobalMapping", remotePath)
}

func (n *fakeNode) AddTargetPortal(_ context.Context, p iscsi.Portal) error {
	return n.do("AddTargetPortal", p)
}

func (n *fakeNode) DiscoverTargetPortal(_ context.Context, p iscsi.Portal) ([]iscsi.IQN, error) {
	return get[[]iscsi.IQN](n, "DiscoverTargetPortal", p)
}

func (n *fakeNode) ListTargetPortals(context.Context) ([]iscsi.Portal, error) {
	return get[[]iscsi.Portal](n, "ListTargetPortals")
}

func (n *fakeNode) RemoveTargetPortal(_ context.Context, p iscsi.Portal) error {
	return n.do("RemoveTargetPortal", p)
}

func (n *fakeNode) ConnectTarget(_ context.Context, p iscsi.Portal, iqn iscsi.IQN, a iscsi.Authentication) error {
	return n.do("ConnectTarget", p, iqn, a)
}

func (n *fakeNode) DisconnectTarget(_ context.Context, p iscsi.Portal, iqn iscsi.IQN) error {
	return n.do("DisconnectTarget", p, iqn)
}

func (n *fakeNode) GetTargetDisks(_ context.Context, p iscsi.Portal, iqn iscsi.IQN) ([]disk.Number, error) {
	return get[[]disk.Number](n, "GetTargetDisks", p, iqn)
}

func (n *fakeNode) SetMutualCHAPSecret(_ context.Context, s secret.Text) error {
	return n.do("SetMutualCHAPSecret", s)
}

func (n *fakeNode) GetBIOSSerialNumber(context.Context) (string, error) {
	return get[string](n, "GetBIOSSerialNumber")
}

func (n *fakeNode) GetService(_ context.Context, name string) (system.Service, error) {
	return get[system.Service](n, "GetService", name)
}

func (n *fakeNode) StartService(_ context.Context, name string) error {
	return n.do("StartService", name)
}

func (n *fakeNode) StopService(_ context.Context, name string, force bool) error {
	return n.do("StopService", name, force)
}

func (n *fakeNode) ListDisks(_ context.Context, s storage.Selector) ([]storage.Disk, error) {
	return get[[]storage.Disk](n, "ListDisks", s)
}

func (n *fakeNode) StageVolume(_ context.Context, r storage.StageVolumeRequest) (storage.StagedVolume, error) {
	return get[storage.StagedVolume](n, "StageVolume", r)
}

func (n *fakeNode) UnstageVolume(_ context.Context, r storage.UnstageVolumeRequest) (storage.UnstagedVolume, error) {
	return get[storage.UnstagedVolume](n, "UnstageVolume", r)
}

func (n *fakeNode) PublishVolume(_ context.Context, stagingPath, targetPath string) error {
	return n.do("PublishVolume", stagingPath, targetPath)
}

func (n *fakeNode) UnpublishVolume(_ context.Context, targetPath string) error {
	return n.do("UnpublishVolume", targetPath)
}

func (n *fakeNode) ExpandVolume(_ context.Context, r storage.ExpandVolumeRequest) (storage.ExpandedVolume, error) {
	return get[storage.ExpandedVolume](n, "ExpandVolume", r)
}

func (n *fakeNode) GetVolume(_ context.Context, path string) (storage.Volume, error) {
	return get[storage.Volume](n, "GetVolume", path)
}

func (n *fakeNode) ListVolumes(context.Context) (storage.VolumeList, error) {
	return get[storage.VolumeList](n, "ListVolumes")
}

func (n *fakeNode) StageShare(_ context.Context, r storage.StageShareRequest) error {
	return n.do("StageShare", r)
}

func (n *fakeNode) UnstageShare(_ context.Context, r storage.UnstageShareRequest) (storage.UnstagedShare, error) {
	return get[storage.UnstagedShare](n, "UnstageShare", r)
}

func (n *fakeNode) CleanUp(_ context.Context, remove bool) (storage.Leftovers, error) {
	return get[storage.Leftovers](n, "CleanUp", remove)
}

func (n *fakeNode) CheckVolume(_ context.Context, r storage.CheckVolumeRequest) (storage.CheckedVolume, error) {
	return get[storage.CheckedVolume](n, "CheckVolume", r)
}

func (n *fakeNode) WatchDisks(_ context.Context, s storage.Selector) iter.Seq2[storage.DiskChanges, error] {
	return func(yield func(storage.DiskChanges, error) bool) {
		yield(get[storage.DiskChanges](n, "WatchDisks", s))
	}
}

// operations are all groups of a fake node.
func operations(node *fakeNode) Operations {
	return Operations{Disk: node, Volume: node, Filesystem: node, SMB: node, ISCSI: node, System: node, Storage: node}
}

// services returns all services over a fake node.
func services(t *testing.T, node *fakeNode) []*Service {
	t.Helper()
	services, err := Services(operations(node))
	must(t, err)
	return services
}

// connect returns a client's connection to a server with what register registers.
func connect(t *testing.T, register func(*grpc.Server), options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	server := grpc.NewServer(options...)
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///in-memory",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // which came before Serve
			t.Error(err)
		}
	})
	return conn
}
