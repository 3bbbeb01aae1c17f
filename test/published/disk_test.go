// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// Every method of every version of the disk group: what it does, and how it fails.
func TestDisk(t *testing.T) {
	t.Parallel()
	for _, v := range versionsOf("disk", "PartitionDisk") {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := n.client(v)
			data := n.attach(hardware{
				size: 10 * gib, serial: "vol0123456789abcdef0", page83: "Google  PersistentDisk  pvc-1",
				adapter: 3, bus: 0, target: 1, lun: 7, offline: true, readOnly: true,
			})
			for _, test := range []struct {
				method string
				test   func(*node, *client, uint32)
			}{
				{"ListDiskLocations", testListDiskLocations},
				{"ListDiskIDs", testListDiskIDs},
				{"GetDiskNumberByName", testGetDiskNumberByName},
				{"GetDiskStats", testGetDiskStats},
				{"SetDiskState", testDiskState},
				{"PartitionDisk", testPartitionDisk},
				{"Rescan", testRescan},
			} {
				if c.has(test.method) {
					t.Run(test.method, func(t *testing.T) { test.test(n.in(t), c.in(t), data) })
				}
			}
			c.wantAllSeen()
		})
	}
}

// noDisk is the number of no disk.
const noDisk = uint32(4_000_000_000)

func testListDiskLocations(n *node, c *client, data uint32) {
	got := c.succeed("ListDiskLocations", nil).byDisk("disk_locations")[data]
	delete(got, "Bus") // the PCI bus of the adapter, which not every location tells
	if diff := cmp.Diff(map[string]string{"Adapter": "3", "Target": "1", "LUNID": "7"}, got); diff != "" {
		c.t.Errorf("location of disk %d (-want +got):\n%s", data, diff)
	}
	n.failNext("CM_Get_Device_Interface_ListW", errorAccessDenied)
	c.fail(codes.PermissionDenied, "ListDiskLocations", nil)
}

func testListDiskIDs(n *node, c *client, data uint32) {
	ids := c.succeed("ListDiskIDs", nil).byDisk("diskIDs")[data]
	serial, ok := ids["serial_number"]
	if !ok {
		serial = ids["serialNumber"] // a key of the map that older versions have
	}
	if ids["page83"] != "Google  PersistentDisk  pvc-1" || serial != "vol0123456789abcdef0" || len(ids) != 2 {
		c.t.Errorf("the offline disk %d has the ids %q", data, ids)
	}

	// A virtual bus that rejects the query must not hide the other disks.
	mute := n.attach(hardware{size: gib, serial: "mute", page83: "mute"})
	n.failNext("IOCTL_STORAGE_QUERY_PROPERTY", errorInvalidFunction, "--object", "PhysicalDrive"+decimal(mute), "--count", "2")
	all := c.succeed("ListDiskIDs", nil).byDisk("diskIDs")
	if ids, listed := all[mute]; !listed || ids["page83"] != "" {
		c.t.Errorf("the disk that can't answer has the ids %q (listed: %t)", ids, listed)
	}
	if all[data]["page83"] == "" {
		c.t.Errorf("the disk that can answer has the ids %q beside one that can't", all[data])
	}

	n.failNext("CM_Get_Device_Interface_ListW", errorAccessDenied)
	c.fail(codes.PermissionDenied, "ListDiskIDs", nil)
}

func testGetDiskNumberByName(n *node, c *client, data uint32) {
	got := c.succeed("GetDiskNumberByName", fields{"disk_name": "Google  PersistentDisk  pvc-1"}).diskNumber("disk_number")
	if got != data {
		c.t.Errorf("got disk %d, want %d", got, data)
	}
	c.fail(codes.NotFound, "GetDiskNumberByName", fields{"disk_name": "Google  PersistentDisk  pvc-2"})
}

func testGetDiskStats(n *node, c *client, data uint32) {
	if got := c.succeed("GetDiskStats", fields{"disk_number": data}).int64("total_bytes"); got != 10*gib {
		c.t.Errorf("disk %d has %d bytes, want 10 GiB", data, got)
	}
	c.fail(codes.NotFound, "GetDiskStats", fields{"disk_number": noDisk})
	c.wantDiskNumberChecked("GetDiskStats", nil)
}

func testDiskState(n *node, c *client, data uint32) {
	want := func(online bool) {
		c.t.Helper()
		if got := c.succeed("GetDiskState", fields{"disk_number": data}).bool("is_online"); got != online {
			c.t.Errorf("GetDiskState says online: %t, want %t", got, online)
		}
		if got := !n.disk(data).Offline; got != online {
			c.t.Errorf("the node's disk is online: %t, want %t", got, online)
		}
	}
	want(false)
	if !n.disk(data).ReadOnly {
		c.t.Error("the disk arrived writable: the test proves less")
	}
	for _, online := range []bool{true, true, false, false} {
		c.succeed("SetDiskState", fields{"disk_number": data, "is_online": online})
		want(online)
		if n.disk(data).ReadOnly {
			c.t.Error("SetDiskState leaves the disk read-only")
		}
	}
	c.fail(codes.NotFound, "GetDiskState", fields{"disk_number": noDisk})
	c.fail(codes.NotFound, "SetDiskState", fields{"disk_number": noDisk, "is_online": true})
	c.wantDiskNumberChecked("GetDiskState", nil)
	c.wantDiskNumberChecked("SetDiskState", fields{"is_online": true})
}

func testPartitionDisk(n *node, c *client, data uint32) {
	o := n.operator()
	var volume string
	for i := range 3 {
		c.succeed("PartitionDisk", fields{"disk_number": data})
		o.setOnline(data, true)
		volumes := o.volumes(data)
		if len(volumes) != 1 {
			c.t.Fatalf("call %d: disk %d has the volumes %q, want one", i+1, data, volumes)
		}
		if volume != "" && volumes[0] != volume {
			c.t.Errorf("call %d: the volume %s became %s", i+1, volume, volumes[0])
		}
		volume = volumes[0]
		o.setOnline(data, false) // drivers partition before they set it online
	}
	o.setOnline(data, true)
	c.fail(codes.NotFound, "PartitionDisk", fields{"disk_number": noDisk})
	c.wantDiskNumberChecked("PartitionDisk", nil)
}

func testRescan(n *node, c *client, data uint32) {
	n.grow(data, 12*gib)
	c.succeed("Rescan", nil)
	if got := n.disk(data).SeenBytes; got != 12*gib {
		c.t.Errorf("after Rescan Windows sees %d bytes of disk %d, want 12 GiB", got, data)
	}
	n.failNext("CM_Reenumerate_DevNode", errorAccessDenied) // one adapter keeps nothing from the others
	c.succeed("Rescan", nil)
	n.failNext("CM_Get_Device_Interface_ListW", errorAccessDenied)
	c.fail(codes.PermissionDenied, "Rescan", nil)
}

// wantDiskNumberChecked asserts that a version with disk numbers in strings takes
// none that isn't a decimal number of 32 bits: "4294967296" must not become disk 0.
func (c *client) wantDiskNumberChecked(method string, others fields) {
	c.t.Helper()
	if c.numbersDisks(method) {
		return
	}
	for _, id := range []string{"4294967296", "18446744073709551616", "-1", "", " 1", "1 ", "+1", "0x1", "1.0", "1_0", "one", "١"} {
		c.fail(codes.InvalidArgument, method, others.with("disk_number", id))
	}
}
