// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// rightful are the calls that change what the locks are for, as the test below writes them.
var rightful = map[string]string{
	win.IoctlDiskSetDiskAttributes.String(): "attributes", win.IoctlDiskCreateDisk.String(): "create",
	win.IoctlDiskSetDriveLayoutEx.String(): "layout", win.IoctlDiskGrowPartition.String(): "grow",
	win.FsctlExtendVolume.String(): "extend", win.CallFormatVolume: "format", win.CallRepairVolume: "repair",
	win.CallSetVolumeMountPoint: "mount", win.CallDeleteVolumeMountPoint: "unmount",
	win.FsctlSetReparsePoint.String(): "link", win.CallDeleteFile: "delete",
	win.CallCreateSMBGlobalMapping: "map", win.CallRemoveSMBGlobalMapping: "unmap",
}

// lockFile is the file whose bytes keep other processes out. Their upper bits are the kind of the object.
const lockFile = `C:\Windows\csi-proxy.lock`

// At each change, the operation has the locks that the file order.go of package usage says: what keeps
// other processes out is there. The lock of a server keeps none out.
func TestRightsAreHeld(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	n := r.process()
	remote := `\\server\data`
	stageIt := func() error {
		_, err := n.Storage.StageVolume(ctx, stageRequest)
		return err
	}
	const noLock = "delete:" // it only makes use less
	r.raw(true)
	var other csiproxy.DiskNumber
	for _, c := range []struct {
		name string
		run  func() error
		want string
	}{
		{"StageVolume", stageIt, "attributes: disk, create: disk, layout: disk, format: disk volume, mount: disk volume"},
		{"PublishVolume", func() error { return n.Storage.PublishVolume(ctx, staging, target) }, "link: volume"},
		{"UnpublishVolume", func() error { return n.Storage.UnpublishVolume(ctx, target) }, noLock},
		{"CreateSymlink", func() error { return n.Filesystem.CreateSymlink(ctx, staging, target) }, "link: volume"},
		{"Rmdir of a link", func() error { return n.Filesystem.Rmdir(ctx, target, false) }, noLock},
		{"ExpandVolume", func() error {
			r.must(r.sim.GrowDisk(r.number, 20<<30))
			_, err := n.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: staging})
			return err
		}, "grow: disk, extend: disk"},
		{"UnstageVolume", func() error {
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
			return err
		}, "unmount: disk volume, delete: disk volume, attributes: disk volume"},
		{"SetDiskState", func() error { return n.Disk.SetDiskState(ctx, r.number, true) }, "attributes: disk"},
		{"MountVolume", func() error {
			id, err := n.Volume.DataVolumeOfDisk(ctx, r.number)
			r.must(err)
			r.volume = id
			return n.Volume.MountVolume(ctx, id, staging)
		}, "mount: disk volume"},
		{"UnmountVolume", func() error { return n.Volume.UnmountVolume(ctx, r.volume, staging) }, "unmount: volume"},
		{"MountVolume again", func() error { return n.Volume.MountVolume(ctx, r.volume, elsewhere) }, "mount: disk volume"},
		{"Rmdir of a mount point", func() error { return n.Filesystem.Rmdir(ctx, elsewhere, true) },
			"unmount: volume, " + noLock},
		{"StageShare", func() error {
			return n.Storage.StageShare(ctx,
				csiproxy.StageShareRequest{RemotePath: remote, StagingPath: share, Credentials: user})
		}, "map: share, link: share"},
		{"PublishVolume of a share", func() error { return n.Storage.PublishVolume(ctx, share, podShare) }, "link: share"},
		{"UnpublishVolume of a share", func() error { return n.Storage.UnpublishVolume(ctx, podShare) }, noLock},
		{"UnstageShare", func() error {
			_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
			return err
		}, "unmap: share, delete: share"},
		{"NewSmbGlobalMapping", func() error { return n.SMB.NewSMBGlobalMapping(ctx, remote, share, user) },
			"map: share, link: share"},
		{"RemoveSmbGlobalMapping with a link", func() error { return n.SMB.RemoveSMBGlobalMapping(ctx, remote) }, ""},
		{"Rmdir of the link", func() error { return n.Filesystem.Rmdir(ctx, share, true) },
			"delete:, unmap: share, delete: share"},
		{"RemoveSmbGlobalMapping", func() error {
			r.must(n.SMB.NewSMBGlobalMapping(ctx, remote, "", user))
			return n.SMB.RemoveSMBGlobalMapping(ctx, remote)
		}, "map: share, unmap: share, delete: share"},
		{"StageVolume again", stageIt, "mount: disk volume"},
		{"CleanUp", func() error {
			r.must(r.sim.Symlink(target, staging+`\none`, true))
			r.must(r.sim.DetachDisk(r.number))
			if _, err := n.Storage.CleanUp(ctx, true); err != nil { // a link leads into the volume
				return err
			}
			_, err := n.Storage.CleanUp(ctx, true)
			return err
		}, noLock + ", unmount: volume"},
		{"PartitionDisk", func() error {
			other = r.attach(winsim.DiskSpec{Serial: "vol-2", Offline: true})
			return n.Disk.PartitionDisk(ctx, other)
		}, "attributes: disk, create: disk, layout: disk"},
		{"FormatVolume", func() error {
			id, err := n.Volume.DataVolumeOfDisk(ctx, other)
			r.must(err)
			return n.Volume.FormatVolume(ctx, id)
		}, "format: disk volume"},
		{"ResizeVolume", func() error {
			r.must(r.sim.GrowDisk(other, 20<<30))
			id, err := n.Volume.DataVolumeOfDisk(ctx, other)
			r.must(err)
			return n.Volume.ResizeVolume(ctx, id, 0)
		}, "grow: disk, extend: disk"},
		{"SetDiskState of a copy", func() error {
			copied, err := r.sim.CloneDisk(other, winsim.DiskSpec{Serial: "copy", Offline: true})
			r.must(err)
			ops, err := nodeops.New(r.sim, nodeops.Options{})
			r.must(err)
			return ops.Disk.SetDiskState(ctx, copied, true)
		}, "attributes: disk"},
		{"SetDiskState offline", func() error { return n.Disk.SetDiskState(ctx, other, false) }, "attributes: disk"},
	} {
		var got []string
		r.sim.OnCall(func(call winsim.Call) {
			if rightful[call.Name] == "" {
				return
			}
			held := rightful[call.Name] + ":"
			for _, locked := range r.sim.LockedBytes(lockFile) {
				held += " " + [...]string{1: "disk", 2: "volume", 4: "share"}[locked>>59]
			}
			if !slices.Contains(got, held) {
				got = append(got, held)
			}
		})
		err := c.run()
		r.sim.OnCall(nil)
		if all := strings.Join(got, ", "); err != nil || all != c.want {
			t.Errorf("%s: %s, %v; want %s", c.name, all, err, c.want)
		}
	}
}
