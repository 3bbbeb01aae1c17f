// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

func TestHardware(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	eui, nguid := []byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte("0123456789abcdef")
	number := must(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk", &simv1.DiskHardware{
		SizeBytes: 1 << 30, SerialNumber: "nvme", DiskNumber: proto.Uint32(7), LateNs: int64(time.Nanosecond),
		Vendor: "v", Product: "p", Revision: "r", Location: "there",
		Nvme: &simv1.NvmeNamespace{ControllerSerialNumber: "c", NamespaceId: 3, Eui64: eui, Nguid: nguid},
		Designators: []*simv1.Designator{
			{CodeSet: 1, Type: 3, Id: []byte{0x60, 1}}, {CodeSet: 2, Type: 1, Association: 2, Id: []byte("target")},
		},
	})).GetDiskNumber()
	sys.Settle()
	got := sys.Disks()[1].Spec
	seven := disk.Number(7)
	want := winsim.DiskSpec{
		SizeBytes: 1 << 30, SectorSize: 512, Serial: "nvme", BusType: win.BusTypeNVMe, VendorID: "v", ProductID: "p",
		Revision: "r",
		Location: "there", SCSI: &win.SCSIAddress{PortNumber: 2, LUN: 2}, Late: time.Nanosecond, Number: &seven,
		NVMe: &hardware.NVMe{Controller: "c", Namespace: 3, EUI64: [8]byte(eui), NGUID: [16]byte(nguid)},
		Page83: []win.Identifier{
			{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA, ID: []byte{0x60, 1}},
			{CodeSet: win.CodeSetASCII, Type: win.IdentifierT10, Association: win.AssociationTarget, ID: []byte("target")},
		},
	}
	if diff := cmp.Diff(want, got); number != 7 || diff != "" {
		t.Errorf("disk %d (-want +got):\n%s", number, diff)
	}
	listed := must(simv1.Call[simv1.ListDisksResponse](ctx, sim, "ListDisks", &simv1.Empty{})).Disks[1]
	namespace := &simv1.NvmeNamespace{ControllerSerialNumber: "c", NamespaceId: 3, Eui64: eui, Nguid: nguid}
	if diff := cmp.Diff(namespace, listed.Nvme, protocmp.Transform()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	for name, r := range map[string]*simv1.DiskHardware{
		"a short EUI-64": {SizeBytes: 1 << 30, Nvme: &simv1.NvmeNamespace{Eui64: eui[:7]}},
		"a long NGUID":   {SizeBytes: 1 << 30, Nvme: &simv1.NvmeNamespace{Nguid: append(nguid, 1)}},
		"both forms":     {SizeBytes: 1 << 30, Page83: "id", Designators: []*simv1.Designator{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, errorOf(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk", r)), csiproxy.ErrInvalidArgument)
		})
	}
}

func TestCloneDisk(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	n := must(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
		&simv1.DiskHardware{SizeBytes: 10 << 30})).GetDiskNumber()
	simtest.Partition(t, sys, disk.Number(n), 1)
	clone := must(simv1.Call[simv1.DiskNumber](ctx, sim, "CloneDisk",
		&simv1.CloneDiskRequest{DiskNumber: n, Disk: &simv1.DiskHardware{SerialNumber: "clone"}})).GetDiskNumber()
	got := must(simv1.Call[simv1.ListDisksResponse](ctx, sim, "ListDisks", &simv1.Empty{})).Disks[clone]
	if got.SerialNumber != "clone" || !got.Offline || got.OfflineReason != simv1.OfflineReason_OFFLINE_REASON_COLLISION {
		t.Errorf("the clone is %v", got)
	}
	clone2 := must(simv1.Call[simv1.DiskNumber](ctx, sim, "CloneDisk",
		&simv1.CloneDiskRequest{DiskNumber: n})).GetDiskNumber()
	if clone2 != clone+1 {
		t.Errorf("the next one has the number %d", clone2)
	}
	wantError(t, errorOf(simv1.Call[simv1.DiskNumber](ctx, sim, "CloneDisk", &simv1.CloneDiskRequest{DiskNumber: 99})),
		csiproxy.ErrNotFound)
	wantError(t, errorOf(simv1.Call[simv1.DiskNumber](ctx, sim, "CloneDisk", &simv1.CloneDiskRequest{
		DiskNumber: n, Disk: &simv1.DiskHardware{Address: &simv1.ScsiAddress{Lun: 256}},
	})), csiproxy.ErrInvalidArgument)
}

func TestOfflineReason(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	n := must(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
		&simv1.DiskHardware{SizeBytes: 1 << 30})).GetDiskNumber()
	must(simv1.Call[simv1.Empty](ctx, sim, "SetDiskAttributes",
		&simv1.SetDiskAttributesRequest{DiskNumber: n, Offline: proto.Bool(true), OfflineReason: 6}))
	if got := must(simv1.Call[simv1.ListDisksResponse](ctx, sim, "ListDisks", &simv1.Empty{})).Disks[1]; !got.Offline ||
		got.OfflineReason != 6 {
		t.Errorf("the disk is %v", got)
	}
	for name, r := range map[string]*simv1.SetDiskAttributesRequest{
		"online":     {DiskNumber: n, Offline: proto.Bool(false), OfflineReason: 6},
		"persistent": {DiskNumber: n, Offline: proto.Bool(true), Persist: true, OfflineReason: 6},
		"unknown":    {DiskNumber: n, Offline: proto.Bool(true), OfflineReason: 1 << 16},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, errorOf(simv1.Call[simv1.Empty](ctx, sim, "SetDiskAttributes", r)), csiproxy.ErrInvalidArgument)
		})
	}
}

func TestVolumes(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	id, _ := simtest.Volume(t, sys)
	simtest.Must(t, sys.FormatVolume(ctx, id, win.FormatOptions{FileSystem: "NTFS"}))
	volume := func() *simv1.Volume {
		t.Helper()
		volumes := must(simv1.Call[simv1.ListVolumesResponse](ctx, sim, "ListVolumes", &simv1.Empty{})).Volumes
		return volumes[len(volumes)-1]
	}
	want := proto.CloneOf(volume())
	if want.VolumeId != id || want.FileSystem != "NTFS" || want.Damage != simv1.Damage_DAMAGE_NONE ||
		want.TotalBytes == 0 || want.FreeBytes == 0 {
		t.Fatalf("the volume is %v", want)
	}
	check := func(what string, r *simv1.SetVolumeRequest) {
		t.Helper()
		r.Volume = id
		must(simv1.Call[simv1.Empty](ctx, sim, "SetVolume", r))
		if diff := cmp.Diff(want, volume(), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want.Dirty, want.ReadOnly, want.Damage = true, true, simv1.Damage_DAMAGE_OFFLINE
	check("all at once", &simv1.SetVolumeRequest{Dirty: proto.Bool(true), ReadOnly: proto.Bool(true),
		Damage: simv1.Damage_DAMAGE_OFFLINE})
	want.Dirty, want.Damage = false, simv1.Damage_DAMAGE_NONE
	check("healed", &simv1.SetVolumeRequest{Dirty: proto.Bool(false), Damage: simv1.Damage_DAMAGE_NONE})
	want.ReadOnly = false
	check("writable", &simv1.SetVolumeRequest{ReadOnly: proto.Bool(false)})
	wantError(t, errorOf(simv1.Call[simv1.Empty](ctx, sim, "SetVolume", &simv1.SetVolumeRequest{Volume: id})),
		csiproxy.ErrInvalidArgument)
	wantError(t, errorOf(simv1.Call[simv1.Empty](ctx, sim, "SetVolume", &simv1.SetVolumeRequest{Volume: id, Damage: 9})),
		csiproxy.ErrInvalidArgument)
	wantError(t, errorOf(simv1.Call[simv1.Empty](ctx, sim, "SetVolume", &simv1.SetVolumeRequest{Volume: `Q:\`, Dirty: proto.Bool(true)})), csiproxy.ErrNotFound)
	must(simv1.Call[simv1.Empty](ctx, sim, "SetVolume",
		&simv1.SetVolumeRequest{Volume: id, BitlockerLocked: proto.Bool(true)}))
	if v := volume(); !v.BitlockerLocked || v.FileSystem != "" || v.Damage != simv1.Damage_DAMAGE_UNSPECIFIED {
		t.Errorf("locked by BitLocker it is %v", v)
	}
}

func TestProcesses(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	id := must(simv1.Call[simv1.Process](ctx, sim, "StartProcess", &simv1.Process{Program: `C:\app.exe`, Paths: []string{`C:\Windows`}})).ProcessId
	want := []*simv1.Process{{ProcessId: id, Program: `C:\app.exe`, Paths: []string{`C:\Windows`}}}
	if diff := cmp.Diff(want, must(simv1.Call[simv1.ListProcessesResponse](ctx, sim, "ListProcesses",
		&simv1.Empty{})).Processes, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must(simv1.Call[simv1.Empty](ctx, sim, "EndProcess", &simv1.Process{ProcessId: id}))
	if p := must(simv1.Call[simv1.ListProcessesResponse](ctx, sim, "ListProcesses", &simv1.Empty{})).Processes; len(
		p) > 0 {
		t.Errorf("left are %v", p)
	}
	wantError(t, errorOf(simv1.Call[simv1.Empty](ctx, sim, "EndProcess", &simv1.Process{ProcessId: id})),
		csiproxy.ErrNotFound)
	wantError(t, errorOf(simv1.Call[simv1.Process](ctx, sim, "StartProcess", &simv1.Process{})),
		csiproxy.ErrInvalidArgument)
	wantError(t, errorOf(simv1.Call[simv1.Process](ctx, sim, "StartProcess", &simv1.Process{Program: "x", Paths: []string{`C:\none`}})), csiproxy.ErrNotFound)
}
