// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"fmt"
	"iter"
	"net"
	"testing"
	"time"

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

const (
	volumeA = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789ab}\`
	volumeB = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789cd}\`
)

// fakeNode records which operation is called with which arguments. All of them
// return err, and answers that no zero value could be taken for.
type fakeNode struct {
	calls []string
	err   error
}

func (n *fakeNode) called(operation string, args ...any) error {
	for _, arg := range args {
		operation += fmt.Sprintf(" %v", arg)
	}
	n.calls = append(n.calls, operation)
	return n.err
}

func (n *fakeNode) ListDiskLocations(context.Context) (map[disk.Number]disk.Location, error) {
	return map[disk.Number]disk.Location{
		0:          {Adapter: "1", Bus: "2", Target: "3", LUNID: "4"},
		4294967295: {LUNID: "5"},
	}, n.called("ListDiskLocations")
}

func (n *fakeNode) ListDiskIDs(context.Context) (map[disk.Number]disk.IDs, error) {
	return map[disk.Number]disk.IDs{
		0: {Page83: "6000c29f", SerialNumber: "vol0123"},
		2: {SerialNumber: "vol4567"},
	}, n.called("ListDiskIDs")
}

func (n *fakeNode) FindDiskByPage83(_ context.Context, page83 string) (disk.Number, error) {
	return 4294967295, n.called("FindDiskByPage83", page83)
}

func (n *fakeNode) PartitionDisk(_ context.Context, number disk.Number) error {
	return n.called("PartitionDisk", number)
}

func (n *fakeNode) Rescan(context.Context) error { return n.called("Rescan") }

func (n *fakeNode) GetDiskStats(_ context.Context, number disk.Number) (disk.Stats, error) {
	return disk.Stats{SizeBytes: 1 << 40}, n.called("GetDiskStats", number)
}

func (n *fakeNode) SetDiskState(_ context.Context, number disk.Number, online bool) error {
	return n.called("SetDiskState", number, online)
}

func (n *fakeNode) GetDiskState(_ context.Context, number disk.Number) (bool, error) {
	return true, n.called("GetDiskState", number)
}

func (n *fakeNode) ListVolumesOnDisk(_ context.Context, number disk.Number, partition uint32) ([]volume.ID, error) {
	return []volume.ID{volumeA, volumeB}, n.called("ListVolumesOnDisk", number, partition)
}

func (n *fakeNode) DataVolumeOfDisk(_ context.Context, number disk.Number) (volume.ID, error) {
	return volumeB, n.called("DataVolumeOfDisk", number)
}

func (n *fakeNode) MountVolume(_ context.Context, id volume.ID, targetPath string) error {
	return n.called("MountVolume", id, targetPath)
}

func (n *fakeNode) UnmountVolume(_ context.Context, id volume.ID, targetPath string) error {
	return n.called("UnmountVolume", id, targetPath)
}

func (n *fakeNode) IsVolumeFormatted(_ context.Context, id volume.ID) (bool, error) {
	return true, n.called("IsVolumeFormatted", id)
}

func (n *fakeNode) FormatVolume(_ context.Context, id volume.ID) error {
	return n.called("FormatVolume", id)
}

func (n *fakeNode) ResizeVolume(_ context.Context, id volume.ID, sizeBytes int64) error {
	return n.called("ResizeVolume", id, sizeBytes)
}

func (n *fakeNode) GetVolumeStats(_ context.Context, id volume.ID) (volume.Stats, error) {
	return volume.Stats{SizeBytes: 1 << 41, UsedBytes: 1 << 21}, n.called("GetVolumeStats", id)
}

func (n *fakeNode) GetDiskNumberFromVolumeID(_ context.Context, id volume.ID) (disk.Number, error) {
	return 4294967295, n.called("GetDiskNumberFromVolumeID", id)
}

func (n *fakeNode) GetVolumeIDFromTargetPath(_ context.Context, path string) (volume.ID, error) {
	return volumeA, n.called("GetVolumeIDFromTargetPath", path)
}

func (n *fakeNode) GetClosestVolumeIDFromTargetPath(_ context.Context, path string) (volume.ID, error) {
	return volumeB, n.called("GetClosestVolumeIDFromTargetPath", path)
}

func (n *fakeNode) WriteVolumeCache(_ context.Context, id volume.ID) error {
	return n.called("WriteVolumeCache", id)
}

func (n *fakeNode) PathExists(_ context.Context, path string) (bool, error) {
	return true, n.called("PathExists", path)
}

func (n *fakeNode) Mkdir(_ context.Context, path string) error { return n.called("Mkdir", path) }

func (n *fakeNode) Rmdir(_ context.Context, path string, force bool) error {
	return n.called("Rmdir", path, force)
}

func (n *fakeNode) RmdirContents(_ context.Context, path string) error {
	return n.called("RmdirContents", path)
}

func (n *fakeNode) CreateSymlink(_ context.Context, sourcePath, targetPath string) error {
	return n.called("CreateSymlink", sourcePath, targetPath)
}

func (n *fakeNode) IsSymlink(_ context.Context, path string) (bool, error) {
	return true, n.called("IsSymlink", path)
}

func (n *fakeNode) NewSMBGlobalMapping(_ context.Context, remotePath, localPath string, c smb.Credentials) error {
	return n.called("NewSMBGlobalMapping", remotePath, localPath, c.Username, c.Password.Reveal())
}

func (n *fakeNode) RemoveSMBGlobalMapping(_ context.Context, remotePath string) error {
	return n.called("RemoveSMBGlobalMapping", remotePath)
}

func (n *fakeNode) AddTargetPortal(_ context.Context, p iscsi.Portal) error {
	return n.called("AddTargetPortal", p.Address, p.Port)
}

func (n *fakeNode) DiscoverTargetPortal(_ context.Context, p iscsi.Portal) ([]iscsi.IQN, error) {
	return []iscsi.IQN{"iqn.1991-05.com.microsoft:a", "eui.02004567a425678d"},
		n.called("DiscoverTargetPortal", p.Address, p.Port)
}

func (n *fakeNode) ListTargetPortals(context.Context) ([]iscsi.Portal, error) {
	return []iscsi.Portal{{Address: "10.0.0.1", Port: 3260}, {Address: "fe80::1", Port: 65535}},
		n.called("ListTargetPortals")
}

func (n *fakeNode) RemoveTargetPortal(_ context.Context, p iscsi.Portal) error {
	return n.called("RemoveTargetPortal", p.Address, p.Port)
}

func (n *fakeNode) ConnectTarget(_ context.Context, p iscsi.Portal, iqn iscsi.IQN, a iscsi.Authentication) error {
	return n.called("ConnectTarget", p.Address, p.Port, iqn, a.Type, a.Username, a.Secret.Reveal())
}

func (n *fakeNode) DisconnectTarget(_ context.Context, p iscsi.Portal, iqn iscsi.IQN) error {
	return n.called("DisconnectTarget", p.Address, p.Port, iqn)
}

func (n *fakeNode) GetTargetDisks(_ context.Context, p iscsi.Portal, iqn iscsi.IQN) ([]disk.Number, error) {
	return []disk.Number{0, 4294967295}, n.called("GetTargetDisks", p.Address, p.Port, iqn)
}

func (n *fakeNode) SetMutualCHAPSecret(_ context.Context, s secret.Text) error {
	return n.called("SetMutualCHAPSecret", s.Reveal())
}

func (n *fakeNode) GetBIOSSerialNumber(context.Context) (string, error) {
	return "VMware-42 0b", n.called("GetBIOSSerialNumber")
}

func (n *fakeNode) GetService(_ context.Context, name string) (system.Service, error) {
	return system.Service{DisplayName: "Service", StartType: system.Disabled, Status: system.Paused},
		n.called("GetService", name)
}

func (n *fakeNode) StartService(_ context.Context, name string) error {
	return n.called("StartService", name)
}

func (n *fakeNode) StopService(_ context.Context, name string, force bool) error {
	return n.called("StopService", name, force)
}

func (n *fakeNode) ListDisks(_ context.Context, s storage.Selector) ([]storage.Disk, error) {
	return []storage.Disk{{Number: 4294967295, SerialNumber: "vol0123"}}, n.called("ListDisks", s)
}

func (n *fakeNode) StageVolume(_ context.Context, r storage.StageVolumeRequest) (storage.StagedVolume, error) {
	return storage.StagedVolume{Disk: 3, VolumeID: volumeA, Formatted: true},
		n.called("StageVolume", r.Disk, r.StagingPath, r.Login.Username, r.Login.Secret.Reveal(), r.Wait)
}

func (n *fakeNode) UnstageVolume(_ context.Context, r storage.UnstageVolumeRequest) (storage.UnstagedVolume, error) {
	return storage.UnstagedVolume{Unmounted: true, LoggedOut: r.Force, Unmapped: !r.Force},
		n.called("UnstageVolume", r.StagingPath, r.Force)
}

func (n *fakeNode) PublishVolume(_ context.Context, stagingPath, targetPath string) error {
	return n.called("PublishVolume", stagingPath, targetPath)
}

func (n *fakeNode) UnpublishVolume(_ context.Context, targetPath string) error {
	return n.called("UnpublishVolume", targetPath)
}

func (n *fakeNode) ExpandVolume(_ context.Context, r storage.ExpandVolumeRequest) (storage.ExpandedVolume, error) {
	return storage.ExpandedVolume{SizeBytes: 1 << 40, DiskSizeBytes: 2 << 40, Grown: true},
		n.called("ExpandVolume", r.Path, r.DiskSizeBytes, r.Wait)
}

func (n *fakeNode) GetVolume(_ context.Context, path string) (storage.Volume, error) {
	return storage.Volume{Disk: new(disk.Number), SizeBytes: 1 << 40,
			Conditions: storage.Conditions{{Reason: storage.Dirty, Inaccessible: true, Message: "m"}}},
		n.called("GetVolume", path)
}

func (n *fakeNode) ListVolumes(context.Context) (storage.VolumeList, error) {
	return storage.VolumeList{IncompleteReason: "a directory",
			Mounts: []storage.Mount{{Kind: storage.Link, Path: `c:\l`, LeftoverReason: "it leads to nothing"}}},
		n.called("ListVolumes")
}

func (n *fakeNode) StageShare(_ context.Context, r storage.StageShareRequest) error {
	return n.called("StageShare", r.RemotePath, r.StagingPath, r.Credentials.Username, r.Credentials.Password.Reveal())
}

func (n *fakeNode) UnstageShare(_ context.Context, r storage.UnstageShareRequest) (storage.UnstagedShare, error) {
	return storage.UnstagedShare{Unlinked: r.RemotePath == "", Unmapped: r.RemotePath != ""},
		n.called("UnstageShare", r.StagingPath, r.RemotePath)
}

func (n *fakeNode) CleanUp(_ context.Context, remove bool) (storage.Leftovers, error) {
	return storage.Leftovers{IncompleteReason: "l",
			Mounts: []storage.Leftover{{Mount: storage.Mount{Kind: storage.Mapping, Target: "t"}, Removed: true}}},
		n.called("CleanUp", remove)
}

func (n *fakeNode) MoveAside(_ context.Context, path string) (storage.MovedAside, error) {
	return storage.MovedAside{MovedTo: "m", MoreEntries: true,
		Entries: []storage.MovedEntry{{Name: "n", Created: time.UnixMilli(1500)}}}, n.called("MoveAside", path)
}

func (n *fakeNode) ListRefusedLogOns(_ context.Context, forget bool) ([]storage.RefusedLogOn, error) {
	return []storage.RefusedLogOn{{RemotePath: `\\s\t`, WindowsError: 1326, RefusedFor: time.Minute,
		HeldBackFor: time.Second}}, n.called("ListRefusedLogOns", forget)
}

func (n *fakeNode) CheckVolume(_ context.Context, r storage.CheckVolumeRequest) (storage.CheckedVolume, error) {
	return storage.CheckedVolume{ErrorsFound: true, Fixed: true, Duration: 1500 * time.Millisecond},
		n.called("CheckVolume", r.Path, r.SpotFix)
}

func (n *fakeNode) WatchDisks(_ context.Context, s storage.Selector) iter.Seq2[storage.DiskChanges, error] {
	return func(yield func(storage.DiskChanges, error) bool) {
		yield(storage.DiskChanges{
			Removed: []storage.Disk{{Number: 1}},
			Added:   []storage.Disk{{Number: 1, SerialNumber: "vol0123"}, {Number: 4294967295}},
			Changed: []storage.Disk{{Number: 3, Online: true}},
		}, n.called("WatchDisks", s))
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}
