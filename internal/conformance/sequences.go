// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"
)

func newEBS(t *trial) sequence {
	d := t.volumeDisk()
	staging, target := t.paths()
	t.unmountLater(d.volume, staging)
	t.later(func() { t.online(d) })
	at := fields{"path": staging}
	mounted := func() bool {
		a, err := t.call("GetVolumeIDFromTargetPath", at)
		if err != nil {
			t.want(strings.Contains(err.Error(), notMountedText), "the driver takes the error for a failure, since it hasn't %q: %v", notMountedText, err)
			return false
		}
		t.do("GetDiskNumberFromVolumeID", fields{"volume": a.text("volume")})
		return true
	}
	return sequence{
		staging: staging, target: target,
		stage: func() {
			t.wantID(d)
			if !t.exists(staging) {
				t.do("Mkdir", at)
			}
			if mounted() {
				return
			}
			volume := t.prepare(d, true)
			t.do("MountVolume", fields{"volume": volume, "path": staging})
			t.do("Rescan", nil)
			t.do("GetDiskStats", fields{"disk": d.number})
			volume = t.volumeAt(staging)
			t.do("GetVolumeStats", fields{"volume": volume})
			t.do("Rescan", nil)
			t.do("ResizeVolume", fields{"volume": t.volumeAt(staging), "size": 0})
		},
		publish:   func() { t.relink(staging, target) },
		unpublish: func() { t.do("Rmdir", fields{"path": target, "force": true}) },
		unstage: func() {
			if !mounted() {
				return
			}
			volume := t.volumeAt(staging)
			number := t.do("GetDiskNumberFromVolumeID", fields{"volume": volume}).number("disk")
			t.want(fmt.Sprint(number) == d.number, "the volume is on disk %d, not %s", number, d.number)
			t.do("UnmountVolume", fields{"volume": volume, "path": staging})
			t.do("Rmdir", fields{"path": staging, "force": true})
			t.do("SetDiskState", fields{"disk": number, "online": false})
		},
	}
}

func newAzureDisk(t *trial) sequence {
	d := t.volumeDisk()
	staging, target := t.paths()
	t.unmountLater(d.volume, staging)
	return sequence{
		staging: staging, target: target,
		stage: func() {
			t.do("Rescan", nil)
			locations, err := t.do("ListDiskLocations", nil).byDisk("locations")
			t.want(err == nil, "%v", err)
			if _, ok := locations[d.number]; !ok {
				t.notApplicable("disk %s has no SCSI address, by which the driver finds it", d.number)
			}
			if t.exists(staging) && t.do("IsSymlink", fields{"path": staging}).is("isLink") {
				return
			}
			t.do("MountVolume", fields{"volume": t.prepare(d, false), "path": staging})
		},
		publish:   func() { t.relink(staging, target) },
		unpublish: func() { t.do("Rmdir", fields{"path": target, "force": true}) },
		unstage: func() {
			if a, err := t.call("GetVolumeIDFromTargetPath", fields{"path": staging}); err == nil {
				t.do("WriteVolumeCache", fields{"volume": a.text("volume")})
			}
			t.do("Rmdir", fields{"path": staging, "force": true})
		},
	}
}

func newGCEPD(t *trial) sequence {
	d := t.volumeDisk()
	staging, target := t.paths()
	t.unmountLater(d.volume, staging)
	t.later(func() { t.online(d) })
	bare := withoutDrive(staging)
	return sequence{
		staging: staging, target: target,
		stage: func() {
			t.wantID(d)
			if t.isLink(bare) {
				return
			}
			t.do("GetDiskStats", fields{"disk": d.number})
			// The published daemon makes no directories; kubelet has made this one.
			if !t.exists(staging) {
				t.do("Mkdir", fields{"path": staging})
			}
			t.do("MountVolume", fields{"volume": t.prepare(d, true), "path": bare})
			t.do("ResizeVolume", fields{"volume": t.volumeAt(bare), "size": 0})
		},
		publish: func() {
			if t.isLink(withoutDrive(target)) {
				return
			}
			if t.exists(target) {
				t.do("Rmdir", fields{"path": target, "force": true})
			}
			t.do("CreateSymlink", fields{"source": staging, "target": target})
		},
		unpublish: func() { t.do("Rmdir", fields{"path": target, "force": true}) },
		unstage: func() {
			if !t.exists(staging) {
				return
			}
			volume := t.volumeAt(bare)
			t.do("UnmountVolume", fields{"volume": volume, "path": bare})
			t.do("Rmdir", fields{"path": staging, "force": true})
			number := t.do("GetDiskNumberFromVolumeID", fields{"volume": volume}).number("disk")
			t.do("SetDiskState", fields{"disk": number, "online": false})
		},
	}
}

func newSMB(t *trial) sequence {
	staging, target := t.paths()
	request := t.mapping(staging)
	t.unmapLater()
	mapped := false // the driver counts
	return sequence{
		staging: staging, target: target,
		stage: func() {
			if t.exists(staging) && t.do("IsSymlink", fields{"path": staging}).is("isLink") {
				return
			}
			t.do("Rmdir", fields{"path": staging, "force": true})
			parent := staging[:strings.LastIndex(staging, `\`)]
			if !t.exists(parent) {
				t.do("Mkdir", fields{"path": parent})
			}
			t.do("NewSmbGlobalMapping", request)
			mapped = true
		},
		publish:   func() { t.relink(staging, target) },
		unpublish: func() { t.do("Rmdir", fields{"path": target, "force": true}) },
		unstage: func() {
			if mapped {
				t.do("RemoveSmbGlobalMapping", fields{"remote": t.Share})
				mapped = false
			}
			t.do("Rmdir", fields{"path": staging, "force": true})
		},
	}
}

func newISCSI(t *trial) sequence {
	if !t.Erase {
		t.notApplicable("the disk of the target would be erased: confirm that with --erase-disks")
	}
	login := t.login()
	staging, target := t.paths()
	at := fields{"path": staging}
	unmount := func() string {
		a, err := t.call("GetVolumeIDFromTargetPath", at)
		if err != nil {
			return ""
		}
		t.do("UnmountVolume", fields{"volume": a.text("volume"), "path": staging})
		return a.text("volume")
	}
	t.later(func() { unmount() })
	return sequence{
		staging: staging, target: target,
		stage: func() {
			t.do("DiscoverTargetPortal", fields{"portal": login["portal"]})
			t.do("ConnectTarget", login)
			numbers := t.targetDisks()
			t.want(len(numbers) == 1, "the target has the disks %q, and the driver insists on one", numbers)
			t.do("SetDiskState", fields{"disk": numbers[0], "online": true})
			t.do("PartitionDisk", fields{"disk": numbers[0]})
			volumes := t.do("ListVolumesOnDisk", fields{"disk": numbers[0]}).texts("volumes")
			t.want(len(volumes) == 1, "the disk has the volumes %q, and the driver insists on one", volumes)
			if !t.do("IsVolumeFormatted", fields{"volume": volumes[0]}).is("formatted") {
				t.do("FormatVolume", fields{"volume": volumes[0]})
			}
			if !t.exists(staging) {
				t.do("Mkdir", at)
			}
			t.do("MountVolume", fields{"volume": volumes[0], "path": staging})
		},
		publish: func() {
			if t.exists(target) {
				if t.isLink(target) {
					return
				}
				t.do("Rmdir", fields{"path": target})
			}
			t.do("CreateSymlink", fields{"source": staging, "target": target})
		},
		unpublish: func() { t.do("Rmdir", fields{"path": target, "force": true}) },
		unstage: func() {
			if volume := unmount(); volume != "" {
				number := t.do("GetDiskNumberFromVolumeID", fields{"volume": volume}).number("disk")
				t.do("SetDiskState", fields{"disk": number, "online": false})
			}
			t.do("DisconnectTarget", t.target())
		},
	}
}
