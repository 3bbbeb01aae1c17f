// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Every method of every version, through the pipes of the service: what it does to
// the node is asked of the node itself.
func TestGroups(t *testing.T) {
	s := installSimulated(t)
	s.start()
	defer wantNoSecrets(t, s)
	for _, group := range []struct {
		name string
		test func(*testing.T, *client)
	}{
		{"disk", testDisk}, {"volume", testVolume}, {"filesystem", testFilesystem},
		{"smb", testSMB}, {"iscsi", testISCSI}, {"system", testSystem},
	} {
		for _, v := range versions[group.name] {
			t.Run(group.name+"/"+v.name, func(t *testing.T) {
				c := v.connect(t)
				group.test(t, c)
				c.wantAllCalled()
			})
		}
	}
}

const (
	gib = 1 << 30
	// noDisk is the number of no disk.
	noDisk = uint32(4_000_000_000)
)

func testDisk(t *testing.T, c *client) {
	page83 := "Google  PersistentDisk  " + c.name
	disk := attach(t, "--serial", "vol-"+c.name, "--page83", page83, "--offline")
	defer sim(t, "disk", "detach", decimal(disk))

	location := c.call("ListDiskLocations", nil).ofDisk("disk_locations", disk)
	delete(location, "Bus") // the PCI bus of the adapter, which not every location tells
	for _, part := range []string{"Adapter", "Target", "LUNID"} {
		if location[part] == "" {
			t.Errorf("the location %q has no %s", location, part)
		}
	}
	if c.has("ListDiskIDs") {
		want := map[string]string{"page83": page83, "serial_number": "vol-" + c.name}
		if diff := cmp.Diff(want, c.call("ListDiskIDs", nil).ofDisk("diskIDs", disk)); diff != "" {
			t.Errorf("ids of the disk (-want +got):\n%s", diff)
		}
	}
	if c.has("GetDiskNumberByName") {
		if got := c.call("GetDiskNumberByName",
			fields{"disk_name": page83}).get("disk_number").String(); got != decimal(disk) {
			t.Errorf("the disk with this page 83 identifier is %s, want %d", got, disk)
		}
	}
	if c.has("GetDiskStats") {
		if got := c.call("GetDiskStats", fields{"disk_number": disk}).get("total_bytes").Int(); got != gib {
			t.Errorf("the disk has %d bytes, want 1 GiB", got)
		}
		c.fail(codes.NotFound, "GetDiskStats", fields{"disk_number": noDisk})
	}
	if c.has("SetDiskState") {
		for _, online := range []bool{true, false, true} {
			c.call("SetDiskState", fields{"disk_number": disk, "is_online": online})
			if got := c.call("GetDiskState", fields{"disk_number": disk}).get("is_online").Bool(); got != online {
				t.Errorf("GetDiskState says online: %t, want %t", got, online)
			}
			if got := !diskOfNode(t, disk).Offline; got != online {
				t.Errorf("the node's disk is online: %t, want %t", got, online)
			}
		}
	}

	for range 2 { // the second time it is partitioned already
		c.call("PartitionDisk", fields{"disk_number": disk})
		if ids := newest(t, "volume").call("ListVolumesOnDisk",
			fields{"disk_number": disk}).texts("volume_ids"); len(ids) != 1 {
			t.Errorf("the partitioned disk has the volumes %q, want one", ids)
		}
	}

	sim(t, "disk", "grow", decimal(disk), "--size", "2Gi")
	c.call("Rescan", nil)
	if got := diskOfNode(t, disk).SeenBytes; got != 2*gib {
		t.Errorf("after Rescan Windows sees %d bytes, want 2 GiB", got)
	}
}

func testVolume(t *testing.T, c *client) {
	disk := attach(t)
	defer sim(t, "disk", "detach", decimal(disk))
	newest(t, "disk").call("PartitionDisk", fields{"disk_number": disk})

	volumes := c.call("ListVolumesOnDisk", fields{"disk_number": disk}).texts("volume_ids")
	if len(volumes) != 1 {
		t.Fatalf("the disk has the volumes %q, want one", volumes)
	}
	volume := fields{"volume_id": volumes[0]}
	if c.call("IsVolumeFormatted", volume).get("formatted").Bool() {
		t.Error("a raw volume counts as formatted")
	}
	c.call("FormatVolume", volume)
	if !c.call("IsVolumeFormatted", volume).get("formatted").Bool() {
		t.Error("the volume isn't formatted after FormatVolume")
	}
	c.fail(codes.FailedPrecondition, "FormatVolume", volume)

	path := kubeletPath + `\` + c.name
	at := fields{"volume_id": volumes[0], "target_path": path}
	for range 2 { // the second time it is mounted there already
		c.call("MountVolume", at)
		if e := entryOfNode(t, path); !e.Reparse {
			t.Errorf("at the mount point is %+v", e)
		}
	}
	sim(t, "file", "write", path+`\data`, "--text", "of a pod")
	if c.has("GetVolumeIDFromTargetPath") {
		if got := c.call("GetVolumeIDFromTargetPath",
			fields{"target_path": path}).get("volume_id").String(); got != volumes[0] {
			t.Errorf("at the mount point is %s, want %s", got, volumes[0])
		}
	}
	if c.has("GetClosestVolumeIDFromTargetPath") {
		below := fields{"target_path": path + `\data`}
		if got := c.call("GetClosestVolumeIDFromTargetPath", below).get("volume_id").String(); got != volumes[0] {
			t.Errorf("closest to the file is %s, want %s", got, volumes[0])
		}
	}
	if c.has("GetDiskNumberFromVolumeID") {
		if got := c.call("GetDiskNumberFromVolumeID", volume).get("disk_number").String(); got != decimal(disk) {
			t.Errorf("the volume lies on disk %s, want %d", got, disk)
		}
	}
	if c.has("GetVolumeStats") {
		before := c.call("GetVolumeStats", volume)
		if total, used := before.get("total_bytes").Int(), before.get("used_bytes").Int(); total <= gib/2 || total >= gib ||
			used <= 0 || used >= total {
			t.Errorf("a fresh volume on a disk of 1 GiB has %d bytes, %d of them used", total, used)
		}
	}
	if c.has("WriteVolumeCache") {
		c.call("WriteVolumeCache", volume)
		sim(t, "power-loss")
		if got := sim(t, "file", "read", path+`\data`); got != "of a pod" {
			t.Errorf("after a loss of power the flushed data read %q", got)
		}
	}

	sim(t, "disk", "grow", decimal(disk), "--size", "2Gi")
	c.call("ResizeVolume", fields{"volume_id": volumes[0], "size_bytes": int64(0)})
	if got := newest(t, "volume").call("GetVolumeStats", volume).get("total_bytes").Int(); got <= gib || got >= 2*gib {
		t.Errorf("the volume on a disk grown to 2 GiB has %d bytes", got)
	}

	for range 2 { // the second time it isn't mounted any more
		c.call("UnmountVolume", at)
		if e := entryOfNode(t, path); e.Reparse || !e.Directory {
			t.Errorf("after the unmount at the path is %+v, want a directory", e)
		}
	}
	c.fail(codes.InvalidArgument, "MountVolume", fields{"volume_id": "-1", "target_path": path})
}

func testFilesystem(t *testing.T, c *client) {
	root := kubeletPath + `\files-` + c.name
	dir, link := root+`\dir`, root+`\link`
	exists := func(path string) bool {
		t.Helper()
		return c.call("PathExists", fields{"path": path}).get("exists").Bool()
	}
	// The path context of the oldest versions says on which side of the kubelet
	// directory a path lies.
	const pod = protoreflect.EnumNumber(1)
	mkdir := fields{"path": dir}
	if field(c.method("Mkdir").Input(), "context") != nil {
		mkdir["context"] = pod
	}

	if exists(dir) {
		t.Error("a directory that nobody made exists")
	}
	c.call("Mkdir", mkdir)
	if !exists(dir) || !entryOfNode(t, dir).Directory {
		t.Error("the directory doesn't exist after Mkdir")
	}
	sim(t, "file", "write", dir+`\file`, "--text", "text")

	c.call("CreateSymlink", fields{"source_path": dir, "target_path": link})
	if e := entryOfNode(t, link); !e.Reparse {
		t.Errorf("at the link is %+v", e)
	}
	if got := sim(t, "file", "read", link+`\file`); got != "text" {
		t.Errorf("behind the link the file reads %q", got)
	}
	for path, want := range map[string]bool{link: true, dir: false} {
		if got := c.call("IsSymlink", fields{"path": path}).get("is_symlink").Bool(); got != want {
			t.Errorf("%s is a link: %t, want %t", path, got, want)
		}
	}

	c.fail(codes.FailedPrecondition, "Rmdir", fields{"path": dir})
	c.call("Rmdir", fields{"path": link, "force": true})
	if exists(link) || !exists(dir+`\file`) {
		t.Error("Rmdir of a link doesn't remove just the link")
	}
	if c.has("RmdirContents") {
		c.call("RmdirContents", fields{"path": dir})
		if exists(dir+`\file`) || !exists(dir) {
			t.Error("RmdirContents doesn't remove just the contents")
		}
	}
	for range 2 { // with force what is missing is success
		c.call("Rmdir", fields{"path": root, "force": true})
		if e := entryOfNode(t, root); e != (simEntry{}) {
			t.Errorf("after Rmdir at the path is %+v", e)
		}
	}
	for _, path := range []string{`C:\Windows`, `\\server\share`, kubeletPath + `\..\..\..\Windows`} {
		c.fail(codes.InvalidArgument, "Mkdir", fields{"path": path})
	}
}

func decimal(disk uint32) string { return strconv.FormatUint(uint64(disk), 10) }
