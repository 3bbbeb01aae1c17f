// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var volumeRows = []row{
	{
		method: "Volumes.FindVolumes", name: "names",
		promise: "the names of all volumes, including volumes without a file system or a mount point",
		test: func(t *testing.T, f *Fixture) {
			volumes, err := f.System.FindVolumes(t.Context())
			must(t, err)
			form := regexp.MustCompile(`(?i)^\\\\\?\\Volume\{[0-9a-f-]{36}\}\\$`)
			for _, name := range volumes {
				if !form.MatchString(name) {
					t.Errorf("volume name %s", name)
				}
			}
			c := f.systemVolume(t)
			if !slices.ContainsFunc(volumes, func(v string) bool { return strings.EqualFold(v, c) }) {
				t.Errorf("C: is %s; want one of %q", c, volumes)
			}
		},
	},
	{
		method: "Volumes.VolumeInformation", name: "of C:",
		promise: "is GetVolumeInformationW of a volume's name",
		test: func(t *testing.T, f *Fixture) {
			byLetter, err := f.System.VolumeInformation(t.Context(), `C:\`)
			if err != nil || byLetter.FileSystem == "" {
				t.Errorf("by letter: %+v, %v", byLetter, err)
			}
			if byName, err := f.System.VolumeInformation(t.Context(), f.systemVolume(t)); err != nil || byName != byLetter {
				t.Errorf("by name: %+v, %v; want %+v", byName, err, byLetter)
			}
		},
	},
	{
		method: "Volumes.DiskFreeSpace", name: "of C: and directories", needs: []need{aDirectory},
		promise: "is GetDiskFreeSpaceExW of a directory or a volume's name, in bytes",
		test: func(t *testing.T, f *Fixture) {
			for _, path := range []string{f.systemVolume(t), f.Directory} {
				space, err := f.System.DiskFreeSpace(t.Context(), path)
				if err != nil || space.Total == 0 || space.Free > space.Total || space.Available > space.Free {
					t.Errorf("%s: %+v, %v", path, space, err)
				}
			}
			wantErrno(t, "of nothing", errorOf(f.System.DiskFreeSpace(t.Context(), f.Directory+`\missing`)), missing...)
		},
	},
}
