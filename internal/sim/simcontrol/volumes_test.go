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
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

func TestHardware(t *testing.T) {
	sys, sim := start(t)
	eui, nguid := []byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte("0123456789abcdef")
	number := get[simv1.DiskNumber](sim, "AttachDisk", &simv1.DiskHardware{
		SizeBytes: 1 << 30, SerialNumber: "nvme", DiskNumber: proto.Uint32(7), LateNs: int64(time.Nanosecond),
		Vendor: "v", Product: "p", Revision: "r", Location: "there",
		Nvme: &simv1.NvmeNamespace{ControllerSerialNumber: "c", NamespaceId: 3, Eui64: eui, Nguid: nguid},
		Designators: []*simv1.Designator{
			{CodeSet: 1, Type: 3, Id: []byte{0x60, 1}}, {CodeSet: 2, Type: 1, Association: 2, Id: []byte("target")},
		},
	}).GetDiskNumber()
	sys.Settle()
	got := sys.Disks()[1].Spec
	seven := csiproxy.DiskNumber(7)
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
	listed := get[simv1.ListDisksResponse](sim, "ListDisks").Disks[1]
	namespace := &simv1.NvmeNamespace{ControllerSerialNumber: "c", NamespaceId: 3, Eui64: eui, Nguid: nguid}
	if diff := cmp.Diff(namespace, listed.Nvme, protocmp.Transform()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	sim.refused(csiproxy.ErrInvalidArgument, "AttachDisk",
		&simv1.DiskHardware{SizeBytes: 1 << 30, Nvme: &simv1.NvmeNamespace{Eui64: eui[:7]}},
		&simv1.DiskHardware{SizeBytes: 1 << 30, Nvme: &simv1.NvmeNamespace{Nguid: append(nguid, 1)}},
		&simv1.DiskHardware{SizeBytes: 1 << 30, Page83: "id", Designators: []*simv1.Designator{{}}})
}
