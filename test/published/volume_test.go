// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// Every method of every version of the volume group: what it does, and how it fails.
func TestVolume(t *testing.T) {
	t.Parallel()
	for _, v := range versionsOf("volume", "MountVolume") {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := n.client(v)
			for _, test := range []struct {
				method string
				test   func(*node, *client)
			}{
				{"ListVolumesOnDisk", testListVolumesOnDisk},
				{"FormatVolume", testFormatVolume},
				{"MountVolume", testMountVolume},
				{"UnmountVolume", testUnmountVolume},
				{"ResizeVolume", testResizeVolume},
				{"GetVolumeStats", testGetVolumeStats},
				{"GetDiskNumberFromVolumeID", testGetDiskNumberFromVolumeID},
				{"GetVolumeIDFromTargetPath", testGetVolumeIDFromTargetPath},
				{"GetClosestVolumeIDFromTargetPath", testGetClosestVolumeID},
				{"WriteVolumeCache", testWriteVolumeCache},
			} {
				if c.has(test.method) {
					t.Run(test.method, func(t *testing.T) { test.test(n.in(t), c.in(t)) })
				}
			}
			c.wantAllSeen()
		})
	}
}

// noVolume is the id of no volume.
const noVolume = `\\?\Volume{deadbeef-0000-4000-8000-000000000000}\`

// wantVolumeIDChecked asserts that a method takes nothing but volume ids, and
// knows those that there are.
func (c *client) wantVolumeIDChecked(method string, others fields) {
	c.t.Helper()
	c.wantVolumeIDSyntax(method, others)
	c.fail(codes.NotFound, method, others.with("volume_id", noVolume))
}

func (c *client) wantVolumeIDSyntax(method string, others fields) {
	c.t.Helper()
	for _, id := range []string{
		"", "-1", "4294967296", `C:\`, `\\?\C:\`, `\\.\PhysicalDrive0`, `\\?\Volume{}\`, noVolume + `x`, noVolume + `..\`,
		strings.TrimSuffix(noVolume, `}\`), `\\server\share\`, noVolume + "\x00", "'; Format-Volume -DriveLetter C",
	} {
		c.fail(codes.InvalidArgument, method, others.with("volume_id", id))
	}
}

func testListVolumesOnDisk(n *node, c *client) {
	o := n.operator()
	data := n.attach(hardware{size: gib})
	if ids := c.succeed("ListVolumesOnDisk", fields{"disk_number": data}).texts("volume_ids"); len(ids) != 0 {
		c.t.Errorf("a raw disk has the volumes %q", ids)
	}
	volume := o.rawVolume(data)
	want := []string{volume}
	if diff := cmp.Diff(want, c.succeed("ListVolumesOnDisk", fields{"disk_number": data}).texts("volume_ids")); diff != "" {
		c.t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if c.numbersDisks("ListVolumesOnDisk") { // the same versions know partitions
		const reserved, basic = uint32(1), uint32(2) // as PartitionDisk makes them
		for partition, want := range map[uint32][]string{0: {volume}, reserved: nil, basic: {volume}} {
			got := c.succeed("ListVolumesOnDisk", fields{"disk_number": data, "partition_number": partition}).texts("volume_ids")
			if diff := cmp.Diff(want, got); diff != "" {
				c.t.Errorf("volumes of partition %d (-want +got):\n%s", partition, diff)
			}
		}
	}
	c.fail(codes.NotFound, "ListVolumesOnDisk", fields{"disk_number": noDisk})
	c.wantDiskNumberChecked("ListVolumesOnDisk", nil)
}

func testFormatVolume(n *node, c *client) {
	o := n.operator()
	volume := o.rawVolume(n.attach(hardware{size: gib}))
	formatted := func() bool {
		return c.succeed("IsVolumeFormatted", fields{"volume_id": volume}).bool("formatted")
	}
	if formatted() {
		c.t.Error("a raw volume counts as formatted")
	}
	// An I/O error mustn't look like "not formatted": the driver would format.
	n.failNext("GetVolumeInformationW", errorIODevice)
	c.fail(codes.Unavailable, "IsVolumeFormatted", fields{"volume_id": volume})

	c.succeed("FormatVolume", fields{"volume_id": volume})
	if !formatted() {
		c.t.Error("the volume isn't formatted after FormatVolume")
	}
	o.mount(volume, kubeletPath+`\formatted`)
	n.write(kubeletPath+`\formatted\data`, "of a pod")
	c.fail(codes.FailedPrecondition, "FormatVolume", fields{"volume_id": volume})
	if got := n.read(kubeletPath + `\formatted\data`); got != "of a pod" {
		c.t.Errorf("after a refused format the data read %q", got)
	}
	c.wantVolumeIDChecked("IsVolumeFormatted", nil)
	c.wantVolumeIDChecked("FormatVolume", nil)
}

func testMountVolume(n *node, c *client) {
	o := n.operator()
	volume, other := o.formattedVolume(n.attach(hardware{size: gib})), o.formattedVolume(n.attach(hardware{size: gib}))
	const path = kubeletPath + `\mount\with\parents`
	for range 2 { // the second time it is mounted there already
		c.succeed("MountVolume", fields{"volume_id": volume, "target_path": path})
		if got := o.mounted(path); got != volume {
			c.t.Errorf("at the path is %q, want %s", got, volume)
		}
	}
	n.write(path+`\data`, "on the volume")
	c.fail(codes.FailedPrecondition, "MountVolume", fields{"volume_id": other, "target_path": path})
	if got := n.read(path + `\data`); got != "on the volume" {
		c.t.Errorf("after a refused mount the data read %q", got)
	}

	o.mkdir(kubeletPath + `\full\of\something`)
	c.fail(codes.FailedPrecondition, "MountVolume", fields{"volume_id": volume, "target_path": kubeletPath + `\full`})
	// GCE's driver hands over paths without a drive, as kubelet has them.
	c.succeed("MountVolume", fields{"volume_id": other, "target_path": `\var\lib\kubelet\driveless`})
	if got := o.mounted(kubeletPath + `\driveless`); got != other {
		c.t.Errorf("at the path without a drive is %q, want %s", got, other)
	}
	c.wantVolumeIDChecked("MountVolume", fields{"target_path": kubeletPath + `\mount\of\nothing`})
}

func testUnmountVolume(n *node, c *client) {
	o := n.operator()
	data := n.attach(hardware{size: gib})
	volume, other := o.formattedVolume(data), o.formattedVolume(n.attach(hardware{size: gib}))
	const path = kubeletPath + `\unmount`
	o.mount(volume, path)
	n.write(path+`\data`, "on the volume")
	c.fail(codes.FailedPrecondition, "UnmountVolume", fields{"volume_id": other, "target_path": path})
	for range 2 { // the second time it isn't mounted any more
		c.succeed("UnmountVolume", fields{"volume_id": volume, "target_path": path})
		if got := o.mounted(path); got != "" {
			c.t.Errorf("after the unmount %s is mounted", got)
		}
		if !o.exists(path) {
			c.t.Error("the directory is gone with the mount point")
		}
		if o.exists(path + `\data`) {
			c.t.Error("the volume's file is there without the volume")
		}
	}
	o.mount(volume, path)
	if got := n.read(path + `\data`); got != "on the volume" {
		c.t.Errorf("after unmount and mount the data read %q", got)
	}
	c.fail(codes.FailedPrecondition, "UnmountVolume", fields{"volume_id": noVolume, "target_path": path})
	n.detach(data) // the pods of a volume that has left have to end
	for range 2 {
		c.succeed("UnmountVolume", fields{"volume_id": volume, "target_path": path})
	}
	c.wantVolumeIDSyntax("UnmountVolume", fields{"target_path": path})
}

func testResizeVolume(n *node, c *client) {
	o := n.operator()
	data := n.attach(hardware{size: 2 * gib})
	volume := o.formattedVolume(data)
	o.mount(volume, kubeletPath+`\resize`)
	n.write(kubeletPath+`\resize\data`, "before growth")
	small := o.size(volume)
	for _, id := range []string{volume, decimal(data)} { // nothing to grow; also as Azure Disk's driver says it
		c.succeed("ResizeVolume", fields{"volume_id": id, "size_bytes": int64(0)})
		if got := o.size(volume); got != small {
			c.t.Errorf("without growth of the disk the size became %d, before %d", got, small)
		}
	}

	n.grow(data, 6*gib)
	o.rescan()
	c.succeed("ResizeVolume", fields{"volume_id": volume, "size_bytes": int64(3 * gib)})
	if got := o.size(volume); got < 3*gib-mib || got > 3*gib+mib {
		c.t.Errorf("size is %d, want 3 GiB", got)
	}
	c.succeed("ResizeVolume", fields{"volume_id": volume, "size_bytes": int64(gib)}) // smaller: nothing is done
	if got := o.size(volume); got < 3*gib-mib {
		c.t.Errorf("a smaller size shrank the volume to %d", got)
	}
	c.succeed("ResizeVolume", fields{"volume_id": decimal(data), "size_bytes": int64(0)})
	if got := o.size(volume); got < 6*gib-64*mib {
		c.t.Errorf("size is %d, want nearly all of 6 GiB", got)
	}
	if got := n.read(kubeletPath + `\resize\data`); got != "before growth" {
		c.t.Errorf("after growth the data read %q", got)
	}

	c.fail(codes.InvalidArgument, "ResizeVolume", fields{"volume_id": volume, "size_bytes": int64(-1)})
	c.fail(codes.NotFound, "ResizeVolume", fields{"volume_id": decimal(noDisk), "size_bytes": int64(0)})
	c.wantVolumeIDChecked("ResizeVolume", nil)
}

func testGetVolumeStats(n *node, c *client) {
	o := n.operator()
	volume := o.formattedVolume(n.attach(hardware{size: gib}))
	o.mount(volume, kubeletPath+`\stats`)
	before := c.succeed("GetVolumeStats", fields{"volume_id": volume})
	if total, used := before.int64("total_bytes"), before.int64("used_bytes"); total <= gib-64*mib || total >= gib || used <= 0 || used >= total {
		c.t.Errorf("a fresh volume on a disk of 1 GiB has %d bytes, %d of them used", total, used)
	}
	n.write(kubeletPath+`\stats\data`, strings.Repeat("x", 64<<10))
	after := c.succeed("GetVolumeStats", fields{"volume_id": volume})
	if used := after.int64("used_bytes"); used < before.int64("used_bytes")+64<<10 {
		c.t.Errorf("with a file of 64 KiB %d bytes are used, before %d", used, before.int64("used_bytes"))
	}
	raw := o.rawVolume(n.attach(hardware{size: gib}))
	c.fail(codes.FailedPrecondition, "GetVolumeStats", fields{"volume_id": raw})
	c.wantVolumeIDChecked("GetVolumeStats", nil)
}

func testGetDiskNumberFromVolumeID(n *node, c *client) {
	data := n.attach(hardware{size: gib})
	volume := n.operator().rawVolume(data)
	if got := c.succeed("GetDiskNumberFromVolumeID", fields{"volume_id": volume}).diskNumber("disk_number"); got != data {
		c.t.Errorf("the volume is on disk %d, want %d", got, data)
	}
	c.wantVolumeIDChecked("GetDiskNumberFromVolumeID", nil)
}

func testGetVolumeIDFromTargetPath(n *node, c *client) {
	o := n.operator()
	volume := o.formattedVolume(n.attach(hardware{size: gib}))
	const staging, target = kubeletPath + `\id\staging`, kubeletPath + `\id\target`
	o.mount(volume, staging)
	o.symlink(staging, target)
	for _, path := range []string{staging, target, staging + `\`, `\var\lib\kubelet\id\staging`, strings.ToUpper(target)} {
		if got := c.succeed("GetVolumeIDFromTargetPath", fields{"target_path": path}).text("volume_id"); got != volume {
			c.t.Errorf("at %s is %q, want %s", path, got, volume)
		}
	}

	// EBS's driver takes the volume for not mounted by this text alone.
	o.mkdir(kubeletPath + `\id\plain`)
	for _, path := range []string{kubeletPath + `\id\plain`, kubeletPath + `\id\missing`, kubeletPath + `\id\missing\below`} {
		message := c.fail(codes.NotFound, "GetVolumeIDFromTargetPath", fields{"target_path": path})
		if !strings.Contains(message, "because it does not exist") {
			c.t.Errorf("for %s the message is %q", path, message)
		}
	}
}

func testGetClosestVolumeID(n *node, c *client) {
	o := n.operator()
	volume := o.formattedVolume(n.attach(hardware{size: gib}))
	const staging, target = kubeletPath + `\closest\staging`, kubeletPath + `\closest\target`
	o.mount(volume, staging)
	o.mkdir(staging + `\a\b`)
	o.symlink(staging, target)
	for _, path := range []string{staging, staging + `\a\b`, target, target + `\a\b`} {
		if got := c.succeed("GetClosestVolumeIDFromTargetPath", fields{"target_path": path}).text("volume_id"); got != volume {
			c.t.Errorf("closest to %s is %q, want %s", path, got, volume)
		}
	}
	system := c.succeed("GetClosestVolumeIDFromTargetPath", fields{"target_path": kubeletPath + `\closest`}).text("volume_id")
	if system == volume || system == "" {
		c.t.Errorf("closest to a directory of C: is %q", system)
	}
	c.fail(codes.InvalidArgument, "GetClosestVolumeIDFromTargetPath", fields{"target_path": `C:\Windows`})

	o.symlink(kubeletPath+`\closest\chicken`, kubeletPath+`\closest\egg`)
	o.symlink(kubeletPath+`\closest\egg`, kubeletPath+`\closest\chicken`)
	c.fail(codes.FailedPrecondition, "GetClosestVolumeIDFromTargetPath", fields{"target_path": kubeletPath + `\closest\egg`})
}

func testWriteVolumeCache(n *node, c *client) {
	o := n.operator()
	volume := o.formattedVolume(n.attach(hardware{size: gib}))
	const path = kubeletPath + `\cache`
	o.mount(volume, path)
	n.write(path+`\data`, "written")
	c.succeed("WriteVolumeCache", fields{"volume_id": volume})
	n.write(path+`\late`, "not flushed")
	n.powerLoss()
	if got := n.read(path + `\data`); got != "written" {
		c.t.Errorf("after a loss of power the flushed data read %q", got)
	}
	if o.exists(path+`\late`) && n.read(path+`\late`) == "not flushed" {
		c.t.Error("data that weren't flushed outlived the loss of power: it proves nothing")
	}
	c.wantVolumeIDChecked("WriteVolumeCache", nil)
}
