// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// staged attaches a disk, and stages its volume at dir.
func staged(t *testing.T, n *simnode.Node, d simnode.Disk) csiproxy.DiskNumber {
	t.Helper()
	number := n.AttachDisk(d)
	c := n.Client()
	must(t, c.Disk.PartitionDisk(t.Context(), number))
	ids, err := c.Volume.ListVolumesOnDisk(t.Context(), number, 0)
	if err != nil || len(ids) != 1 {
		t.Fatalf("volumes %v, %v", ids, err)
	}
	must(t, c.Volume.FormatVolume(t.Context(), ids[0]))
	must(t, c.Volume.MountVolume(t.Context(), ids[0], dir))
	return number
}

func TestDesignators(t *testing.T) {
	n := simnode.New(t)
	number := n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Page83: []simnode.Designator{
		simnode.T10Designator("Google  PersistentDisk  data"), simnode.NAADesignator([]byte{0x60, 1}),
	}})
	ids, err := n.Client().Disk.ListDiskIDs(t.Context())
	if err != nil || ids[number].Page83 != "Google  PersistentDisk  data" {
		t.Errorf("%+v, %v", ids, err)
	}
}

func TestClone(t *testing.T) {
	n := simnode.New(t)
	original := staged(t, n, simnode.Disk{SizeBytes: 1 << 30})
	clone := n.CloneDisk(original, simnode.Disk{Serial: "clone", ReadOnly: true})
	if d := n.Disks()[clone]; d.Serial != "clone" || !d.Offline || d.WhyOffline != simnode.OfflineCollision {
		t.Errorf("the clone is %+v", d)
	}
	n.TakeDiskOffline(original, simnode.OfflineWriteFailures)
	if d := n.Disks()[original]; !d.Offline || d.WhyOffline != simnode.OfflineWriteFailures {
		t.Errorf("the original is %+v", d)
	}
}

func TestStateOfVolumes(t *testing.T) {
	n := simnode.New(t)
	number := staged(t, n, simnode.Disk{SizeBytes: 1 << 30})
	state := func() simnode.VolumeInfo {
		t.Helper()
		volumes := n.Volumes()
		i := slices.IndexFunc(volumes, func(v simnode.VolumeInfo) bool { return v.DiskNumber == number })
		return volumes[i]
	}
	v := state()
	if v.FileSystem != "NTFS" || v.ClusterBytes != 4096 || v.TotalBytes == 0 || v.FreeBytes == 0 || !slices.Contains(v.Paths, dir+`\`) || v.Dirty || v.ReadOnly {
		t.Errorf("the volume is %+v", v)
	}
	n.SetVolumeDirty(dir, true)
	n.SetVolumeDamage(string(v.ID), simnode.SpotDamage)
	n.SetVolumeReadOnly(dir, true)
	if v := state(); !v.Dirty || v.Damage != simnode.SpotDamage || !v.ReadOnly {
		t.Errorf("the volume is %+v", v)
	}
	n.SetVolumeReadOnly(dir, false)
	if err := n.WriteFile(dir+`\file`, nil); err != nil {
		t.Error(err)
	}
	id := n.StartProcess(`C:\app.exe`, dir+`\file`)
	n.EndProcess(id)
}

// The documented -protected-volume=D: keeps drivers from Azure's temporary disk.
func TestProtectedDriveLetter(t *testing.T) {
	n := simnode.New(t, simnode.WithNodeOptions(node.Options{ProtectedVolumes: []string{"D:"}}))
	number := n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
	c := n.Client()
	must(t, c.Disk.PartitionDisk(t.Context(), number))
	ids, err := c.Volume.ListVolumesOnDisk(t.Context(), number, 0)
	must(t, err)
	must(t, c.Volume.FormatVolume(t.Context(), ids[0]))
	n.SetVolumeLetter(string(ids[0]), "D")
	err = c.Volume.MountVolume(t.Context(), ids[0], dir)
	if !errors.Is(err, csiproxy.ErrFailedPrecondition) || !strings.Contains(err.Error(), "-protected-volume") {
		t.Errorf("mounting D: gives %v", err)
	}
	if paths := n.Volumes()[1].Paths; !slices.Equal(paths, []string{`D:\`}) {
		t.Errorf("it is mounted at %q", paths)
	}
	n.SetVolumeLetter(`D:\`, "E:")
	must(t, c.Volume.MountVolume(t.Context(), ids[0], dir))
}

func TestSizeOfShares(t *testing.T) {
	n := simnode.New(t)
	n.AddSMBShare(simnode.SMBShare{Server: "server", Name: "share", SizeBytes: 1 << 30})
	n.GrowSMBShare("server", "share", 2<<30)
}
