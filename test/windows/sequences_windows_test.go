// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"fmt"
	"strconv"
	"testing"
)

// The sequences of calls of drivers whose storage isn't attached, once each, with the
// service restarted and the node too between the steps. Each call is made twice, as
// it is when kubelet loses patience. What becomes of them when they are cut off is
// tested by test/published.

// pod is where a volume is staged and published for a pod.
type pod struct{ staging, target string }

// newPod makes, as kubelet does, the directories above its paths.
func newPod(t testing.TB, name string) pod {
	t.Helper()
	p := pod{kubeletPath + `\plugins\` + name + `\globalmount`, kubeletPath + `\pods\` + name + `\mount`}
	sim(t, "file", "mkdir", kubeletPath+`\plugins\`+name)
	sim(t, "file", "mkdir", kubeletPath+`\pods\`+name)
	return p
}

// twice makes a call twice and returns the second answer.
func (c *client) twice(method string, request fields) answer {
	c.t.Helper()
	c.call(method, request)
	return c.call(method, request)
}

func TestSMBSequence(t *testing.T) {
	s := installSimulated(t)
	s.start()
	defer wantNoSecrets(t, s)
	files, smb := newest(t, "filesystem"), newest(t, "smb")
	p := newPod(t, "smb")
	source := simShare(t, "nas.example.com", passwordMark+"1")

	remove := func(path string) {
		t.Helper()
		if files.twice("PathExists", fields{"path": path}).get("exists").Bool() {
			files.twice("IsSymlink", fields{"path": path})
			files.twice("Rmdir", fields{"path": path, "force": true})
		}
	}
	stage := func() {
		t.Helper()
		remove(p.staging)
		files.twice("PathExists", fields{"path": kubeletPath + `\plugins\smb`})
		smb.twice("NewSmbGlobalMapping", fields{
			"remote_path": source, "local_path": p.staging, "username": simUser, "password": passwordMark + "1",
		})
	}
	publish := func() {
		t.Helper()
		remove(p.target)
		files.twice("CreateSymlink", fields{"source_path": p.staging, "target_path": p.target})
	}
	read := func(after string) {
		t.Helper()
		if got := sim(t, "file", "read", p.target+`\data`); got != "of a pod" {
			t.Errorf("after %s the pod's file reads %q", after, got)
		}
	}

	stage()
	publish()
	sim(t, "file", "write", p.target+`\data`, "--text", "of a pod")
	s.kill()
	s.start()
	read("a crash of the daemon")
	sim(t, "reboot") // which ends mappings
	stage()
	publish()
	read("a restart of the node")

	files.twice("Rmdir", fields{"path": p.target, "force": true})
	smb.call("RemoveSmbGlobalMapping", fields{"remote_path": simReadLink(t, p.staging)})
	files.twice("Rmdir", fields{"path": p.staging, "force": true})
	for _, path := range []string{p.staging, p.target} {
		if e := entryOfNode(t, path); e != (simEntry{}) {
			t.Errorf("in the end at %s is %+v", path, e)
		}
	}
}

func TestISCSISequence(t *testing.T) {
	s := installSimulated(t)
	s.start()
	disks, volumes, files, iscsi := newest(t, "disk"), newest(t, "volume"), newest(t, "filesystem"), newest(t, "iscsi")
	p := newPod(t, "iscsi")
	const iqn = "iqn.2026-01.example:pvc-1"
	sim(t, "iscsi", "target", "add", iqn, "--portal", simPortal)
	sim(t, "iscsi", "lun", "add", iqn, "--size", "1Gi", "--offline")
	at := fields{"target_portal": fields{"target_address": simPortal, "target_port": uint32(3260)}}
	target := fields{"target_portal": at["target_portal"], "iqn": iqn}

	stage := func() {
		t.Helper()
		iscsi.twice("AddTargetPortal", at)
		if found := iscsi.twice("DiscoverTargetPortal", at).texts("iqns"); fmt.Sprint(found) != "["+iqn+"]" {
			t.Fatalf("the portal has the targets %q", found)
		}
		iscsi.twice("ConnectTarget", target)
		ids := iscsi.twice("GetTargetDisks", target).texts("diskIDs")
		if len(ids) != 1 {
			t.Fatalf("the target has the disks %q, want one", ids)
		}
		number, err := strconv.ParseUint(ids[0], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		disk := uint32(number)
		disks.twice("SetDiskState", fields{"disk_number": disk, "is_online": true})
		disks.twice("PartitionDisk", fields{"disk_number": disk})
		volume := fields{"volume_id": volumes.twice("ListVolumesOnDisk", fields{"disk_number": disk}).texts("volume_ids")[0]}
		if !volumes.twice("IsVolumeFormatted", volume).get("formatted").Bool() {
			volumes.call("FormatVolume", volume) // the second time it would be refused
		}
		files.twice("Mkdir", fields{"path": p.staging})
		volumes.twice("MountVolume", fields{"volume_id": volume["volume_id"], "target_path": p.staging})
	}
	publish := func() {
		t.Helper()
		if files.twice("PathExists", fields{"path": p.target}).get("exists").Bool() {
			return
		}
		files.twice("CreateSymlink", fields{"source_path": p.staging, "target_path": p.target})
	}
	read := func(after string) {
		t.Helper()
		if got := sim(t, "file", "read", p.target+`\data`); got != "of a pod" {
			t.Errorf("after %s the pod's file reads %q", after, got)
		}
	}

	stage()
	publish()
	sim(t, "file", "write", p.target+`\data`, "--text", "of a pod")
	s.kill()
	s.start()
	read("a crash of the daemon")
	sim(t, "reboot") // which ends sessions
	stage()
	publish()
	read("a restart of the node")

	files.twice("Rmdir", fields{"path": p.target, "force": true})
	volume := volumes.call("GetVolumeIDFromTargetPath", fields{"target_path": p.staging}).get("volume_id").String()
	volumes.twice("UnmountVolume", fields{"volume_id": volume, "target_path": p.staging})
	number, err := strconv.ParseUint(volumes.twice("GetDiskNumberFromVolumeID", fields{"volume_id": volume}).get("disk_number").String(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	disks.twice("SetDiskState", fields{"disk_number": uint32(number), "is_online": false})
	iscsi.twice("DisconnectTarget", target)
	if ids := iscsi.call("GetTargetDisks", target).texts("diskIDs"); len(ids) != 0 {
		t.Errorf("in the end the target has the disks %q", ids)
	}
}
