// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const stage = kubelet + `\plugins\stage`

// What the contract and the facts of others don't say of a mount: it outlasts a restart, and the
// mount manager has a record of it.
func TestMount(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	_, name := newVolume(t, s, true)
	must(t, s.MkdirAll(stage))
	must(t, s.SetVolumeMountPoint(ctx, `\\?\`+stage+`\`, name))
	if diff := cmp.Diff([]volumes.MountPoint{{Path: stage, Volume: name}}, s.MountPoints()); diff != "" {
		t.Errorf("mount points (-want +got):\n%s", diff)
	}
	must(t, s.WriteFile(stage+`\file`, []byte("content")))
	must(t, s.Reboot())
	if _, err := s.ReadFile(stage + `\file`); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	must(t, s.Junction(kubelet+`\way`, kubelet+`\plugins`))
	if got, err := s.VolumeNameForMountPoint(ctx, kubelet+`\way\stage\`); err != nil || got != name {
		t.Errorf("by a junction on the way, mounted is %q, %v", got, err)
	}
	must(t, s.DeleteVolumeMountPoint(ctx, stage+`\`))
	if points := s.MountPoints(); len(points) != 0 {
		t.Errorf("after unmounting there are %v", points)
	}
	if _, err := s.ReadFile(name + "file"); err != nil {
		t.Errorf("unmounting did harm: %v", err)
	}
}

func TestMountErrors(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	n, name := newVolume(t, s, true)
	_, refs := newVolume(t, s, false)
	must(t, s.FormatVolume(ctx, refs, win.FormatOptions{FileSystem: "ReFS"}))
	for _, dir := range []string{stage, kubelet + `\full\sub`, refs + `dir`, name + `dir`} {
		must(t, s.MkdirAll(dir))
	}
	must(t, s.WriteFile(kubelet+`\file`, nil))
	must(t, s.Junction(kubelet+`\junction`, kubelet+`\pods`))
	must(t, s.Symlink(kubelet+`\link`, kubelet+`\pods`, true))
	for _, tc := range []struct {
		name, point, volume string
		want                winerr.Errno
	}{
		{"no backslash", stage, name, winerr.ErrorInvalidName},
		{"volume without backslash", stage + `\`, device1(name), winerr.ErrorInvalidParameter},
		{"no volume", stage + `\`, `C:\`, winerr.ErrorInvalidParameter},
		{"bad GUID", stage + `\`, `\\?\Volume{0000000g-0000-0000-0000-000000000000}\`, winerr.ErrorInvalidParameter},
		{"unknown volume", stage + `\`, `\\?\Volume{00000000-0000-0000-0000-000000000000}\`, winerr.ErrorFileNotFound},
		{"missing", kubelet + `\missing\`, name, winerr.ErrorPathNotFound},
		{"missing parent", kubelet + `\missing\dir\`, name, winerr.ErrorPathNotFound},
		{"not empty", kubelet + `\full\`, name, winerr.ErrorDirNotEmpty},
		{"a file", kubelet + `\file\`, name, winerr.ErrorDirectory},
		{"a junction", kubelet + `\junction\`, name, winerr.ErrorDirNotEmpty},
		{"a symbolic link", kubelet + `\link\`, name, winerr.ErrorDirNotEmpty},
		{"on ReFS", refs + `dir\`, name, winerr.ErrorInvalidFunction},
		{"no drive", `\var\lib\kubelet\plugins\stage\`, name, winerr.ErrorInvalidName},
		{"unknown drive", `Q:\dir\`, name, winerr.ErrorPathNotFound},
		{"UNC", `\\server\share\dir\`, name, winerr.ErrorBadNetPath},
		{"letter in use", `C:\`, name, winerr.ErrorDirNotEmpty},
	} {
		wantErr(t, tc.name, s.SetVolumeMountPoint(ctx, tc.point, tc.volume), tc.want)
	}
	if len(s.MountPoints()) != 0 {
		t.Errorf("failed calls left %v", s.MountPoints())
	}
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly}))
	wantErr(t, "on a read-only disk", s.SetVolumeMountPoint(ctx, name+`dir\`, refs), winerr.ErrorWriteProtect)
	wantErr(t, "of a read-only disk", s.SetVolumeMountPoint(ctx, stage+`\`, name), 0)

	for _, tc := range []struct {
		name, point string
		want        winerr.Errno
	}{
		{"no backslash", stage, winerr.ErrorInvalidName},
		{"missing", kubelet + `\missing\`, winerr.ErrorFileNotFound},
		{"missing parent", kubelet + `\missing\dir\`, winerr.ErrorPathNotFound},
		{"plain directory", kubelet + `\pods\`, winerr.ErrorNotAReparsePoint},
		{"file", kubelet + `\file\`, winerr.ErrorDirectory},
		{"junction", kubelet + `\junction\`, winerr.ErrorInvalidParameter},
		{"symbolic link", kubelet + `\link\`, winerr.ErrorInvalidParameter},
		{"unknown letter", `Q:\`, winerr.ErrorFileNotFound},
	} {
		wantErr(t, "unmount: "+tc.name, s.DeleteVolumeMountPoint(ctx, tc.point), tc.want)
		wantErr(t, "name: "+tc.name, errorOf(s.VolumeNameForMountPoint(ctx, tc.point)), tc.want)
	}
	wantErr(t, "take the system's letter", s.DeleteVolumeMountPoint(ctx, `C:\`), winerr.ErrorAccessDenied)
}

// TestMountOfGoneVolume: a mount point outlives its volume, and can be taken away.
func TestMountOfGoneVolume(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	n, name := newVolume(t, s, true)
	must(t, s.MkdirAll(stage))
	must(t, s.SetVolumeMountPoint(ctx, stage+`\`, name))
	must(t, s.DetachDisk(n))
	wantErr(t, "list it", errorOf(s.ReadDir(stage)), winerr.ErrorPathNotFound)
	if a, err := s.FileAttributes(ctx, stage); err != nil || a != win.AttributeDirectory|win.AttributeReparsePoint {
		t.Errorf("attributes %#x, %v", a, err)
	}
	if got, err := s.VolumeNameForMountPoint(ctx, stage+`\`); err != nil || got != name {
		t.Errorf("mounted is %q, %v", got, err)
	}
	wantErr(t, "information", errorOf(s.VolumeInformation(ctx, stage+`\`)), winerr.ErrorPathNotFound)
	must(t, s.DeleteVolumeMountPoint(ctx, stage+`\`))
}

// TestStaleRecord: who deletes a mount point as a directory leaves the mount
// manager's record behind.
func TestStaleRecord(t *testing.T) {
	s := newNode(t, Delays{})
	_, name := newVolume(t, s, true)
	must(t, s.MkdirAll(stage))
	must(t, s.SetVolumeMountPoint(t.Context(), stage+`\`, name))
	must(t, s.Remove(stage))
	if diff := cmp.Diff([]volumes.MountPoint{{Path: stage, Volume: name}}, s.MountPoints()); diff != "" {
		t.Errorf("mount points (-want +got):\n%s", diff)
	}
}

func TestDriveLetters(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	_, name := newVolume(t, s, true)
	must(t, s.SetVolumeMountPoint(ctx, `X:\`, name))
	must(t, s.WriteFile(`x:\file`, nil))
	wantErr(t, "a second letter", s.SetVolumeMountPoint(ctx, `Y:\`, name), winerr.ErrorInvalidParameter)
	must(t, s.Reboot())
	if _, err := s.ReadFile(`X:\file`); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	must(t, s.DeleteVolumeMountPoint(ctx, `x:\`))
	wantErr(t, "read without the letter", errorOf(s.ReadFile(`X:\file`)), winerr.ErrorPathNotFound)
}

func TestVolumeInformationPaths(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	_, name := newVolume(t, s, true)
	must(t, s.MkdirAll(stage))
	must(t, s.SetVolumeMountPoint(ctx, stage+`\`, name))
	must(t, s.MkdirAll(stage+`\dir`))
	must(t, s.WriteFile(stage+`\file`, nil))
	want, err := s.VolumeInformation(ctx, name)
	must(t, err)
	if got, err := s.VolumeInformation(ctx, stage+`\`); err != nil || got != want {
		t.Errorf("at the mount point: %+v, %v, want %+v", got, err, want)
	}
	space, err := s.DiskFreeSpace(ctx, name)
	must(t, err)
	if got, err := s.DiskFreeSpace(ctx, stage+`\dir`); err != nil || got != space {
		t.Errorf("space below the mount point: %+v, %v, want %+v", got, err, space)
	}
	wantErr(t, "information on a file", errorOf(s.VolumeInformation(ctx, stage+`\file\`)), winerr.ErrorDirectory)
	for path, want := range map[string]winerr.Errno{
		stage + `\file`: winerr.ErrorDirectory, `\\server\share`: winerr.ErrorBadNetPath,
	} {
		wantErr(t, "space of "+path, errorOf(s.DiskFreeSpace(ctx, path)), want)
	}
}

func TestVolumeNameOfAPartition(t *testing.T) {
	s := newNode(t, Delays{})
	n, id := newVolume(t, s, false)
	for path, want := range map[string]string{
		fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition1\`, n):   id,
		fmt.Sprintf(`\\?\globalroot\device\harddisk%d\partition1\`, n):   id,
		fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition2\`, n):   "",
		fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition2`, n):    "",
		fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition2\x\`, n): "",
		`\\?\GLOBALROOT\Device\Harddisk77\Partition2\`:                   "",
	} {
		got, err := s.VolumeNameForMountPoint(t.Context(), path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}

// Two directories are two mount points, though Unicode has the same upper case for their
// names: to Windows they differ.
func TestMountPointsOfSimilarNames(t *testing.T) {
	s := newNode(t, Delays{})
	for _, name := range []string{"s", "ſ"} {
		_, volume := newVolume(t, s, true)
		must(t, s.MkdirAll(`C:\`+name))
		must(t, s.SetVolumeMountPoint(t.Context(), `C:\`+name+`\`, volume))
	}
	if points := s.MountPoints(); len(points) != 2 {
		t.Errorf("the mount manager knows %v", points)
	}
}
