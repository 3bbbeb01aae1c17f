// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

var volumeRows = []row{
	{
		method: "Volumes.FindVolumes", name: "names",
		promise: "the names of all volumes, also those that have no file system or no mount point",
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
		method: "Volumes.VolumeNameForMountPoint", name: "of a volume's own name",
		promise: "a volume's own name",
		test: func(t *testing.T, f *Fixture) {
			c := f.systemVolume(t)
			if got, err := f.System.VolumeNameForMountPoint(t.Context(), c); err != nil || !strings.EqualFold(got, c) {
				t.Errorf("%s, %v, want %s", got, err, c)
			}
		},
	},
	{
		method: "Volumes.VolumeNameForMountPoint", name: "of a partition's device", needs: []need{aDisk},
		promise: "the device of a partition", guess: "its documentation doesn't name such paths",
		test: func(t *testing.T, f *Fixture) {
			n := f.NewDisk(t).Number
			want := f.partition(t, n)
			for _, p := range f.layout(t, n).Partitions {
				if p.Type != win.PartitionTypeBasicData {
					continue
				}
				got, err := f.System.VolumeNameForMountPoint(t.Context(), fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition%d\`, n, p.Number))
				if err != nil || !strings.EqualFold(got, want) {
					t.Errorf("%s, %v, want %s", got, err, want)
				}
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
		method: "Volumes.VolumeInformation", name: "of raw and formatted ones", needs: []need{aDisk},
		promise: "1005 no file system that Windows knows (RAW)",
		test: func(t *testing.T, f *Fixture) {
			volume := f.partition(t, f.NewDisk(t).Number)
			wantErrno(t, "raw", errorOf(f.System.VolumeInformation(t.Context(), volume)), win.ErrorUnrecognizedVolume)
			wantErrno(t, "space of a raw one", errorOf(f.System.DiskFreeSpace(t.Context(), volume)), win.ErrorUnrecognizedVolume)
			must(t, f.format(t, volume, win.FormatOptions{FileSystem: "NTFS", Label: "label"}))
			info, err := f.System.VolumeInformation(t.Context(), volume)
			if err != nil || info.FileSystem != "NTFS" || info.Label != "label" {
				t.Errorf("formatted: %+v, %v", info, err)
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
	{
		method: "Volumes.FormatVolume", name: "overwrites", needs: []need{aDisk},
		promise: "overwrites what the volume holds. It returns when the file system is mounted.",
		test: func(t *testing.T, f *Fixture) {
			_, volume := f.formatted(t)
			h := f.openFile(t, volume+"file", creating(win.FileCreate, win.FileNonDirectoryFile))
			closing(t, h)
			must(t, f.format(t, volume, win.FormatOptions{FileSystem: "NTFS"}))
			wantErrno(t, "the file", errorOf(f.System.FileAttributes(t.Context(), volume+"file")), win.ErrorFileNotFound)
		},
	},
	{
		method: "Volumes.FormatVolume", name: "errors", needs: []need{aDisk},
		promise: "Errors: the Errno that means the same as the method's result, such as 5 a system volume, 19 a " +
			"read-only disk, 87 the cluster size, and 31 a result that says nothing more",
		test: func(t *testing.T, f *Fixture) {
			volume := f.partition(t, f.NewDisk(t).Number)
			for what, o := range map[string]win.FormatOptions{
				"cluster size": {FileSystem: "NTFS", ClusterSize: 3000}, "file system": {FileSystem: "none"},
			} {
				err := f.format(t, volume, o)
				wantErrno(t, what, err, win.ErrorInvalidParameter, win.ErrorNotSupported)
			}
			wantErrno(t, "the volume", errorOf(f.System.VolumeInformation(t.Context(), volume)), win.ErrorUnrecognizedVolume)
		},
	},
	{
		method: "Volumes.FormatVolume", name: "of no volume",
		promise: "1237 storage management doesn't know the volume, or not yet",
		test: func(t *testing.T, f *Fixture) {
			wantErrno(t, "format", f.System.FormatVolume(t.Context(), noVolume, win.FormatOptions{FileSystem: "NTFS"}),
				win.ErrorRetry)
		},
	},
	{
		method: "Volumes.FormatVolume", name: "of one in use", needs: []need{aDisk},
		promise: "a volume that somebody has open isn't formatted: 31, 121 or 32",
		guess:   "which result the method has then isn't documented",
		test: func(t *testing.T, f *Fixture) {
			volume := f.partition(t, f.NewDisk(t).Number)
			f.device(t, deviceOf(volume), win.GenericRead)
			wantErrno(t, "format", f.format(t, volume, win.FormatOptions{FileSystem: "NTFS"}),
				win.ErrorGenFailure, win.ErrorSemTimeout, win.ErrorSharingViolation)
		},
	},
	{
		method: "Volumes.SetVolumeMountPoint", name: "mounts and unmounts", needs: []need{aDirectory, aDisk},
		promise: "it mounts the volume, given by its name, at an empty directory on NTFS",
		test: func(t *testing.T, f *Fixture) {
			_, volume := f.formatted(t)
			f.make(t, `mount\`)
			point := f.Directory + `\mount\`
			must(t, f.System.SetVolumeMountPoint(t.Context(), point, volume))
			if got, err := f.System.VolumeNameForMountPoint(t.Context(), point); err != nil || !strings.EqualFold(got, volume) {
				t.Errorf("mounted is %s, %v, want %s", got, err, volume)
			}
			closing(t, f.openFile(t, point+"file", creating(win.FileCreate, win.FileNonDirectoryFile)))
			if _, err := f.System.FileAttributes(t.Context(), volume+"file"); err != nil {
				t.Errorf("what was made there isn't on the volume: %v", err)
			}
			h := f.openFile(t, point+"file", open(win.FileReadAttributes))
			if got, err := h.Volume(t.Context()); err != nil || !strings.EqualFold(got, volume) {
				t.Errorf("a file there is on %s, %v", got, err)
			}
			closing(t, h)
			wantErrno(t, "mounted twice", f.System.SetVolumeMountPoint(t.Context(), point, volume), win.ErrorDirNotEmpty)
			must(t, f.System.DeleteVolumeMountPoint(t.Context(), point))
			d := f.openFile(t, f.Directory+`\mount`, open(win.FileListDirectory))
			if left := list(t, d, true); len(left) > 0 {
				t.Errorf("the directory has %v", left)
			}
			closing(t, d)
			wantErrno(t, "unmounted twice", f.System.DeleteVolumeMountPoint(t.Context(), point), win.ErrorNotAReparsePoint,
				win.ErrorInvalidParameter)
		},
	},
	{
		method: "Volumes.SetVolumeMountPoint", name: "errors", needs: []need{aDirectory},
		promise: "Errors: 145 the directory isn't empty, or a volume is mounted there; 267 or 123 a file; 2 and 3 no " +
			"such directory or volume; 87 the volume's name is malformed; 4390 or 1 a file system without reparse points. A " +
			"call that fails leaves the directory as it was.",
		test: func(t *testing.T, f *Fixture) {
			f.make(t, `empty\`, `full\`, `full\x\`, "file")
			c := f.systemVolume(t)
			for _, row := range []struct {
				what, point, volume string
				want                []win.Errno
			}{
				{"not empty", `\full\`, c, []win.Errno{win.ErrorDirNotEmpty}},
				{"a file", `\file\`, c, []win.Errno{win.ErrorDirectory, win.ErrorInvalidName}},
				{"no directory", `\missing\`, c, missing},
				{"no volume", `\empty\`, noVolume, missing},
				{"not the name of a volume", `\empty\`, `C:\`, []win.Errno{win.ErrorInvalidParameter}},
			} {
				wantErrno(t, row.what, f.System.SetVolumeMountPoint(t.Context(), f.Directory+row.point, row.volume), row.want...)
			}
			for _, e := range list(t, f.dir(t), true) {
				if e.IsReparsePoint() {
					t.Errorf("%s has become a mount point", e.Name)
				}
			}
		},
	},
	{
		method: "Volumes.DeleteVolumeMountPoint", name: "whose volume has gone", needs: []need{aDirectory, aDisk},
		promise: "the directory is free again", guess: "the field reports errors 2 and 3, too",
		test: func(t *testing.T, f *Fixture) {
			d, volume := f.formatted(t)
			f.make(t, `mount\`)
			must(t, f.System.SetVolumeMountPoint(t.Context(), f.Directory+`\mount\`, volume))
			d.Detach()
			wantErrno(t, "unmount", f.System.DeleteVolumeMountPoint(t.Context(), f.Directory+`\mount\`))
		},
	},
}
