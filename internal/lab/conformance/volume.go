// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var volumeID = regexp.MustCompile(`^(?i)\\\\\?\\Volume\{[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\}\\$`)

var volumeChecks = slices.Concat(contentChecks, mountChecks, sizeChecks, volumePathChecks)

// contentChecks are about volumes and what is on them.
var contentChecks = []Check{
	{
		Name: "volume.format", Group: "volume", Methods: []string{"FormatVolume", "IsVolumeFormatted"},
		Promise: "A raw volume isn't formatted; after FormatVolume it is, and can be used.",
		run: func(t *trial) {
			d := t.rawVolume()
			t.want(!t.do("IsVolumeFormatted", fields{"volume": d.volume}).is("formatted"), "the raw volume %s is formatted",
				d.volume)
			t.do("FormatVolume", fields{"volume": d.volume})
			t.want(t.do("IsVolumeFormatted", fields{"volume": d.volume}).is("formatted"),
				"%s isn't formatted after FormatVolume", d.volume)
			d.state = formatted
		},
	},
	{
		Name: "volume.format-refused", Group: "volume", Methods: []string{"FormatVolume", "IsVolumeFormatted"}, Better: true,
		Promise: "A volume with a file system isn't formatted again.",
		run: func(t *trial) {
			d := t.volumeDisk()
			t.refused(codes.FailedPrecondition, "FormatVolume", fields{"volume": d.volume})
			t.want(t.do("IsVolumeFormatted", fields{"volume": d.volume}).is("formatted"), "%s isn't formatted any more",
				d.volume)
		},
	},
	{
		Name: "volume.list", Group: "volume", Methods: []string{"ListVolumesOnDisk"},
		Promise: `ListVolumesOnDisk gives the volumes of a disk as \\?\Volume{guid}\.`,
		run: func(t *trial) {
			d := t.volumeDisk()
			volumes := t.volumes(d)
			t.want(slices.Contains(volumes, d.volume), "disk %s has the volumes %q, not %s", d.number, volumes, d.volume)
			for _, v := range volumes {
				t.want(volumeID.MatchString(v), "%q is no volume id", v)
			}
		},
	},
	{
		Name: "volume.list-partition", Group: "volume", Methods: []string{"ListVolumesOnDisk"}, only: partitionNumbers,
		Promise: "ListVolumesOnDisk with the number of a partition gives the volume of that partition only; 0 means all.",
		run: func(t *trial) {
			d := t.volumeDisk()
			found := 0
			for partition := 1; partition <= 4; partition++ {
				a, err := t.call("ListVolumesOnDisk", fields{"disk": d.number, "partition": partition})
				if err == nil && slices.Equal(a.texts("volumes"), []string{d.volume}) {
					found++
				}
			}
			t.want(found == 1, "the volume %s is in %d partitions, want one", d.volume, found)
		},
	},
	{
		Name: "volume.list-unknown-disk", Group: "volume", Methods: []string{"ListVolumesOnDisk"},
		Promise: "The volumes of a disk that doesn't exist are not found.",
		run:     func(t *trial) { t.refused(codes.NotFound, "ListVolumesOnDisk", fields{"disk": unknownDisk}) },
	},
	{
		Name: "volume.list-bad-number", Group: "volume", Methods: []string{"ListVolumesOnDisk"}, Better: true,
		only:    func(s protoreflect.ServiceDescriptor) bool { return !partitionNumbers(s) },
		Promise: "In versions with disk numbers as texts, a text that isn't a number of 32 bits is refused.",
		run: func(t *trial) {
			for _, number := range []string{"", "x", "-1", "4294967296"} {
				t.refused(codes.InvalidArgument, "ListVolumesOnDisk", fields{"disk": number})
			}
		},
	},
	{
		Name: "volume.disk-number", Group: "volume", Methods: []string{"GetDiskNumberFromVolumeID"},
		Promise: "GetDiskNumberFromVolumeID gives the number of the volume's disk.",
		run: func(t *trial) {
			d := t.volumeDisk()
			got := fmt.Sprint(t.do("GetDiskNumberFromVolumeID", fields{"volume": d.volume}).number("disk"))
			t.want(got == d.number, "volume %s is on disk %s, not %s", d.volume, d.number, got)
		},
	},
	{
		Name: "volume.write-cache", Group: "volume", Methods: []string{"WriteVolumeCache"},
		Promise: "WriteVolumeCache writes out what Windows holds back, and may be repeated.",
		run: func(t *trial) {
			d := t.volumeDisk()
			for range 2 {
				t.do("WriteVolumeCache", fields{"volume": d.volume})
			}
		},
	},
	{
		Name: "volume.unknown-id", Group: "volume", Methods: []string{"IsVolumeFormatted"},
		Promise: "A volume id that no volume has is not found, in each call.",
		run: func(t *trial) {
			path := t.dir()
			for _, method := range volumeMethods {
				if t.has(method) && method != "UnmountVolume" { // not mounted there is a success
					t.refused(codes.NotFound, method, volumeRequest(method, unknownVolume, path))
				}
			}
		},
	},
	{
		Name: "volume.bad-id", Group: "volume", Methods: []string{"IsVolumeFormatted"},
		Promise: `A text that isn't of the form \\?\Volume{guid}\ is refused, in each call.`,
		run: func(t *trial) {
			path := t.dir()
			for _, id := range []string{"", "-1", "x", `\\?\Volume{x}\`, strings.TrimSuffix(unknownVolume, `}\`), `\\.\none`} {
				for _, method := range volumeMethods {
					if t.has(method) {
						t.refused(codes.InvalidArgument, method, volumeRequest(method, id, path))
					}
				}
			}
		},
	},
}

// volumeMethods are those that take a volume id.
var volumeMethods = []string{
	"IsVolumeFormatted", "FormatVolume", "MountVolume", "UnmountVolume", "ResizeVolume", "GetVolumeStats",
	"GetDiskNumberFromVolumeID", "WriteVolumeCache",
}

// volumeRequest is a request of one of them.
func volumeRequest(method, id, path string) fields {
	switch method {
	case "MountVolume", "UnmountVolume":
		return fields{"volume": id, "path": path}
	case "ResizeVolume":
		return fields{"volume": id, "size": 0}
	}
	return fields{"volume": id}
}

// partitionNumbers are versions that list by partition.
func partitionNumbers(service protoreflect.ServiceDescriptor) bool {
	return fieldOf(methodOf(service, "ListVolumesOnDisk").Input(), "partition") != nil
}

// has reports whether the version under trial has a method.
func (t *trial) has(method string) bool { return t.hasField(method, "") }

// hasField reports whether it has a method with a field; any if the word is empty.
func (t *trial) hasField(method, word string) bool {
	m := methodOf(t.service(), method)
	return m != nil && (word == "" || fieldOf(m.Input(), word) != nil)
}
