// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// places is a node whose interface paths are those of places: a disk that comes to the place of
// another one has the path that the other had.
type places struct {
	*winsim.System
	disks map[string]csiproxy.DiskNumber // by interface path
}

func (p places) DeviceInterfaces(ctx context.Context, class winid.GUID) ([]string, error) {
	if class != win.InterfaceClassDisk {
		return p.System.DeviceInterfaces(ctx, class)
	}
	return slices.Sorted(maps.Keys(p.disks)), nil
}

func (p places) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	if n, ok := p.disks[path]; ok {
		path = win.PhysicalDrive(n)
	}
	return p.System.OpenDevice(ctx, path, access)
}

// A disk that has come to the place of another one is found, whatever was said of the other.
func TestDiskAtThePlaceOfAnother(t *testing.T) {
	for name, look := range map[string]func(*nodeops.Disks, context.Context, csiproxy.Selector) ([]csiproxy.Disk, error){
		"Hardware": (*nodeops.Disks).Hardware, "Describe": (*nodeops.Disks).Describe,
	} {
		t.Run(name, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			n := attach(t, sim, winsim.DiskSpec{Serial: "a", Page83: naa(1)})
			ops := groupsOf(t, places{sim, map[string]csiproxy.DiskNumber{"place": n}}, nodeops.Options{}).Disks
			for i, serial := range []string{"a", "b"} {
				if i == 1 {
					simtest.Must(t, sim.DetachDisk(n))
					attach(t, sim, winsim.DiskSpec{Serial: "b", Page83: naa(2), Number: &n})
				}
				for _, wanted := range []csiproxy.Selector{{}, {SerialNumber: serial}} {
					all, err := look(ops, t.Context(), wanted)
					simtest.Must(t, err)
					if len(all) != 1 || all[0].SerialNumber != serial || wanted.IsZero() &&
						!strings.HasSuffix(all[0].Identifiers[0].Text, strconv.Itoa(i+1)) {
						t.Errorf("for %v, the disks are %+v", wanted, all)
					}
				}
			}
		})
	}
}

func naa(last byte) []win.Identifier {
	return []win.Identifier{{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA,
		ID: []byte{0x60, 1, 2, 3, 4, 5, 6, last}}}
}

// An administrator's VHDX that has come to the interface path of a container's scratch disk is found
// after some minutes, and at once if the disks were listed in between.
func TestDiskAtThePlaceOfScratch(t *testing.T) {
	for _, listed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			vhdx := func(serial, file string) csiproxy.DiskNumber {
				return attach(t, sim, winsim.DiskSpec{Serial: serial, Location: file, BusType: win.BusTypeFileBackedVirtual})
			}
			at := places{sim, map[string]csiproxy.DiskNumber{"place": vhdx("scratch", scratchSpace)}}
			ops := groupsOf(t, at, nodeops.Options{}).Disks
			for i, want := range []int{0, 0, 1} {
				switch i {
				case 1:
					simtest.Must(t, sim.DetachDisk(at.disks["place"]))
					delete(at.disks, "place")
					if listed {
						_, err := ops.ListDiskIDs(t.Context())
						simtest.Must(t, err)
						want = 1
					}
					at.disks["place"] = vhdx("a", `D:\a.vhdx`)
				case 2:
					time.Sleep(10 * time.Minute)
				}
				if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != want {
					t.Errorf("list %d, listed in between %t: %v, %v", i, listed, ids, err)
				}
			}
		})
	}
}

// A scratch disk that has come to the path of another disk is never opened for writing.
func TestScratchAtThePlaceOfADisk(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	n := attach(t, sim, winsim.DiskSpec{Serial: "a"})
	at := places{sim, map[string]csiproxy.DiskNumber{"place": n}}
	ops := groupsOf(t, at, nodeops.Options{}).Disks
	_, err := ops.ListDiskIDs(t.Context())
	simtest.Must(t, err)
	simtest.Must(t, sim.DetachDisk(n))
	attach(t, sim, winsim.DiskSpec{Number: &n, Location: scratchSpace, BusType: win.BusTypeFileBackedVirtual})
	written := simtest.Counted(sim, win.IoctlDiskUpdateDriveSize.String(), win.IoctlDiskUpdateProperties.String())
	simtest.Must(t, ops.Rescan(t.Context()))
	if got := written(); got[0]+got[1] != 0 {
		t.Errorf("a rescan made %v calls that need a handle for writing", got)
	}
}
