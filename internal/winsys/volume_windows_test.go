// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

func TestVolumes(t *testing.T) {
	s := newSystem(t)
	volumes, err := s.FindVolumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`(?i)^\\\\\?\\Volume\{[0-9a-f-]{36}\}\\$`)
	for _, name := range volumes {
		if !form.MatchString(name) {
			t.Errorf("volume name %s", name)
		}
	}
	c, err := s.VolumeNameForMountPoint(t.Context(), `C:\`)
	if err != nil || !slices.ContainsFunc(volumes, func(v string) bool { return strings.EqualFold(v, c) }) {
		t.Errorf("C: is %s, %v; want one of %q", c, err, volumes)
	}
	if again, err := s.VolumeNameForMountPoint(t.Context(), `C:`); err != nil || again != c {
		t.Errorf("without the backslash C: is %s, %v; want %s", again, err, c)
	}

	byLetter, err := s.VolumeInformation(t.Context(), `C:\`)
	if err != nil || byLetter.FileSystem == "" {
		t.Errorf("information %+v, %v", byLetter, err)
	}
	if byName, err := s.VolumeInformation(t.Context(), c); err != nil || byName != byLetter {
		t.Errorf("information by name %+v, %v; want %+v", byName, err, byLetter)
	}
	space, err := s.DiskFreeSpace(t.Context(), c)
	if err != nil || space.Total == 0 || space.Free > space.Total || space.Available > space.Free {
		t.Errorf("space %+v, %v", space, err)
	}
}

func TestVolumeErrors(t *testing.T) {
	s := newSystem(t)
	gone := []win.Errno{win.ErrorFileNotFound, win.ErrorPathNotFound}
	_, err := s.VolumeInformation(t.Context(), volumeName)
	wantErrno(t, "VolumeInformation", err, gone...)
	_, err = s.DiskFreeSpace(t.Context(), volumeName)
	wantErrno(t, "DiskFreeSpace", err, gone...)
	_, err = s.VolumeNameForMountPoint(t.Context(), `Q:\`)
	wantErrno(t, "VolumeNameForMountPoint", err, gone...)
	_, err = s.VolumeNameForMountPoint(t.Context(), t.TempDir())
	wantErrno(t, "VolumeNameForMountPoint of a plain directory", err, win.ErrorNotAReparsePoint, win.ErrorInvalidParameter)
}

func TestMountPoint(t *testing.T) {
	skipUnderWine(t, "SetVolumeMountPointW")
	s := newSystem(t)
	c, err := s.VolumeNameForMountPoint(t.Context(), `C:\`)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.SetVolumeMountPoint(t.Context(), dir, c); err != nil {
		t.Fatal(err)
	}
	if got, err := s.VolumeNameForMountPoint(t.Context(), dir); err != nil || !strings.EqualFold(got, c) {
		t.Errorf("mounted %s, %v; want %s", got, err, c)
	}
	wantErrno(t, "mounting twice", s.SetVolumeMountPoint(t.Context(), dir, c), win.ErrorDirNotEmpty)
	if err := s.DeleteVolumeMountPoint(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	wantErrno(t, "unmounting twice", s.DeleteVolumeMountPoint(t.Context(), dir), win.ErrorNotAReparsePoint, win.ErrorInvalidParameter)
}
