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

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/published"
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

func (n *fakeNode) ListDiskLocations(context.Context) (map[csiproxy.DiskNumber]published.DiskLocation, error) {
	return get[map[csiproxy.DiskNumber]published.DiskLocation](n, "ListDiskLocations")
}

func (n *fakeNode) ListDiskIDs(context.Context) (map[csiproxy.DiskNumber]published.DiskIDs, error) {
	return get[map[csiproxy.DiskNumber]published.DiskIDs](n, "ListDiskIDs")
}

func (n *fakeNode) FindDiskByPage83(_ context.Context, page83 string) (csiproxy.DiskNumber, error) {
	return get[csiproxy.DiskNumber](n, "FindDiskByPage83", page83)
}

func (n *fakeNode) PartitionDisk(_ context.Context, number csiproxy.DiskNumber) error {
	return n.do("PartitionDisk", number)
}

func (n *fakeNode) Rescan(context.Context) error { return n.do("Rescan") }

func (n *fakeNode) GetDiskStats(_ context.Context, number csiproxy.DiskNumber) (published.DiskStats, error) {
	return get[published.DiskStats](n, "GetDiskStats", number)
}

func (n *fakeNode) SetDiskState(_ context.Context, number csiproxy.DiskNumber, online bool) error {
	return n.do("SetDiskState", number, online)
}

func (n *fakeNode) GetDiskState(_ context.Context, number csiproxy.DiskNumber) (bool, error) {
	return get[bool](n, "GetDiskState", number)
}

func (n *fakeNode) ListVolumesOnDisk(_ context.Context, number csiproxy.DiskNumber, partition uint32) ([]csiproxy.VolumeID, error) {
	return get[[]csiproxy.VolumeID](n, "ListVolumesOnDisk", number, partition)
}

func (n *fakeNode) DataVolumeOfDisk(_ context.Context, number csiproxy.DiskNumber) (csiproxy.VolumeID, error) {
	return get[csiproxy.VolumeID](n, "DataVolumeOfDisk", number)
}

func (n *fakeNode) MountVolume(_ context.Context, id csiproxy.VolumeID, targetPath string) error {
	return n.do("MountVolume", id, targetPath)
}

func (n *fakeNode) UnmountVolume(_ context.Context, id csiproxy.VolumeID, targetPath string) error {
	return n.do("UnmountVolume", id, targetPath)
}

func (n *fakeNode) IsVolumeFormatted(_ context.Context, id csiproxy.VolumeID) (bool, error) {
	return get[bool](n, "IsVolumeFormatted", id)
}

func (n *fakeNode) FormatVolume(_ context.Context, id csiproxy.VolumeID) error {
	return n.do("FormatVolume", id)
}

func (n *fakeNode) ResizeVolume(_ context.Context, id csiproxy.VolumeID, sizeBytes int64) error {
	return n.do("ResizeVolume", id, sizeBytes)
}

func (n *fakeNode) GetVolumeStats(_ context.Context, id csiproxy.VolumeID) (published.VolumeStats, error) {
	return get[published.VolumeStats](n, "GetVolumeStats", id)
}

func (n *fakeNode) GetDiskNumberFromVolumeID(_ context.Context, id csiproxy.VolumeID) (csiproxy.DiskNumber, error) {
	return get[csiproxy.DiskNumber](n, "GetDiskNumberFromVolumeID", id)
}

func (n *fakeNode) GetVolumeIDFromTargetPath(_ context.Context, path string) (csiproxy.VolumeID, error) {
	return get[csiproxy.VolumeID](n, "GetVolumeIDFromTargetPath", path)
}

func (n *fakeNode) GetClosestVolumeIDFromTargetPath(_ context.Context, path string) (csiproxy.VolumeID, error) {
	return get[csiproxy.VolumeID](n, "GetClosestVolumeIDFromTargetPath", path)
}

func (n *fakeNode) WriteVolumeCache(_ context.Context, id csiproxy.VolumeID) error {
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

func (n *fakeNode) NewSMBGlobalMapping(_ context.Context, remotePath, localPath string, c csiproxy.SMBCredentials) error {
	return n.do("NewSMBGlobalMapping", remotePath, localPath, c)
}

func (n *fakeNode) RemoveSMBGlobalMapping(_ context.Context, remotePath string) error {
	return n.do("RemoveSMBGlobalMapping", remotePath)
}

func (n *fakeNode) AddTargetPortal(_ context.Context, p csiproxy.ISCSIPortal) error {
	return n.do("AddTargetPortal", p)
}

func (n *fakeNode) DiscoverTargetPortal(_ context.Context, p csiproxy.ISCSIPortal) ([]csiproxy.IQN, error) {
	return get[[]csiproxy.IQN](n, "DiscoverTargetPortal", p)
}

func (n *fakeNode) ListTargetPortals(context.Context) ([]csiproxy.ISCSIPortal, error) {
	return get[[]csiproxy.ISCSIPortal](n, "ListTargetPortals")
}

func (n *fakeNode) RemoveTargetPortal(_ context.Context, p csiproxy.ISCSIPortal) error {
	return n.do("RemoveTargetPortal", p)
}

func (n *fakeNode) ConnectTarget(_ context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN, a csiproxy.ISCSIAuthentication) error {
	return n.do("ConnectTarget", p, iqn, a)
}

func (n *fakeNode) DisconnectTarget(_ context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) error {
	return n.do("DisconnectTarget", p, iqn)
}

func (n *fakeNode) GetTargetDisks(_ context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) ([]csiproxy.DiskNumber, error) {
	return get[[]csiproxy.DiskNumber](n, "GetTargetDisks", p, iqn)
}

func (n *fakeNode) SetMutualCHAPSecret(_ context.Context, s csiproxy.Secret) error {
	return n.do("SetMutualCHAPSecret", s)
}

func (n *fakeNode) GetBIOSSerialNumber(context.Context) (string, error) {
	return get[string](n, "GetBIOSSerialNumber")
}

func (n *fakeNode) GetService(_ context.Context, name string) (published.Service, error) {
	return get[published.Service](n, "GetService", name)
}

func (n *fakeNode) StartService(_ context.Context, name string) error {
	return n.do("StartService", name)
}

func (n *fakeNode) StopService(_ context.Context, name string, force bool) error {
	return n.do("StopService", name, force)
}

func (n *fakeNode) ListDisks(_ context.Context, s csiproxy.Selector) ([]csiproxy.Disk, error) {
	return get[[]csiproxy.Disk](n, "ListDisks", s)
}

func (n *fakeNode) StageVolume(_ context.Context, r csiproxy.StageVolumeRequest) (csiproxy.StagedVolume, error) {
	return get[csiproxy.StagedVolume](n, "StageVolume", r)
}

func (n *fakeNode) UnstageVolume(_ context.Context, r csiproxy.UnstageVolumeRequest) (csiproxy.UnstagedVolume, error) {
	return get[csiproxy.UnstagedVolume](n, "UnstageVolume", r)
}

func (n *fakeNode) PublishVolume(_ context.Context, stagingPath, targetPath string) error {
	return n.do("PublishVolume", stagingPath, targetPath)
}

func (n *fakeNode) UnpublishVolume(_ context.Context, targetPath string) error {
	return n.do("UnpublishVolume", targetPath)
}

func (n *fakeNode) ExpandVolume(_ context.Context, r csiproxy.ExpandVolumeRequest) (csiproxy.ExpandedVolume, error) {
	return get[csiproxy.ExpandedVolume](n, "ExpandVolume", r)
}

func (n *fakeNode) GetVolume(_ context.Context, path string) (csiproxy.Volume, error) {
	return get[csiproxy.Volume](n, "GetVolume", path)
}

func (n *fakeNode) ListVolumes(context.Context) (csiproxy.VolumeList, error) {
	return get[csiproxy.VolumeList](n, "ListVolumes")
}

func (n *fakeNode) StageShare(_ context.Context, r csiproxy.StageShareRequest) error {
	return n.do("StageShare", r)
}

func (n *fakeNode) UnstageShare(_ context.Context, r csiproxy.UnstageShareRequest) (csiproxy.UnstagedShare, error) {
	return get[csiproxy.UnstagedShare](n, "UnstageShare", r)
}

func (n *fakeNode) CleanUp(_ context.Context, remove bool) (csiproxy.Leftovers, error) {
	return get[csiproxy.Leftovers](n, "CleanUp", remove)
}

func (n *fakeNode) CheckVolume(_ context.Context, r csiproxy.CheckVolumeRequest) (csiproxy.CheckedVolume, error) {
	return get[csiproxy.CheckedVolume](n, "CheckVolume", r)
}

func (n *fakeNode) WatchDisks(_ context.Context, s csiproxy.Selector) iter.Seq2[csiproxy.DiskChanges, error] {
	return func(yield func(csiproxy.DiskChanges, error) bool) {
		yield(get[csiproxy.DiskChanges](n, "WatchDisks", s))
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
