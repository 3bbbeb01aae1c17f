// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"

	"google.golang.org/grpc/codes"
)

var mountChecks = []Check{
	{
		Name: "volume.mount", Group: "volume", Methods: []string{"MountVolume", "UnmountVolume"},
		Promise: "MountVolume presents the volume at an empty directory, and may be repeated; after UnmountVolume the " +
			"directory is there and no mount point.",
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
		Promise: "The volume group takes a slash as a backslash, " +
			"and a path without a drive on the kubelet directory's drive.",
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
}

func (t *trial) wantMounted(d *disk, path string) {
	got := t.volumeAt(path)
	t.want(strings.EqualFold(got, d.volume), "at %s is the volume %s, want %s", path, got, d.volume)
}

// withoutDrive returns a path as kubelet hands it to drivers.
func withoutDrive(path string) string {
	_, rest, _ := strings.Cut(path, ":")
	return rest
}
