// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"

	"google.golang.org/grpc/codes"
)

// notMountedText is what a shipped driver looks for in an error to learn that nothing is
// mounted at a path.
const notMountedText = "because it does not exist"

// volumePathChecks are about the volume that a path leads to.
var volumePathChecks = []Check{
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
		Name: "volume.id-from-path-not-mounted", Group: "volume", Methods: []string{"GetVolumeIDFromTargetPath"},
		Better: true,
		Promise: "A directory that is no mount point has no volume, and the message has the phrase that EBS's driver " +
			"looks for.",
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
}
