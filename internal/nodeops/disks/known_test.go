// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// places is a node whose interface paths are those of places: a disk that comes to the place of
// another one has the path that the other had.
type places struct {
	*winsim.System
	disks  map[string]disk.Number // by interface path
	opened *int                   // how many of them were opened
}

func (p places) DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error) {
	if class != win.InterfaceClassDisk {
		return p.System.DeviceInterfaces(ctx, class)
	}
	return slices.Sorted(maps.Keys(p.disks)), nil
}

func (p places) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	if n, ok := p.disks[path]; ok {
		*p.opened++
		path = win.PhysicalDrive(n)
	}
	return p.System.OpenDevice(ctx, path, access)
}

// A disk that is known to be another isn't asked again; but one that has come to the place of a
// known one is found, and a disk that matches is asked each time.
func TestKnownDisks(t *testing.T) {
	for name, look := range map[string]func(*disks.Disks, context.Context, storage.Selector) ([]storage.Disk, error){
		"Hardware": (*disks.Disks).Hardware, "Describe": (*disks.Disks).Describe,
	} {
		t.Run(name, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			sys := places{sim, map[string]disk.Number{}, new(int)}
			a, b := attach(t, sim, winsim.DiskSpec{Serial: "a"}), attach(t, sim, winsim.DiskSpec{Serial: "b"})
			c := attach(t, sim, winsim.DiskSpec{Serial: "c"})
			ops := disks.New(sys, disks.Options{})
			wants := func(serial string, opened int, want ...disk.Number) {
				t.Helper()
				wanted := storage.Selector{SerialNumber: serial}
				*sys.opened = 0
				all, err := look(ops, t.Context(), wanted)
				simtest.Must(t, err)
				var got []disk.Number
				for _, d := range all {
					if wanted.Matches(d) {
						got = append(got, d.Number)
					}
				}
				if !slices.Equal(got, want) || *sys.opened != opened {
					t.Errorf("%q: %v, and %d were opened, want %v and %d", serial, got, *sys.opened, want, opened)
				}
			}
			sys.disks["first"], sys.disks["second"] = a, b
			wants("b", 2, b)
			wants("b", 1, b)
			sys.disks["first"] = c // in the place of a
			wants("c", 2, c)
			wants("c", 1, c)
			sys.disks["second"] = a // in the place of b
			wants("b", 3)           // what seemed to be b, and then all
			wants("a", 1, a)
			delete(sys.disks, "second")
			wants("a", 1)
		})
	}
}

// What belongs to a disk it is asked once: only its descriptor is asked for each time. Another
// disk that has come to its place under its number is asked everything.
func TestDetailsAreAskedOnce(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	n := attach(t, sim, winsim.DiskSpec{Serial: "a", Page83: naa(1)})
	sys := places{sim, map[string]disk.Number{"place": n}, new(int)}
	ops := disks.New(sys, disks.Options{})
	describe := func(queries, addresses int, last string) {
		t.Helper()
		counted := simtest.Counted(sim, win.IoctlStorageQueryProperty.String(), win.IoctlScsiGetAddress.String())
		all, err := ops.Describe(t.Context(), storage.Selector{})
		simtest.Must(t, err)
		if len(all) != 1 || len(all[0].Identifiers) != 1 || !strings.HasSuffix(all[0].Identifiers[0].Text, last) ||
			all[0].Location.SCSI == nil {
			t.Errorf("the disks are %+v", all)
		}
		if got := counted(); !slices.Equal(got, []int{queries, addresses}) {
			t.Errorf("%v queries and addresses, want %d and %d", got, queries, addresses)
		}
	}
	describe(3, 1, "1")
	describe(1, 0, "1")
	simtest.Must(t, sim.DetachDisk(n))
	attach(t, sim, winsim.DiskSpec{Serial: "b", Page83: naa(2), Number: &n})
	describe(3, 1, "2")
	describe(1, 0, "2")
}

func naa(last byte) []win.Identifier {
	return []win.Identifier{{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA,
		ID: []byte{0x60, 1, 2, 3, 4, 5, 6, last}}}
}
