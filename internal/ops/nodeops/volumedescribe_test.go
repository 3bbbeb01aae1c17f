// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// What is wrong with a volume is among its conditions, and what is known of it is told all the same.
func TestDescribeVolume(t *testing.T) {
	fail := func(call string, errno winerr.Errno) func(volumeSubject) error {
		return func(s volumeSubject) error { return s.sim.Fail(winsim.Match{Call: call}, errno) }
	}
	const none, all = "", `disk 1, "vol 1", NTFS, 10719588352 bytes, clusters of 4096`
	for name, c := range map[string]struct {
		subject    func(*node) volumeSubject
		spoil      func(volumeSubject) error
		want       string
		conditions string
	}{
		"healthy": {formattedVolume, func(volumeSubject) error { return nil }, all, none},
		"raw":     {raw, func(volumeSubject) error { return nil }, `disk 1, "vol 1", raw, 0 bytes, clusters of 0`, "NotFormatted!"},
		"gone": {formattedVolume, func(s volumeSubject) error { return s.sim.DetachDisk(s.number) },
			`no disk, "", , 0 bytes, clusters of 0`, "DiskMissing!"},
		"offline": {formattedVolume, fail("GetVolumeInformationW", winerr.ErrorNotReady),
			`disk 1, "vol 1", , 0 bytes, clusters of 0`, "VolumeOffline!"},
		"unreadable": {formattedVolume, fail("GetVolumeInformationW", winerr.ErrorFileCorrupt),
			`disk 1, "vol 1", , 0 bytes, clusters of 0`, "Unreadable!"},
		"without a size": {formattedVolume, fail("GetDiskFreeSpaceExW", winerr.ErrorIODevice),
			`disk 1, "vol 1", NTFS, 0 bytes, clusters of 4096`, "Unreadable!"},
		"read-only": {formattedVolume, func(s volumeSubject) error { return s.sim.SetVolumeReadOnly(string(s.id), true) },
			all + ", read-only", "ReadOnly"},
		"dirty": {formattedVolume, func(s volumeSubject) error { return s.sim.SetVolumeDirty(string(s.id), true) },
			all, "Dirty"},
		"maybe dirty":         {formattedVolume, fail("FSCTL_IS_VOLUME_DIRTY", winerr.ErrorIODevice), all, "Dirty"},
		"that is never dirty": {formattedVolume, fail("FSCTL_IS_VOLUME_DIRTY", winerr.ErrorInvalidFunction), all, none},
		"on a read-only disk": {formattedVolume, func(s volumeSubject) error {
			return s.sim.SetDiskAttributes(s.number, win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly})
		}, all + ", read-only", none},
		"whose place can't be read": {formattedVolume, fail("IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS", winerr.ErrorIODevice),
			`no disk, "", NTFS, 10719588352 bytes, clusters of 4096`, "DiskUnreadable"},
		"on a disk that doesn't tell its table": {formattedVolume, fail("IOCTL_DISK_GET_DRIVE_LAYOUT_EX", winerr.ErrorIODevice),
			all, "DiskUnreadable"},
		"that can't be opened to be read": {formattedVolume, func(s volumeSubject) error {
			return s.sim.Fail(winsim.Match{Call: win.CallOpen, Object: strings.TrimSuffix(string(s.id), `\`), Skip: 1},
				winerr.ErrorAccessDenied)
		}, `disk 1, "vol 1", NTFS, 10719588352 bytes, clusters of 0`, "Unreadable!"},
		"on a disk that refuses to say what it is": {formattedVolume,
			fail("IOCTL_STORAGE_QUERY_PROPERTY", winerr.ErrorInvalidFunction),
			`disk 1, "", NTFS, 10719588352 bytes, clusters of 4096`, "DiskUnreadable"},
		"whose file system isn't NTFS": {formattedVolume, fail("FSCTL_GET_NTFS_VOLUME_DATA", winerr.ErrorInvalidFunction),
			`disk 1, "vol 1", NTFS, 10719588352 bytes, clusters of 0`, none},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.subject(newVolumeNode(t))
			simtest.Must(t, c.spoil(s))
			v, err := s.volumes.Describe(t.Context(), s.id)
			simtest.Must(t, err)
			on := "no disk"
			if v.Disk != nil {
				on = fmt.Sprint("disk ", *v.Disk)
			}
			got := fmt.Sprintf("%s, %q, %s, %d bytes, clusters of %d", on, v.SerialNumber, v.FileSystem, v.SizeBytes,
				v.AllocationUnitBytes)
			if v.ReadOnly {
				got += ", read-only"
			}
			if got != c.want || v.UsedBytes+v.FreeBytes != v.SizeBytes || (v.UsedBytes > 0) != (v.SizeBytes > 0) {
				t.Errorf("it is %s (%d used, %d free), want %s", got, v.UsedBytes, v.FreeBytes, c.want)
			}
			var conditions []string
			for _, condition := range v.Conditions {
				text := string(condition.Reason)
				if condition.Message == "" {
					t.Errorf("%s has no message", text)
				}
				if condition.Inaccessible {
					text += "!"
				}
				conditions = append(conditions, text)
			}
			if got := strings.Join(conditions, " "); got != c.conditions {
				t.Errorf("the conditions are %q, want %q: %v", got, c.conditions, v.Conditions)
			}
		})
	}
}

// Who has given up is told nothing of a volume.
func TestDescribeGivenUp(t *testing.T) {
	for _, call := range []string{"IOCTL_DISK_GET_DRIVE_LAYOUT_EX", "GetVolumeInformationW", "GetDiskFreeSpaceExW"} {
		s := formattedVolume(newVolumeNode(t))
		ctx, cancel := context.WithCancel(t.Context())
		s.sim.OnCall(func(c winsim.Call) {
			if c.Name == call {
				cancel()
			}
		})
		if v, err := s.volumes.Describe(ctx, s.id); !errors.Is(err, context.Canceled) {
			t.Errorf("at %s: %+v, %v", call, v, err)
		}
		s.sim.OnCall(nil)
	}
}

// The id of a disk is that of its table, whichever that has.
func TestDescribeDiskID(t *testing.T) {
	n := newVolumeNode(t)
	s := formattedVolume(n)
	number := simtest.Attach(t, n.sim, winsim.DiskSpec{})
	n.plant(number, 0, mbrTable)
	n.do(n.disks.Rescan(t.Context()))
	n.sim.Settle()
	for _, id := range []string{string(s.id), n.sim.VolumesOfDisk(number)[0]} {
		v, err := n.volumes.Describe(t.Context(), csiproxy.VolumeID(id))
		n.do(err)
		all, err := n.disks.Describe(t.Context(), csiproxy.Selector{})
		n.do(err)
		if want := all[*v.Disk].DiskID; v.DiskID == "" || v.DiskID != want {
			t.Errorf("disk %d has the id %q, want %q", *v.Disk, v.DiskID, want)
		}
	}
}
