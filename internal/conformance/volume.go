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

// notMountedText is what a shipped driver looks for in an error to learn that nothing is
// mounted at a path.
const notMountedText = "because it does not exist"

var volumeID = regexp.MustCompile(`^(?i)\\\\\?\\Volume\{[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\}\\$`)

var volumeChecks = []Check{
	{
		Name: "volume.format", Group: "volume", Methods: []string{"FormatVolume", "IsVolumeFormatted"},
		Promise: "A raw volume isn't formatted; after FormatVolume it is, and can be used.",
		run: func(t *trial) {
			d := t.rawVolume()
			t.want(!t.do("IsVolumeFormatted", fields{"volume": d.volume}).is("formatted"), "the raw volume %s is formatted", d.volume)
			t.do("FormatVolume", fields{"volume": d.volume})
			t.want(t.do("IsVolumeFormatted", fields{"volume": d.volume}).is("formatted"), "%s isn't formatted after FormatVolume", d.volume)
			d.state = formatted
		},
	},
	{
		Name: "volume.format-refused", Group: "volume", Methods: []string{"FormatVolume", "IsVolumeFormatted"}, Better: true,
		Promise: "A volume with a file system isn't formatted again.",
		run: func(t *trial) {
			d := t.volumeDisk()
			t.refused(codes.FailedPrecondition, "FormatVolume", fields{"volume": d.volume})
			t.want(t.do("IsVolumeFormatted", fields{"volume": d.volume}).is("formatted"), "%s isn't formatted any more", d.volume)
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
		Name: "volume.mount", Group: "volume", Methods: []string{"MountVolume", "UnmountVolume"},
		Promise: "MountVolume presents the volume at an empty directory, and may be repeated; after UnmountVolume the directory is there and no mount point.",
		run: func(t *trial) {
			d, path := t.volumeDisk(), t.dir()
			t.unmountLater(d.volume, path)
			for range 2 {
				t.do("MountVolume", fields{"volume": d.volume, "path": path})
				t.wantMounted(d, path)
			}
			t.do("UnmountVolume", fields{"volume": d.volume, "path": path})
			t.want(t.exists(path), "the directory of the mount point is gone")
			_, err := t.call("GetVolumeIDFromTargetPath", fields{"path": path})
			t.want(err != nil, "the volume is mounted after UnmountVolume")
		},
	},
	{
		Name: "volume.mount-makes-directory", Group: "volume", Methods: []string{"MountVolume"}, Better: true,
		Promise: "MountVolume makes the directory if it is missing.",
		run: func(t *trial) {
			d, path := t.volumeDisk(), t.dir()+`\parent\missing`
			t.mountAt(d, path)
			t.wantMounted(d, path)
		},
	},
	{
		Name: "volume.mount-not-empty", Group: "volume", Methods: []string{"MountVolume"},
		Promise: "A directory that isn't empty isn't taken for a mount point.",
		run: func(t *trial) {
			d, path := t.volumeDisk(), t.dir()
			t.do("Mkdir", fields{"path": path + `\child`})
			t.unmountLater(d.volume, path)
			t.refused(codes.FailedPrecondition, "MountVolume", fields{"volume": d.volume, "path": path})
			t.want(t.exists(path+`\child`), "what was in the directory is gone")
		},
	},
	{
		Name: "volume.mount-occupied", Group: "volume", Methods: []string{"MountVolume", "UnmountVolume"},
		Promise: "Where another volume is mounted, MountVolume and UnmountVolume are refused, and the other stays.",
		run: func(t *trial) {
			one, other := t.twoVolumes()
			path := t.mount(one)
			t.unmountLater(other.volume, path)
			t.refused(codes.FailedPrecondition, "MountVolume", fields{"volume": other.volume, "path": path})
			t.refused(codes.FailedPrecondition, "UnmountVolume", fields{"volume": other.volume, "path": path})
			t.wantMounted(one, path)
		},
	},
	{
		Name: "volume.mount-system", Group: "volume", Methods: []string{"MountVolume"}, Better: true, Crashes: true,
		Promise: "A volume that holds the kubelet directory, or that Windows runs from, isn't presented anywhere.",
		run: func(t *trial) {
			path := t.dir()
			system := t.do("GetClosestVolumeIDFromTargetPath", fields{"path": path}).text("volume")
			t.unmountLater(system, path)
			t.refused(codes.FailedPrecondition, "MountVolume", fields{"volume": system, "path": path})
		},
	},
	{
		Name: "volume.unmount-twice", Group: "volume", Methods: []string{"UnmountVolume"}, Better: true,
		Promise: "UnmountVolume may be repeated: that the volume isn't mounted there is a success.",
		run: func(t *trial) {
			d := t.volumeDisk()
			path := t.mount(d)
			for range 2 {
				t.do("UnmountVolume", fields{"volume": d.volume, "path": path})
			}
			_, err := t.call("GetVolumeIDFromTargetPath", fields{"path": path})
			t.want(err != nil, "the volume is mounted after UnmountVolume")
		},
	},
	{
		Name: "volume.mount-paths", Group: "volume", Methods: []string{"MountVolume"},
		Promise: "The volume group takes a slash as a backslash, and a path without a drive on the kubelet directory's drive.",
		run: func(t *trial) {
			d, path := t.volumeDisk(), t.dir()
			t.unmountLater(d.volume, path)
			t.do("MountVolume", fields{"volume": d.volume, "path": withoutDrive(path)})
			t.wantMounted(d, path)
			for _, same := range []string{withoutDrive(path), strings.ReplaceAll(path, `\`, "/"), strings.ToUpper(path)} {
				t.wantMounted(d, same)
			}
		},
	},
	{
		Name: "volume.stats", Group: "volume", Methods: []string{"GetVolumeStats"},
		Promise: "GetVolumeStats gives the total and the used bytes of the volume.",
		run: func(t *trial) {
			d := t.volumeDisk()
			a := t.do("GetVolumeStats", fields{"volume": d.volume})
			total, used := a.number("total"), a.number("used")
			size := t.do("GetDiskStats", fields{"disk": d.number}).number("total")
			t.want(0 <= used && used < total && total < size && total > size/2,
				"of a disk of %d bytes, the volume has %d, of them %d used", size, total, used)
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
		Name: "volume.resize-nothing", Group: "volume", Methods: []string{"ResizeVolume"},
		Promise: "ResizeVolume to 0, which means as large as the disk allows, succeeds when there is nothing to do, as right after mounting.",
		run: func(t *trial) {
			d := t.volumeDisk()
			t.mount(d)
			before := t.size(d)
			for range 2 {
				t.do("ResizeVolume", fields{"volume": d.volume, "size": 0})
			}
			after := t.size(d)
			t.want(after >= before, "the volume had %d bytes and has %d", before, after)
		},
	},
	{
		Name: "volume.resize-smaller", Group: "volume", Methods: []string{"ResizeVolume"},
		Promise: "ResizeVolume to less than the volume has succeeds and does nothing.",
		run: func(t *trial) {
			d := t.volumeDisk()
			before := t.size(d)
			t.do("ResizeVolume", fields{"volume": d.volume, "size": before / 2})
			after := t.size(d)
			t.want(before == after, "the volume had %d bytes and has %d", before, after)
		},
	},
	{
		Name: "volume.resize-negative", Group: "volume", Methods: []string{"ResizeVolume"}, Better: true,
		Promise: "ResizeVolume to a negative size is refused.",
		run: func(t *trial) {
			t.refused(codes.InvalidArgument, "ResizeVolume", fields{"volume": t.volumeDisk().volume, "size": -1})
		},
	},
	{
		Name: "volume.resize-disk-number", Group: "volume", Methods: []string{"ResizeVolume"}, Better: true,
		Promise: "ResizeVolume takes a decimal disk number, which Azure Disk's driver sends, for that disk's only data volume.",
		run:     func(t *trial) { t.do("ResizeVolume", fields{"volume": t.volumeDisk().number, "size": 0}) },
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
		Name: "volume.id-from-path", Group: "volume", Methods: []string{"GetVolumeIDFromTargetPath"},
		Promise: "GetVolumeIDFromTargetPath gives the volume of a mount point, also by a link to one.",
		run: func(t *trial) {
			d := t.volumeDisk()
			path, link := t.mount(d), t.dir()+`\link`
			t.wantMounted(d, path)
			t.do("CreateSymlink", fields{"source": path, "target": link})
			t.wantMounted(d, link)
		},
	},
	{
		Name: "volume.id-from-path-not-mounted", Group: "volume", Methods: []string{"GetVolumeIDFromTargetPath"}, Better: true,
		Promise: "A directory that is no mount point has no volume, and the message has the phrase that EBS's driver looks for.",
		run: func(t *trial) {
			err := t.refused(codes.NotFound, "GetVolumeIDFromTargetPath", fields{"path": t.dir()})
			t.want(strings.Contains(err.Error(), notMountedText), "the message %q hasn't %q", err, notMountedText)
		},
	},
	{
		Name: "volume.id-from-path-missing", Group: "volume", Methods: []string{"GetVolumeIDFromTargetPath"}, Better: true,
		Promise: "A path that doesn't exist has no volume, and the message has the phrase that EBS's driver looks for.",
		run: func(t *trial) {
			err := t.refused(codes.NotFound, "GetVolumeIDFromTargetPath", fields{"path": t.dir() + `\missing`})
			t.want(strings.Contains(err.Error(), notMountedText), "the message %q hasn't %q", err, notMountedText)
		},
	},
	{
		Name: "volume.closest", Group: "volume", Methods: []string{"GetClosestVolumeIDFromTargetPath"},
		Promise: "GetClosestVolumeIDFromTargetPath follows links and walks up to the nearest volume, at last the drive's.",
		run: func(t *trial) {
			plain := t.dir()
			drive := t.do("GetClosestVolumeIDFromTargetPath", fields{"path": plain}).text("volume")
			t.want(volumeID.MatchString(drive), "%q is no volume id", drive)
			d := t.volumeDisk()
			path, link := t.mount(d), plain+`\link`
			t.do("Mkdir", fields{"path": path + `\below`})
			t.later(func() { t.do("Rmdir", fields{"path": path + `\below`}) })
			t.do("CreateSymlink", fields{"source": path, "target": link})
			for _, p := range []string{path, path + `\below`, link} {
				got := t.do("GetClosestVolumeIDFromTargetPath", fields{"path": p}).text("volume")
				t.want(strings.EqualFold(got, d.volume), "the volume nearest to %s is %s, not %s", p, d.volume, got)
			}
		},
	},
	{
		Name: "volume.closest-loop", Group: "volume", Methods: []string{"GetClosestVolumeIDFromTargetPath"},
		Promise: "A loop of links ends in an error.",
		run: func(t *trial) {
			dir := t.dir()
			for _, link := range [][2]string{{`\a`, `\b`}, {`\b`, `\a`}} {
				if _, err := t.call("CreateSymlink", fields{"source": dir + link[0], "target": dir + link[1]}); err != nil {
					t.notApplicable("a link to what isn't there can't be made: %v", err)
				}
			}
			t.refused(codes.FailedPrecondition, "GetClosestVolumeIDFromTargetPath", fields{"path": dir + `\a`})
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
	"IsVolumeFormatted", "FormatVolume", "MountVolume", "UnmountVolume", "ResizeVolume", "GetVolumeStats", "GetDiskNumberFromVolumeID", "WriteVolumeCache",
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

func (t *trial) wantMounted(d *disk, path string) {
	got := t.volumeAt(path)
	t.want(strings.EqualFold(got, d.volume), "at %s is the volume %s, want %s", path, got, d.volume)
}

func (t *trial) size(d *disk) int64 {
	return t.do("GetVolumeStats", fields{"volume": d.volume}).number("total")
}

// withoutDrive returns a path as kubelet hands it to drivers.
func withoutDrive(path string) string {
	_, rest, _ := strings.Cut(path, ":")
	return rest
}
