// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

func newStagingNode(t *testing.T) (*winsim.System, *nodeops.Node) {
	t.Helper()
	return newSlowNode(t, winsim.Delays{})
}

func newSlowNode(t *testing.T, delays winsim.Delays) (*winsim.System, *nodeops.Node) {
	t.Helper()
	sim := simtest.Open(t, delays)
	simtest.Must(t, sim.MkdirAll(simtest.Kubelet))
	n, err := nodeops.New(sim, nodeops.Options{})
	simtest.Must(t, err)
	return sim, n
}

// Each cloud's selector finds its disk among those of all the others, as Windows shows them.
func TestListDisksOfEachCloud(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	const (
		uuid = "0f2f0fd4-4d35-4e6a-9c1d-5a1c2b3d4e5f"
		iqn  = csiproxy.IQN("iqn.2010-10.org.openstack:volume-1")
	)
	portal := csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	t10 := func(text string) []win.Identifier {
		return []win.Identifier{
			{CodeSet: win.CodeSetBinary, Type: 3, Association: win.AssociationPort, ID: []byte{1}},
			{CodeSet: win.CodeSetBinary, Type: 3, ID: []byte{0x60, 1, 2, 3}},
			{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte(text)},
		}
	}
	scsi := func(port, lun byte) *win.SCSIAddress { return &win.SCSIAddress{PortNumber: port, LUN: lun} }
	numbers := map[string]csiproxy.DiskNumber{}
	for name, spec := range map[string]winsim.DiskSpec{
		"EBS on Nitro": {Serial: "vol0abc1234def567890_00000001.", BusType: win.BusTypeNVMe, VendorID: "NVMe",
			ProductID: "Amazon Elastic B", SCSI: scsi(2, 0)},
		"EBS on Xen": {Serial: "vol0fed1234def567890", BusType: win.BusTypeSCSI, VendorID: "AWS", ProductID: "PVDISK",
			SCSI: scsi(3, 4)},
		"Azure by SCSI": {Serial: "azure", VendorID: "Msft    ", ProductID: "Virtual Disk", SCSI: scsi(4, 7)},
		"Azure by NVMe": {Serial: "azure-nvme", BusType: win.BusTypeNVMe, VendorID: "NVMe", ProductID: "MSFT NVMe Accele",
			SCSI: scsi(5, 4)},
		"GCE by SCSI": {Serial: "gce", Page83: t10("Google  pvc-6a1c2d3e"), VendorID: "Google",
			ProductID: "PersistentDisk", SCSI: scsi(6, 1)},
		"GCE by NVMe": {ProductID: "nvme_card-pd", NVMe: &hardware.NVMe{Controller: "nvme_card-pd", Namespace: 3,
			NGUID: [16]byte{0x10, 0xCC, 0x96, 0x36, 0xB6, 0xE3, 0xCE, 0x3B}}},
		"vSphere": {Serial: "6000c29f0123",
			Page83: []win.Identifier{{CodeSet: win.CodeSetBinary, Type: 3,
				ID: []byte{0x60, 0, 0xC2, 0x9F, 1, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, 1, 0x23, 0x45, 0x67}}},
			SCSI: scsi(8, 0)},
		"Cinder, virtio": {Serial: uuid[:20], BusType: win.BusTypeSCSI, VendorID: "Red Hat", ProductID: "VirtIO",
			SCSI: scsi(9, 0)},
	} {
		numbers[name] = simtest.Attach(t, sim, spec)
	}
	simtest.Must(t, sim.ISCSI().AddTarget(
		iscsitarget.Target{IQN: string(iqn), Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)}},
		winsim.DiskSpec{SizeBytes: 1 << 30}, winsim.DiskSpec{SizeBytes: 1 << 30}))
	simtest.Must(t, n.ISCSI.AddTargetPortal(ctx, portal))
	simtest.Must(t, n.ISCSI.ConnectTarget(ctx, portal, iqn, csiproxy.ISCSIAuthentication{}))
	luns, err := n.ISCSI.GetTargetDisks(ctx, portal, iqn)
	simtest.Must(t, err)
	numbers["iSCSI"] = luns[1]
	sim.Settle()

	for name, s := range map[string]csiproxy.Selector{
		"EBS on Nitro":   {SerialNumber: "vol-0abc1234def567890"},
		"EBS on Xen":     {SerialNumber: "vol-0fed1234def567890"},
		"Azure by SCSI":  {AzureLUN: pointer(uint32(7))},
		"Azure by NVMe":  {AzureLUN: pointer(uint32(3))},
		"GCE by SCSI":    {Identifier: "pvc-6a1c2d3e"},
		"GCE by NVMe":    {Identifier: fmt.Sprintf("eui.%016x", uint64(1210507561596603963))},
		"vSphere":        {Identifier: "6000C29f-0123-4567-89ab-cdef01234567"},
		"Cinder, virtio": {SerialNumber: uuid},
		"iSCSI":          {ISCSI: &csiproxy.ISCSISelector{Portal: portal, IQN: iqn, LUN: 1}},
	} {
		found, err := n.Storage.ListDisks(ctx, s)
		if err != nil || len(found) != 1 || found[0].Number != numbers[name] || found[0].Error != "" {
			t.Errorf("%s: %+v, %v, want disk %d", name, found, err, numbers[name])
		}
	}
	onAdapter, err := n.Storage.ListDisks(ctx, csiproxy.Selector{Adapter: pointer(uint32(3)), LUN: pointer(uint32(4))})
	if err != nil || len(onAdapter) != 1 || onAdapter[0].Number != numbers["EBS on Xen"] {
		t.Errorf("by adapter: %+v, %v", onAdapter, err)
	}
	namespaces, err := n.Storage.ListDisks(ctx, csiproxy.Selector{NVMeNamespace: 5, Product: "MSFT NVMe Accelerator"})
	if err != nil || len(namespaces) != 1 || namespaces[0].Number != numbers["Azure by NVMe"] {
		t.Errorf("by namespace: %+v, %v", namespaces, err)
	}
}

// What is listed of a disk is what is on it.
func TestListDisksTellsWhatIsThere(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	name, number := simtest.Volume(t, sim)
	raw := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "raw", Offline: true, ReadOnly: true})
	sim.Settle()
	disks, err := n.Storage.ListDisks(ctx, csiproxy.Selector{})
	simtest.Must(t, err)
	if len(disks) != 3 {
		t.Fatalf("%d disks: %+v", len(disks), disks)
	}
	if d := disks[0]; !strings.Contains(d.SystemReason, "Windows runs from this disk") || !d.Online {
		t.Errorf("the disk of Windows is %+v", d)
	}
	d := disks[1]
	if d.Number != number || d.SystemReason != "" || !d.Online || d.Style != csiproxy.PartitionStyleGPT || d.DiskID == "" ||
		d.SizeBytes != 10<<30 ||
		len(d.Identifiers) != 1 || d.Identifiers[0].Kind != csiproxy.IdentifierNAA || d.Location.SCSI == nil ||
		!strings.Contains(d.Location.Text, "LUN") {
		t.Errorf("the formatted disk is %+v", d)
	}
	var data []csiproxy.Partition
	for _, p := range d.Partitions {
		if p.Data {
			data = append(data, p)
		}
	}
	if len(data) != 1 || string(data[0].VolumeID) != name || data[0].FileSystem != "NTFS" ||
		data[0].OffsetBytes != 16<<20 || data[0].Error != "" {
		t.Errorf("its data partitions are %+v", data)
	}
	if d := disks[2]; d.Number != raw || d.Online || !d.ReadOnly || d.OfflineReason == "" || d.Style != csiproxy.PartitionStyleRAW ||
		len(d.Partitions) != 0 {
		t.Errorf("the raw disk is %+v", d)
	}

	simtest.Mount(t, sim, simtest.Kubelet+`\mounted`, name)
	disks, err = n.Storage.ListDisks(ctx, csiproxy.Selector{Number: &number})
	simtest.Must(t, err)
	if p := disks[0].Partitions; !slices.Equal(p[len(p)-1].Paths, []string{simtest.Kubelet + `\mounted`}) {
		t.Errorf("its partitions are %+v", p)
	}

	// A disk that refuses what it is asked is listed with its error, and hides no other.
	simtest.Must(t, sim.Fail(winsim.Match{Call: "IOCTL_DISK_GET_DRIVE_LAYOUT_EX", Object: "PhysicalDrive1"},
		winerr.ErrorIODevice))
	disks, err = n.Storage.ListDisks(ctx, csiproxy.Selector{})
	if err != nil || len(disks) != 3 || disks[1].Error == "" || disks[1].SerialNumber == "" || disks[2].Error != "" {
		t.Errorf("%+v, %v", disks, err)
	}
}

// An NVMe disk has the identifiers of its namespace, whether page 83 has them or not.
func TestListDisksOfNVMe(t *testing.T) {
	sim, n := newStagingNode(t)
	for _, settings := range []winsim.Settings{{}, {NoNVMeIdentify: true}} {
		simtest.Must(t, sim.SetSettings(settings))
		serial := fmt.Sprintf("controller-%v", settings.NoNVMeIdentify)
		simtest.Attach(t, sim, winsim.DiskSpec{NVMe: &hardware.NVMe{
			Controller: serial, Namespace: 3, EUI64: [8]byte{0: 1, 7: 8}, NGUID: [16]byte{0: 0xAB, 15: 0xCD},
		}, BusType: win.BusTypeNVMe})
		sim.Settle()
		for _, identifier := range []string{"0100000000000008", "AB0000000000000000000000000000CD"} {
			disks, err := n.Storage.ListDisks(t.Context(), csiproxy.Selector{Identifier: identifier})
			if err != nil || len(disks) == 0 || disks[0].Location.NVMeNamespace != 3 {
				t.Errorf("%+v: %s: %+v, %v", settings, identifier, disks, err)
			}
		}
		all, err := n.Storage.ListDisks(t.Context(), csiproxy.Selector{})
		simtest.Must(t, err)
		simtest.Must(t, sim.DetachDisk(all[len(all)-1].Number))
	}
}

// Under Server 2025's native NVMe driver a disk may have no SCSI address. A volume is staged by its serial
// number then, and Azure's LUN finds no disk rather than another one: the error says why.
func TestStageVolumeOnNVMeWithoutSCSI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		nvme := func(product, serial string, namespace uint32) csiproxy.DiskNumber {
			return simtest.Attach(t, sim, winsim.DiskSpec{Serial: serial, ProductID: product,
				SCSIAddressError: winerr.ErrorInvalidFunction, NVMe: &hardware.NVMe{Controller: serial, Namespace: namespace}})
		}
		azure, ebs := nvme("MSFT NVMe Accele", "azure", 12), nvme("Amazon Elastic B", "vol0abc", 1)
		sim.Settle()
		staged, err := n.Storage.StageVolume(t.Context(),
			csiproxy.StageVolumeRequest{Disk: serial("vol-0abc"), StagingPath: stagingPath})
		if err != nil || staged.Disk != ebs {
			t.Errorf("%+v, %v, want disk %d", staged, err, ebs)
		}
		_, err = n.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{AzureLUN: pointer(uint32(10))}, StagingPath: stagingPath, Wait: time.Millisecond})
		simtest.WantErrorOf(t, "Azure's LUN", err, csiproxy.ErrNotFound,
			fmt.Sprintf("it may be disk %d, an NVMe disk of unknown namespace", azure))
	})
}

func TestListDisksChecksTheSelector(t *testing.T) {
	_, n := newStagingNode(t)
	if _, err := n.Storage.ListDisks(t.Context(), csiproxy.Selector{LUN: pointer(uint32(1))}); !errors.Is(err,
		csiproxy.ErrInvalidArgument) {
		t.Error(err)
	}
}

// A disk that doesn't answer may be the one that is looked for: each error says so, with the call that
// Windows hasn't answered and since when, and in the same words for each attempt.
func TestSilentDiskMayBeMeant(t *testing.T) {
	for hung, want := range map[string]string{
		win.CallOpen: `it may be \\?\`, win.IoctlStorageQueryProperty.String(): "it may be disk 1, ",
	} {
		for _, deadline := range []time.Duration{0, 3 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				sim, n := newStagingNode(t)
				simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
				simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: hung, Object: win.PhysicalDrive(1)}, time.Hour))
				since := time.Now().UTC().Format(time.RFC3339)
				r := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, Wait: 10 * time.Second}
				n.Storage.StageVolume(t.Context(), r) // until the disk is known not to answer
				_, err := n.Storage.ListDisks(t.Context(), csiproxy.Selector{})
				simtest.Must(t, err)
				texts := make(map[string]bool)
				for range 3 {
					ctx, cancel := t.Context(), func() {}
					if deadline > 0 {
						ctx, cancel = context.WithTimeout(ctx, deadline)
					}
					_, err := n.Storage.StageVolume(ctx, r)
					cancel()
					texts[fmt.Sprint(err)] = true
					for _, part := range []string{want, "Windows has not answered " + hung, since} {
						if !strings.Contains(fmt.Sprint(err), part) {
							t.Errorf("%s: %v, want %q", hung, err, part)
						}
					}
				}
				if len(texts) != 1 {
					t.Errorf("%s: %d texts: %v", hung, len(texts), texts)
				}
				sim.ResetRules()
				time.Sleep(2 * time.Hour)
			})
		}
	}
}
