// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	driversGroup = "drivers"
	// driversVersion is what shipped drivers use, and v1alpha2 for iSCSI.
	driversVersion = "v1"
)

// driverChecks make the calls of shipped drivers in their order, each step twice, as
// kubelet may repeat it.
var driverChecks = []Check{
	driver("ebs", "AWS EBS's driver finds the disk by its serial number, and takes the text of an error for \"not mounted yet\".",
		[]string{
			"ListDiskIDs", "PathExists", "Mkdir", "GetVolumeIDFromTargetPath", "GetDiskNumberFromVolumeID", "PartitionDisk", "SetDiskState",
			"ListVolumesOnDisk", "IsVolumeFormatted", "MountVolume", "Rescan", "GetDiskStats", "GetVolumeStats", "ResizeVolume",
			"CreateSymlink", "Rmdir", "UnmountVolume",
		}, newEBS),
	driver("azure-disk", "Azure Disk's driver never brings a disk online, and unmounts by removing the mount point.",
		[]string{
			"Rescan", "ListDiskLocations", "PathExists", "IsSymlink", "PartitionDisk", "ListVolumesOnDisk", "IsVolumeFormatted", "MountVolume",
			"CreateSymlink", "Rmdir", "GetVolumeIDFromTargetPath", "WriteVolumeCache",
		}, newAzureDisk),
	driver("gce-pd", "GCE PD's driver hands over kubelet's paths without a drive.",
		[]string{
			"ListDiskIDs", "IsSymlink", "GetDiskStats", "PartitionDisk", "SetDiskState", "ListVolumesOnDisk", "IsVolumeFormatted", "MountVolume",
			"GetVolumeIDFromTargetPath", "ResizeVolume", "PathExists", "CreateSymlink", "Rmdir", "UnmountVolume", "GetDiskNumberFromVolumeID",
		}, newGCEPD),
	driver("smb", "The SMB driver maps the share with a link at the staging path.",
		[]string{"PathExists", "IsSymlink", "Rmdir", "Mkdir", "NewSmbGlobalMapping", "RemoveSmbGlobalMapping", "CreateSymlink"}, newSMB),
	driver("iscsi", "A driver for local iSCSI volumes insists on one disk and one volume, and removes the target path without force.",
		[]string{
			"DiscoverTargetPortal", "AddTargetPortal", "ConnectTarget", "GetTargetDisks", "SetDiskState", "PartitionDisk", "ListVolumesOnDisk",
			"IsVolumeFormatted", "PathExists", "Mkdir", "MountVolume", "CreateSymlink", "Rmdir", "GetVolumeIDFromTargetPath", "UnmountVolume",
			"DisconnectTarget",
		}, newISCSI),
}

func driver(name, promise string, methods []string, newSequence func(*trial) sequence) Check {
	return Check{
		Name: "drivers." + name, Group: driversGroup, Methods: methods, Promise: promise,
		run: func(t *trial) {
			s := newSequence(t)
			for life := 1; life <= 2; life++ {
				for range 2 {
					s.stage()
				}
				for range 2 {
					s.publish()
				}
				t.want(t.exists(s.target), "nothing is at the target path after publishing, in life %d", life)
				t.want(t.do("IsSymlink", fields{"path": s.target}).is("isLink"), "the target path is no link that leads somewhere, in life %d", life)
				for range 2 {
					s.unpublish()
				}
				t.want(!t.exists(s.target), "something is at the target path after unpublishing, in life %d", life)
				for range 2 {
					s.unstage()
				}
				_, err := t.call("GetVolumeIDFromTargetPath", fields{"path": s.staging})
				t.want(err != nil, "a volume is at the staging path after unstaging, in life %d", life)
			}
		},
	}
}

// sequence is the life of a volume with a driver.
type sequence struct {
	staging, target                    string // with a drive
	stage, publish, unpublish, unstage func()
}

// paths are the staging and target paths of a volume. As kubelet does, it makes the
// directories that they are in.
func (t *trial) paths() (staging, target string) {
	dir := t.dir()
	t.do("Mkdir", fields{"path": dir + `\pod`})
	return dir + `\globalmount`, dir + `\pod\mount`
}

// wantID looks for a disk as the drivers do that go by identifiers.
func (t *trial) wantID(d *disk) {
	ids := t.diskIDs()[d.number]
	t.want(ids.serial == d.id || ids.page83 == d.id, "disk %s has the identifiers %+v, not %q", d.number, ids, d.id)
}

// prepare partitions and formats a disk as needed, and returns its volume.
func (t *trial) prepare(d *disk, online bool) string {
	t.do("PartitionDisk", fields{"disk": d.number})
	if online {
		t.do("SetDiskState", fields{"disk": d.number, "online": true})
	}
	volumes := t.do("ListVolumesOnDisk", fields{"disk": d.number}).texts("volumes")
	t.want(len(volumes) > 0, "disk %s has no volumes: drivers crash on that", d.number)
	if !t.do("IsVolumeFormatted", fields{"volume": volumes[0]}).is("formatted") {
		t.do("FormatVolume", fields{"volume": volumes[0]})
	}
	return volumes[0]
}

// relink publishes as most drivers do.
func (t *trial) relink(staging, target string) {
	if t.exists(target) {
		t.do("Rmdir", fields{"path": target, "force": true})
	}
	t.isLink(target)
	t.do("CreateSymlink", fields{"source": staging, "target": target})
}

// isLink asks IsSymlink, and takes that nothing is there for no, as drivers do.
func (t *trial) isLink(path string) bool {
	a, err := t.call("IsSymlink", fields{"path": path})
	if err != nil {
		code := status.Code(err)
		t.want(code == codes.NotFound || t.Published, "IsSymlink %s: %v", path, err)
		return false
	}
	return a.is("isLink")
}
