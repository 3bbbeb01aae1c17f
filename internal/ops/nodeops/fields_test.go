// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// Some answer has each field of a disk and of a volume. So a new field that nothing fills fails
// here. The fields of errors have tests of their own, iSCSI targets TestListDisksOfEachCloud, and drivers
// TestDiskThatFitsTwoDrivers and TestDriversProcess.
func TestEachFieldIsFilled(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	_, original := simtest.Volume(t, sim)
	_, err := sim.CloneDisk(original, winsim.DiskSpec{Serial: "clone", Offline: true})
	simtest.Must(t, err)
	simtest.Attach(t, sim, winsim.DiskSpec{
		NVMe: &hardware.NVMe{Controller: "nvme", Namespace: 3, EUI64: [8]byte{7: 8}}, BusType: win.BusTypeNVMe,
		SCSI: &win.SCSIAddress{PortNumber: 1, PathID: 2, TargetID: 3, LUN: 4},
	})
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{
		Disk: serial("vol-1"), StagingPath: stagingPath, Format: csiproxy.FormatOptions{Label: "data"},
	})
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, ReadOnly: true})
	r := stagingShareRequest(`\\filer\data`, sharePath)
	r.Privacy = csiproxy.PrivacyNotRequired
	simtest.Must(t, n.Storage.StageShare(ctx, r))
	simtest.Must(t, sim.SMB().RemoveShare("filer", "data"))

	disks, err := n.Storage.ListDisks(ctx, csiproxy.Selector{})
	simtest.Must(t, err)
	volume, err := n.Storage.GetVolume(ctx, stagingPath)
	simtest.Must(t, err)
	share, err := n.Storage.GetVolume(ctx, `\\filer\data`)
	simtest.Must(t, err)
	fields := make(map[string]bool) // whether some answer has it
	collect(reflect.ValueOf(disks), fields)
	collect(reflect.ValueOf([]csiproxy.Volume{volume, share}), fields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		elsewhere := slices.Contains([]string{"Disk.Error", "Disk.ISCSI", "Disk.Driver", "Volume.Driver", "Partition.Error"}, name)
		if fields[name] == elsewhere {
			t.Errorf("%s: %v, want %v", name, fields[name], !elsewhere)
		}
	}
}

// collect notes for each field of the structs in v whether it is set in one of them.
func collect(v reflect.Value, fields map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			collect(v.Elem(), fields)
		}
	case reflect.Slice:
		for i := range v.Len() {
			collect(v.Index(i), fields)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			fields[name] = fields[name] || !v.Field(i).IsZero()
			collect(v.Field(i), fields)
		}
	}
}
