// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
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
		want                win.Errno
	}{
		{"no backslash", stage, name, win.ErrorInvalidName},
		{"volume without backslash", stage + `\`, device1(name), win.ErrorInvalidParameter},
		{"no volume", stage + `\`, `C:\`, win.ErrorInvalidParameter},
		{"bad GUID", stage + `\`, `\\?\Volume{0000000g-0000-0000-0000-000000000000}\`, win.ErrorInvalidParameter},
		{"unknown volume", stage + `\`, `\\?\Volume{00000000-0000-0000-0000-000000000000}\`, win.ErrorFileNotFound},
		{"missing", kubelet + `\missing\`, name, win.ErrorPathNotFound},
		{"missing parent", kubelet + `\missing\dir\`, name, win.ErrorPathNotFound},
		{"not empty", kubelet + `\full\`, name, win.ErrorDirNotEmpty},
		{"a file", kubelet + `\file\`, name, win.ErrorDirectory},
		{"a junction", kubelet + `\junction\`, name, win.ErrorDirNotEmpty},
		{"a symbolic link", kubelet + `\link\`, name, win.ErrorDirNotEmpty},
		{"on ReFS", refs + `dir\`, name, win.ErrorInvalidFunction},
		{"no drive", `\var\lib\kubelet\plugins\stage\`, name, win.ErrorInvalidName},
		{"unknown drive", `Q:\dir\`, name, win.ErrorPathNotFound},
		{"UNC", `\\server\share\dir\`, name, win.ErrorBadNetPath},
		{"letter in use", `C:\`, name, win.ErrorDirNotEmpty},
	} {
		wantErr(t, tc.name, s.SetVolumeMountPoint(ctx, tc.point, tc.volume), tc.want)
	}
	if len(s.MountPoints()) != 0 {
		t.Errorf("failed calls left %v", s.MountPoints())
	}
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly}))
	wantErr(t, "on a read-only disk", s.SetVolumeMountPoint(ctx, name+`dir\`, refs), win.ErrorWriteProtect)
	wantErr(t, "of a read-only disk", s.SetVolumeMountPoint(ctx, stage+`\`, name), 0)

	for _, tc := range []struct {
		name, point string
		want        win.Errno
	}{
		{"no backslash", stage, win.ErrorInvalidName},
		{"missing", kubelet + `\missing\`, win.ErrorFileNotFound},
		{"missing parent", kubelet + `\missing\dir\`, win.ErrorPathNotFound},
		{"plain directory", kubelet + `\pods\`, win.ErrorNotAReparsePoint},
		{"file", kubelet + `\file\`, win.ErrorDirectory},
		{"junction", kubelet + `\junction\`, win.ErrorInvalidParameter},
		{"symbolic link", kubelet + `\link\`, win.ErrorInvalidParameter},
		{"unknown letter", `Q:\`, win.ErrorFileNotFound},
	} {
		wantErr(t, "unmount: "+tc.name, s.DeleteVolumeMountPoint(ctx, tc.point), tc.want)
		wantErr(t, "name: "+tc.name, errorOf(s.VolumeNameForMountPoint(ctx, tc.point)), tc.want)
	}
	wantErr(t, "take the system's letter", s.DeleteVolumeMountPoint(ctx, `C:\`), win.ErrorAccessDenied)
}

// TestMountOfGoneVolume: a mount point outlives its volume, and can be taken away.
func TestMountOfGoneVolume(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	n, name := newVolume(t, s, true)
	must(t, s.MkdirAll(stage))
	must(t, s.SetVolumeMountPoint(ctx, stage+`\`, name))
	must(t, s.DetachDisk(n))
	wantErr(t, "list it", errorOf(s.ReadDir(stage)), win.ErrorPathNotFound)
	if a, err := s.FileAttributes(ctx, stage); err != nil || a != win.AttributeDirectory|win.AttributeReparsePoint {
		t.Errorf("attributes %#x, %v", a, err)
	}
	if got, err := s.VolumeNameForMountPoint(ctx, stage+`\`); err != nil || got != name {
		t.Errorf("mounted is %q, %v", got, err)
	}
	wantErr(t, "information", errorOf(s.VolumeInformation(ctx, stage+`\`)), win.ErrorPathNotFound)
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
	wantErr(t, "a second letter", s.SetVolumeMountPoint(ctx, `Y:\`, name), win.ErrorInvalidParameter)
	must(t, s.Reboot())
	if _, err := s.ReadFile(`X:\file`); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	must(t, s.DeleteVolumeMountPoint(ctx, `x:\`))
	wantErr(t, "read without the letter", errorOf(s.ReadFile(`X:\file`)), win.ErrorPathNotFound)
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
	wantErr(t, "information on a file", errorOf(s.VolumeInformation(ctx, stage+`\file\`)), win.ErrorDirectory)
	for path, want := range map[string]win.Errno{
		stage + `\file`: win.ErrorDirectory, `\\server\share`: win.ErrorBadNetPath,
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
