// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var diskChecks = []Check{
	{
		Name: "disk.locations", Group: "disk", Methods: []string{"ListDiskLocations"},
		Promise: "ListDiskLocations gives each disk's Adapter, Bus, Target and LUNID as decimal texts.",
		run: func(t *trial) {
			locations := t.byDisk("ListDiskLocations", "locations")
			for number, location := range locations {
				for _, word := range []string{"Adapter", "Bus", "Target", "LUNID"} {
					text := location.text(word)
					_, err := strconv.ParseUint(text, 10, 32)
					t.want(err == nil || word == "Bus" && text == "", "%s of disk %s is %q", word, number, text)
				}
			}
			if len(t.disks) > 0 {
				t.want(len(locations) > 0, "there are disks, and no location")
			}
		},
	},
	{
		Name: "disk.locations-without-system", Group: "disk", Methods: []string{"ListDiskLocations"}, Better: true,
		Promise: "A disk that Windows runs from isn't among the locations, so that a driver that looks for a LUN can't " +
			"take it.",
		run: func(t *trial) {
			system := t.kubeletDisk()
			if system == "" {
				t.notApplicable("the daemon doesn't say which disk the kubelet directory is on")
			}
			locations := t.byDisk("ListDiskLocations", "locations")
			t.want(len(t.disks) == 0 || len(locations) > 0, "there are disks, and no location")
			_, found := locations[system]
			t.want(!found, "disk %s, with the kubelet directory, is among the locations", system)
		},
	},
	{
		Name: "disk.ids", Group: "disk", Methods: []string{"ListDiskIDs"},
		Promise: "ListDiskIDs gives the page 83 identifier and the serial number of each disk.",
		run: func(t *trial) {
			all := t.diskIDs()
			t.want(len(all) > 0, "there is no disk")
			for _, d := range t.disks {
				ids := all[d.number]
				t.want(ids.serial == d.id || ids.page83 == d.id, "disk %s has the identifiers %+v, not %q", d.number, ids, d.id)
			}
		},
	},
	{
		Name: "disk.ids-of-all-locations", Group: "disk", Methods: []string{"ListDiskIDs", "ListDiskLocations"},
		Promise: "Each disk that has a location is among those with identifiers.",
		run: func(t *trial) {
			locations := t.byDisk("ListDiskLocations", "locations")
			all := t.diskIDs()
			t.want(len(all) > 0, "there is no disk")
			for number := range locations {
				_, ok := all[number]
				t.want(ok, "disk %s has a location and no identifiers", number)
			}
		},
	},
	{
		Name: "disk.ids-of-offline", Group: "disk", Methods: []string{"ListDiskIDs"},
		Promise: "ListDiskIDs includes disks that are offline.",
		run: func(t *trial) {
			d := t.anyDisk()
			t.offline(d)
			_, ok := t.diskIDs()[d.number]
			t.want(ok, "disk %s is missing while it is offline", d.number)
		},
	},
	{
		Name: "disk.foreign-data", Group: "disk", Methods: []string{"PartitionDisk"}, Better: true,
		Promise: "PartitionDisk refuses a disk without partitions that has the data of another system, such as LUKS.",
		run:     func(t *trial) { t.foreignData() },
	},
	{
		Name: "disk.partition-raw", Group: "disk", Methods: []string{"PartitionDisk"},
		Promise: "PartitionDisk of a disk without partitions returns when the volume can be used: a list of volumes " +
			"right after isn't empty.",
		run: func(t *trial) {
			d := t.rawDisk()
			t.do("PartitionDisk", fields{"disk": d.number})
			volumes := t.do("ListVolumesOnDisk", fields{"disk": d.number}).texts("volumes")
			t.want(len(volumes) == 1, "disk %s has the volumes %q, want one", d.number, volumes)
			d.state, d.volume = partitioned, volumes[0]
		},
	},
	{
		Name: "disk.partition-twice", Group: "disk", Methods: []string{"PartitionDisk"},
		Promise: "PartitionDisk of a disk that is partitioned succeeds and leaves its volumes as they are.",
		run: func(t *trial) {
			d := t.partition(t.anyDisk())
			before := t.volumes(d)
			for range 2 {
				t.do("PartitionDisk", fields{"disk": d.number})
				after := t.volumes(d)
				t.want(slices.Equal(before, after), "disk %s had the volumes %q and has %q", d.number, before, after)
			}
		},
	},
	{
		Name: "disk.partition-offline", Group: "disk", Methods: []string{"PartitionDisk"},
		Promise: "PartitionDisk succeeds on an offline disk that is partitioned: drivers call it before they bring the " +
			"disk online.",
		run: func(t *trial) {
			d := t.partition(t.anyDisk())
			before := t.volumes(d)
			t.offline(d)
			t.do("PartitionDisk", fields{"disk": d.number})
			t.online(d)
			after := t.volumes(d)
			t.want(slices.Equal(before, after), "disk %s had the volumes %q and has %q", d.number, before, after)
		},
	},
	{
		Name: "disk.rescan", Group: "disk", Methods: []string{"Rescan"},
		Promise: "Rescan makes Windows look for new, removed and grown disks, and takes none away.",
		run: func(t *trial) {
			before := len(t.diskIDs())
			for range 2 {
				t.do("Rescan", nil)
			}
			after := len(t.diskIDs())
			t.want(after >= before, "there were %d disks and are %d", before, after)
		},
	},
	{
		Name: "disk.stats", Group: "disk", Methods: []string{"GetDiskStats"},
		Promise: "GetDiskStats gives the size of the disk in bytes.",
		run: func(t *trial) {
			d := t.anyDisk()
			size := t.do("GetDiskStats", fields{"disk": d.number}).number("total")
			t.want(size > 1<<20 && size%512 == 0, "disk %s has %d bytes", d.number, size)
		},
	},
	{
		Name: "disk.state", Group: "disk", Methods: []string{"SetDiskState", "GetDiskState"},
		Promise: "SetDiskState takes a disk offline and brings it online, and may be repeated; " +
			"GetDiskState says which it is.",
		run: func(t *trial) {
			d := t.anyDisk()
			t.later(func() { t.online(d) })
			for _, online := range []bool{false, false, true, true} {
				t.do("SetDiskState", fields{"disk": d.number, "online": online})
				got := t.do("GetDiskState", fields{"disk": d.number}).is("online")
				t.want(got == online, "after SetDiskState %t, GetDiskState says %t", online, got)
			}
		},
	},
	{
		Name: "disk.number-by-name", Group: "disk", Methods: []string{"GetDiskNumberByName"},
		Promise: "GetDiskNumberByName gives the number of the disk with a page 83 identifier.",
		run: func(t *trial) {
			d := t.anyDisk()
			if d.page83 == "" {
				t.notApplicable("disk %s has no page 83 identifier", d.number)
			}
			got := t.do("GetDiskNumberByName", fields{"disk_name": d.page83}).text("disk")
			t.want(got == d.number, "the disk with %q has the number %s, not %q", d.page83, d.number, got)
		},
	},
	{
		Name: "disk.unknown-name", Group: "disk", Methods: []string{"GetDiskNumberByName"},
		Promise: "A page 83 identifier that no disk has is not found.",
		run: func(t *trial) {
			t.refused(codes.NotFound, "GetDiskNumberByName", fields{"disk_name": "csi-proxy-conformance-none"})
		},
	},
	{
		Name: "disk.unknown-number", Group: "disk", Methods: []string{"PartitionDisk"},
		Promise: "A number that no disk has is not found, in each call.",
		run:     func(t *trial) { t.refusedDisk(codes.NotFound, unknownDisk) },
	},
	{
		Name: "disk.bad-number", Group: "disk", Methods: []string{"PartitionDisk"}, only: textNumbers,
		Promise: "In versions with disk numbers as texts, a text that isn't an unsigned decimal number is refused.",
		run: func(t *trial) {
			for _, number := range []string{"", "x", "-1", "1.5", "0x", "disk 1"} {
				t.refusedDisk(codes.InvalidArgument, number)
			}
		},
	},
	{
		Name: "disk.number-beyond-32-bits", Group: "disk", Methods: []string{"PartitionDisk"}, Better: true,
		only: textNumbers,
		Promise: "In versions with disk numbers as texts, a number beyond 32 bits is refused and doesn't stand for " +
			"another disk.",
		// The published daemon takes 4294967296 for disk 0. So this calls nothing that
		// could change that disk: it is partitioned already, and online.
		run: func(t *trial) { t.refusedDisk(codes.InvalidArgument, "4294967296") },
	},
}

// textNumbers are versions whose disk numbers are texts.
func textNumbers(service protoreflect.ServiceDescriptor) bool {
	return fieldOf(methodOf(service, "PartitionDisk").Input(), "disk").Kind() == protoreflect.StringKind
}

// refusedDisk calls all methods of the version that take a disk's number. None of them
// would change a disk that is in use, if it was mistaken for one.
func (t *trial) refusedDisk(want codes.Code, number string) {
	t.refused(want, "PartitionDisk", fields{"disk": number})
	for _, method := range []string{"GetDiskStats", "GetDiskState"} {
		if t.has(method) {
			t.refused(want, method, fields{"disk": number})
		}
	}
	if t.has("SetDiskState") {
		t.refused(want, "SetDiskState", fields{"disk": number, "online": true})
	}
}

func (t *trial) online(d *disk) { t.do("SetDiskState", fields{"disk": d.number, "online": true}) }

// offline takes a disk offline until the end of the trial.
func (t *trial) offline(d *disk) {
	t.later(func() { t.online(d) })
	t.do("SetDiskState", fields{"disk": d.number, "online": false})
}

// volumes returns the volumes of a disk in a stable order.
func (t *trial) volumes(d *disk) []string {
	return slices.Sorted(slices.Values(t.do("ListVolumesOnDisk", fields{"disk": d.number}).texts("volumes")))
}
