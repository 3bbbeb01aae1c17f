// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
)

const (
	driversGroup = "drivers"
	// driversVersion is what shipped drivers use, and v1alpha2 for iSCSI.
	driversVersion = "v1"
)

// driverChecks make the calls of shipped drivers in their order, each step twice, as
// kubelet may repeat it.
var driverChecks = []Check{
	driver("ebs", "AWS EBS's driver finds the disk by its serial number, and takes the text of an error for \"not "+
		"mounted yet\".", newEBS),
	driver("azure-disk", "Azure Disk's driver never brings a disk online, and unmounts by removing the mount point.",
		newAzureDisk),
	driver("gce-pd", "GCE PD's driver hands over kubelet's paths without a drive.", newGCEPD),
	driver("smb", "The SMB driver maps the share with a link at the staging path.", newSMB),
	driver("iscsi", "A driver for local iSCSI volumes insists on one disk and one volume, and removes the target path "+
		"without force.", newISCSI),
}

func driver(name, promise string, newSequence func(*trial) sequence) Check {
	return Check{
		Name: "drivers." + name, Group: driversGroup, Promise: promise,
		run: func(t *trial) {
			s := newSequence(t)
			twice := func(step string, life int, f func() error) {
				for range 2 {
					if err := f(); err != nil {
						t.failf("%s, in life %d: %v", step, life, err)
					}
				}
			}
			for life := 1; life <= 2; life++ {
				twice("stage", life, func() error {
					if s.makeStaging && !t.exists(s.staging) {
						t.do("Mkdir", fields{"path": s.staging})
					}
					return s.Stage(s.drive + s.staging[2:])
				})
				twice("publish", life, func() error { return s.Publish(s.drive+s.staging[2:], s.drive+s.target[2:]) })
				t.want(t.exists(s.target), "nothing is at the target path after publishing, in life %d", life)
				t.want(t.do("IsSymlink", fields{"path": s.target}).is("isLink"),
					"the target path is no link that leads somewhere, in life %d", life)
				twice("unpublish", life, func() error { return s.Unpublish(s.drive + s.target[2:]) })
				t.want(!t.exists(s.target), "something is at the target path after unpublishing, in life %d", life)
				twice("unstage", life, func() error { return s.Unstage(s.drive + s.staging[2:]) })
				_, err := t.call("GetVolumeIDFromTargetPath", fields{"path": s.staging})
				t.want(err != nil, "a volume is at the staging path after unstaging, in life %d", life)
			}
		},
	}
}

// sequence is the life of a volume with a driver.
type sequence struct {
	drivers.Driver
	staging, target string // with a drive
	drive           string // how the paths begin that the driver gets
	// makeStaging: kubelet makes the directory for the driver. The published daemon makes none.
	makeStaging bool
}

// newSequence begins the life of a volume of a disk; of none if d is nil. As kubelet does, it makes
// the directories that the paths are in.
func (t *trial) newSequence(d *disk) sequence {
	dir := t.dir()
	t.do("Mkdir", fields{"path": dir + `\pod`})
	s := sequence{staging: dir + `\globalmount`, target: dir + `\pod\mount`, drive: dir[:2]}
	if d != nil {
		t.unmountLater(d.volume, s.staging)
		t.later(func() { t.online(d) })
	}
	return s
}

func newEBS(t *trial) sequence {
	d := t.volumeDisk()
	s := t.newSequence(d)
	s.Driver = drivers.NewEBS(driverNode{t}, d.has)
	return s
}

func newAzureDisk(t *trial) sequence {
	d := t.volumeDisk()
	if _, ok := t.byDisk("ListDiskLocations", "locations")[d.number]; !ok {
		t.notApplicable("disk %s has no SCSI address, by which the driver finds it", d.number)
	}
	s := t.newSequence(d)
	s.Driver = drivers.NewAzureDisk(driverNode{t},
		func(number uint32, _ string) bool { return fmt.Sprint(number) == d.number },
		!t.Published) // which takes no number
	return s
}

func newGCEPD(t *trial) sequence {
	d := t.volumeDisk()
	s := t.newSequence(d)
	s.Driver, s.drive, s.makeStaging = drivers.NewGCEPD(driverNode{t}, d.has), "", true
	return s
}

// has reports whether the identifiers are those of the disk.
func (d *disk) has(ids drivers.DiskIDs) bool { return ids.SerialNumber == d.id || ids.Page83 == d.id }

func newSMB(t *trial) sequence {
	s := t.newSequence(nil)
	t.mapping(s.staging) // or it isn't applicable
	t.unmapLater()
	s.Driver = drivers.NewSMB(driverNode{t}, drivers.SMBVolume{
		Source: strings.ReplaceAll(t.Share, `\`, "/"), ID: "volume", Volumes: new(drivers.VolumesOnShares),
		Credentials: func() (string, string) { return t.ShareUsername, t.SharePassword.Reveal() }, Container: container{t},
	})
	return s
}

func newISCSI(t *trial) sequence {
	if !t.Erase {
		t.notApplicable("the disk of the target would be erased: confirm that with --erase-disks")
	}
	t.login()
	s := t.newSequence(nil)
	t.later(func() {
		if a, err := t.call("GetVolumeIDFromTargetPath", fields{"path": s.staging}); err == nil {
			t.do("UnmountVolume", fields{"volume": a.text("volume"), "path": s.staging})
		}
	})
	s.Driver = drivers.NewLocalISCSI(driverNode{t}, t.portal().address, uint32(t.portal().port), t.Target)
	return s
}
