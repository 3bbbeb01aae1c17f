// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// Texts of machines of Azure: https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/3038.
const (
	azureLocal = "Integrated : Bus 0 : Device 63667 : Function 30746 : Adapter 0 : Port 0 : Target 0 : LUN 1"
	azureData  = "Integrated : Bus 0 : Device 63667 : Function 30747 : Adapter 1 : Port 0 : Target 0 : LUN 1"
	ofOthers   = "Integrated : Bus 0 : Device 4660 : Function 22136 : Adapter 5 : Port 0 : Target 0 : LUN 1"
)

// temporaryDisks are disks that Azure's agent, or another program, may be about to format, with whether that
// is known without a protected volume.
var temporaryDisks = map[string]struct {
	spec  winsim.DiskSpec
	known bool
}{
	"generation 2": {winsim.DiskSpec{Location: azureLocal, SCSI: &win.SCSIAddress{LUN: 1}}, true},
	"generation 2, on a high adapter": {winsim.DiskSpec{SCSI: &win.SCSIAddress{PortNumber: 4, LUN: 1},
		Location: "Integrated : Bus 0 : Device 63667 : Function 30746 : Adapter 4 : Port 0 : Target 0 : LUN 1"}, true},
	"generation 1": {winsim.DiskSpec{Location: "PCI Slot 1 : Adapter 0 : Channel 1 : Device 0",
		BusType: win.BusTypeATA, ProductID: "Virtual HD", SCSI: &win.SCSIAddress{PathID: 1}}, true},
	"without a text": {winsim.DiskSpec{LocationError: winerr.ErrorNotSupported, SCSI: &win.SCSIAddress{LUN: 1}}, false},
	"on another controller": {winsim.DiskSpec{Location: ofOthers,
		SCSI: &win.SCSIAddress{PortNumber: 5, LUN: 1}}, false},
	"local NVMe": {winsim.DiskSpec{ProductID: "Microsoft NVMe D", NVMe: &hardware.NVMe{Namespace: 3}}, false},
	"a bus of others": {winsim.DiskSpec{VendorID: "VMware", Location: "SCSI0",
		SCSI: &win.SCSIAddress{PortNumber: 6, LUN: 1}}, false},
}

// A temporary disk that is still empty is offered by no LUN, partitioned by no call and formatted by none:
// alone, and beside a data disk with its LUN. That disk is staged.
func TestEmptyTemporaryDiskIsNotTaken(t *testing.T) {
	for name, c := range temporaryDisks {
		for _, protected := range [][]string{nil, {"D:"}} {
			if protected == nil && !c.known {
				continue
			}
			for _, twin := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t)
						spec := c.spec
						spec.Serial = "temporary"
						temporary := r.attach(spec)
						if twin {
							r.attach(winsim.DiskSpec{Serial: "data", Location: azureData, SCSI: &win.SCSIAddress{PortNumber: 1, LUN: 1}})
						}
						r.refusesEmpty(protected, temporary)
						r.onlyTwinIsStaged(protected, temporary, twin, c.spec.Location == ofOthers)
					})
				})
			}
		}
	}
}

// node returns a process whose administrator protects volumes.
func (r *rig) node(protected []string) *nodeops.Node {
	n, err := nodeops.New(r.sim, nodeops.Options{ProtectedVolumes: protected})
	r.must(err)
	return n
}

func stageAt(n *nodeops.Node, r *rig, path string, wanted csiproxy.Selector) (csiproxy.StagedVolume, error) {
	return n.Storage.StageVolume(r.t.Context(), csiproxy.StageVolumeRequest{Disk: wanted, StagingPath: simtest.Kubelet + path,
		Wait: 1})
}

// refusesEmpty tries to write to an empty disk: without a partition and, in the end, with a raw one.
func (r *rig) refusesEmpty(protected []string, number csiproxy.DiskNumber) {
	r.t.Helper()
	n, ctx, lun := r.node(protected), r.t.Context(), uint32(1)
	locations, err := n.Disk.ListDiskLocations(ctx)
	r.must(err)
	if at, listed := locations[number]; listed {
		r.t.Errorf("the disk is listed at %+v", at)
	}
	ways := func(when string) {
		r.t.Helper()
		for way, wanted := range map[string]csiproxy.Selector{
			"number": {Number: &number}, "serial number": {SerialNumber: "temporary"},
			"LUN and vendor": {LUN: &lun, Vendor: "Msft", SerialNumber: "temporary"},
			"Azure's LUN":    {AzureLUN: &lun, SerialNumber: "temporary"},
		} {
			if _, err := stageAt(n, r, `\by-`+way[:3], wanted); csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition &&
				csiproxy.KindOf(err) != csiproxy.ErrNotFound {
				r.t.Errorf("%s: StageVolume by %s: %v", when, way, err)
			}
		}
	}
	ways("raw")
	if number == 0 {
		r.t.Fatal("the disk of Windows")
	}
	simtest.WantErrorOf(r.t, "PartitionDisk", n.Disk.PartitionDisk(ctx, number), csiproxy.ErrFailedPrecondition, "")
	described, err := n.Storage.ListDisks(ctx, csiproxy.Selector{Number: &number})
	r.must(err)
	if d := described[0]; d.Style != csiproxy.PartitionStyleRAW || len(d.Partitions) != 0 {
		r.t.Fatalf("the disk was partitioned: %+v", d)
	}
	simtest.Partition(r.t, r.sim, number, 1) // by the agent, which formats it next
	r.sim.Settle()
	volumes, err := n.Volume.ListVolumesOnDisk(ctx, number, 0)
	r.must(err)
	simtest.WantErrorOf(r.t, "FormatVolume", n.Volume.FormatVolume(ctx, volumes[0]), csiproxy.ErrFailedPrecondition, "")
	ways("raw volume")
	if formatted, err := n.Volume.IsVolumeFormatted(ctx, volumes[0]); formatted || err != nil {
		r.t.Fatalf("the volume was formatted: %v", err)
	}
}

// onlyTwinIsStaged stages by Azure's LUN, as the storage API and the v1 API do.
func (r *rig) onlyTwinIsStaged(protected []string, temporary csiproxy.DiskNumber, twin, ambiguous bool) {
	r.t.Helper()
	n, lun := r.node(protected), uint32(1)
	locations, err := n.Disk.ListDiskLocations(r.t.Context())
	r.must(err)
	if _, listed := locations[temporary+1]; listed != twin {
		r.t.Errorf("the data disk is listed: %v; %+v", listed, locations)
	}
	staged, err := stageAt(n, r, `\data`, csiproxy.Selector{AzureLUN: &lun})
	if twin && ambiguous {
		simtest.WantErrorOf(r.t, "two disks that may be Azure's", err, csiproxy.ErrFailedPrecondition, "2 disks have the LUN 1")
		return
	}
	if twin && (err != nil || staged.Disk != temporary+1 || !staged.Formatted) || !twin && err == nil {
		r.t.Errorf("staged %+v, %v; beside a data disk: %v", staged, err, twin)
	}
}

// A disk whose place Windows doesn't tell for once may be the temporary one.
func TestEmptyDiskOfUnknownPlace(t *testing.T) {
	r := newRig(t)
	number := r.attach(winsim.DiskSpec{Serial: "temporary", LocationError: winerr.ErrorIODevice, SCSI: &win.SCSIAddress{LUN: 1}})
	n := r.node(nil)
	simtest.WantErrorOf(t, "PartitionDisk", n.Disk.PartitionDisk(t.Context(), number), csiproxy.ErrUnavailable, "")
	locations, err := n.Disk.ListDiskLocations(t.Context())
	if _, listed := locations[number]; listed || err != nil {
		t.Errorf("it is listed: %v, %v", locations, err)
	}
}

// Sizes of machines without a temporary disk need no other flags: where D: will never come, or is the drive of
// DVDs, data disks of Azure are staged, whatever tells that they are.
func TestMachineWithoutTemporaryDisk(t *testing.T) {
	for name, dvd := range map[string]bool{"no D:": false, "D: is a DVD's": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if dvd {
				volume, _, letter := simtest.Lettered(t, r.sim, winsim.DiskSpec{Serial: "dvd", VendorID: "Msft", ProductID: "Virtual DVD"})
				simtest.Want(t, "letter", letter, `D:\`)
				r.must(r.sim.Fail(winsim.Match{Call: win.IoctlVolumeGetVolumeDiskExtents.String(),
					Object: win.VolumePath(volume)}, winerr.ErrorInvalidFunction))
			}
			n := r.node([]string{"D:"})
			for lun, spec := range map[uint32]winsim.DiskSpec{
				1: {Location: azureData, SCSI: &win.SCSIAddress{PortNumber: 3, LUN: 1}},
				2: {LocationError: winerr.ErrorNotSupported, SCSI: &win.SCSIAddress{PortNumber: 3, LUN: 2}},
				3: {ProductID: "MSFT NVMe Accele", NVMe: &hardware.NVMe{Namespace: 5}},
			} {
				spec.Serial = string(rune('0' + lun))
				number := r.attach(spec)
				locations, err := n.Disk.ListDiskLocations(t.Context())
				r.must(err)
				simtest.Want(t, "listed LUN", locations[number].LUNID, spec.Serial)
				staged, err := stageAt(n, r, `\lun-`+spec.Serial, csiproxy.Selector{AzureLUN: &lun})
				if err != nil || staged.Disk != number || !staged.Formatted {
					t.Errorf("LUN %d: %+v, %v, want disk %d", lun, staged, err, number)
				}
			}
		})
	}
}

// While D: is missing, a volume with data is staged, wherever its disk is. Once D: has come, so are empty disks
// of any kind; the disk of D: isn't offered.
func TestProtectedVolumeComesLater(t *testing.T) {
	r := newRig(t)
	other := winsim.DiskSpec{Serial: "full", Location: ofOthers, SCSI: &win.SCSIAddress{PortNumber: 5, LUN: 1}}
	number := r.attach(other)
	full := csiproxy.Selector{SerialNumber: "full"}
	_, err := stageAt(r.node(nil), r, `\full`, full)
	r.must(err)
	r.must(r.node(nil).Volume.UnmountVolume(t.Context(), csiproxy.VolumeID(r.sim.VolumesOfDisk(number)[0]), simtest.Kubelet+`\full`))

	n := r.node([]string{"D:"})
	if staged, err := stageAt(n, r, `\again`, full); err != nil || staged.Formatted {
		t.Errorf("a volume with data: %+v, %v", staged, err)
	}
	other.Serial, other.SCSI.LUN, other.Location = "empty", 2, ofOthers[:len(ofOthers)-1]+"2"
	empty := r.attach(other)
	_, err = stageAt(n, r, `\empty`, csiproxy.Selector{SerialNumber: "empty"})
	simtest.WantErrorOf(t, "an empty disk", err, csiproxy.ErrFailedPrecondition, "D:")
	_, temporary, letter := simtest.Lettered(t, r.sim, winsim.DiskSpec{Serial: "temporary", LocationError: winerr.ErrorNotSupported,
		SCSI: &win.SCSIAddress{LUN: 1}})
	simtest.Want(t, "letter", letter, `D:\`)
	if _, err = stageAt(n, r, `\empty`, csiproxy.Selector{SerialNumber: "empty"}); err != nil {
		t.Error(err)
	}
	locations, err := n.Disk.ListDiskLocations(t.Context())
	r.must(err)
	if _, listed := locations[temporary]; listed || locations[empty].LUNID != "2" {
		t.Errorf("the locations are %+v", locations)
	}
}
