// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// isDirty is FSCTL_IS_VOLUME_DIRTY.
func isDirty(t *testing.T, s *System, volume string) bool {
	t.Helper()
	d := openDevice(t, s, device1(volume), win.GenericRead)
	defer closeHandle(t, d)
	out := make([]byte, 4)
	n, err := d.Control(t.Context(), win.FsctlIsVolumeDirty, nil, out)
	must(t, err)
	dirty, err := win.DecodeVolumeIsDirty(out[:n])
	must(t, err)
	return dirty
}

func TestRepair(t *testing.T) {
	const scan, spot, offline = win.RepairScan, win.RepairSpotFix, win.RepairOffline
	for name, tt := range map[string]struct {
		damage volumes.Damage
		modes  []win.RepairMode
		want   []win.RepairResult
		healed bool
	}{
		"healthy": {volumes.NoDamage, []win.RepairMode{scan, spot}, []win.RepairResult{0, 0}, true},
		"found and fixed": {volumes.SpotDamage, []win.RepairMode{scan, spot, scan}, []win.RepairResult{1, 0, 0},
			true},
		"a spot fix without a scan": {volumes.SpotDamage, []win.RepairMode{spot}, []win.RepairResult{0}, false},
		"more than a spot fix can": {volumes.OfflineDamage, []win.RepairMode{scan, spot, scan},
			[]win.RepairResult{1, 1, 1}, false},
		"an offline repair": {volumes.OfflineDamage, []win.RepairMode{offline, scan}, []win.RepairResult{0, 0},
			true},
		"an offline repair of a spot":  {volumes.SpotDamage, []win.RepairMode{offline}, []win.RepairResult{0}, true},
		"a scan changes nothing by it": {volumes.SpotDamage, []win.RepairMode{scan, scan}, []win.RepairResult{1, 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newNode(t, Delays{})
			_, volume := newVolume(t, s, true)
			must(t, s.WriteFile(volume+"file", []byte("content")))
			must(t, s.SetVolumeDamage(volume, tt.damage))
			must(t, s.SetVolumeDirty(volume, tt.damage != volumes.NoDamage))
			for i, mode := range tt.modes {
				got, err := s.RepairVolume(t.Context(), volume, mode)
				if err != nil || got != tt.want[i] {
					t.Errorf("step %d: %d, %v; want %d", i, got, err, tt.want[i])
				}
			}
			all := s.Volumes()
			healed, dirty := all[len(all)-1].Damage == volumes.NoDamage, isDirty(t, s, volume)
			if healed != tt.healed || dirty == healed {
				t.Errorf("healed: %v, dirty: %v", healed, dirty)
			}
			wantText(t, s, volume+"file", "content")
		})
	}
}

func TestRepairRefusals(t *testing.T) {
	s := newNode(t, Delays{})
	n, volume := newVolume(t, s, true)
	repair := func(mode win.RepairMode) error {
		_, err := s.RepairVolume(t.Context(), volume, mode)
		return err
	}
	_, err := s.RepairVolume(t.Context(), `\\?\Volume{`+winid.NewGUID().String()+`\`, win.RepairScan)
	wantErr(t, "no volume", err, winerr.ErrorRetry)
	id, err := s.StartProcess(podImage, volume)
	must(t, err)
	must(t, repair(win.RepairScan))
	wantErr(t, "spot fix of a volume in use", repair(win.RepairSpotFix), winerr.ErrorAccessDenied)
	wantErr(t, "offline repair of a volume in use", repair(win.RepairOffline), winerr.ErrorAccessDenied)
	must(t, s.EndProcess(id))
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}))
	wantErr(t, "scan of a read-only disk", repair(win.RepairScan), winerr.ErrorWriteProtect)
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly}))
	must(t, s.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: "ReFS"}))
	wantErr(t, "scan of ReFS", repair(win.RepairScan), winerr.ErrorNotSupported)
	_, raw := newVolume(t, s, false)
	volume = raw
	wantErr(t, "scan of a raw volume", repair(win.RepairScan), winerr.ErrorNotSupported)
	volume, err = s.VolumeNameForMountPoint(t.Context(), `C:\`)
	must(t, err)
	must(t, repair(win.RepairScan))
	wantErr(t, "spot fix of Windows' own volume", repair(win.RepairSpotFix), winerr.ErrorAccessDenied)
	wantErr(t, "unknown damage", s.SetVolumeDamage(volume, "x"), winerr.ErrorInvalidParameter)
	wantErr(t, "damage a raw volume", s.SetVolumeDamage(raw, volumes.SpotDamage), winerr.ErrorUnrecognizedVolume)
}

func TestReadOnlyPartition(t *testing.T) {
	s := newNode(t, Delays{})
	n, volume := newVolume(t, s, true)
	check := func(what string, readOnly bool) {
		t.Helper()
		info, err := s.VolumeInformation(t.Context(), volume)
		must(t, err)
		want := winerr.Errno(0)
		if readOnly {
			want = winerr.ErrorWriteProtect
		}
		if got := info.Flags&win.FileReadOnlyVolume != 0; got != readOnly {
			t.Errorf("%s: read-only is %v", what, got)
		}
		wantErr(t, what+": is it writable", errorOf(control(t, s, device1(volume), win.IoctlDiskIsWritable, nil)), want)
		wantErr(t, what+": write", s.WriteFile(volume+"file", nil), want)
		wantErr(t, what+": format", s.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: "NTFS"}), want)
	}
	check("new", false)
	must(t, s.SetVolumeReadOnly(volume, true))
	check("the volume", true)
	if layoutOf(t, s, n).Partitions[0].Attributes&win.GPTAttributeReadOnly == 0 {
		t.Error("the partition's attribute isn't set")
	}
	wantErr(t, "is the disk writable", errorOf(control(t, s, drivePath(n), win.IoctlDiskIsWritable, nil)), 0)
	must(t, s.SetVolumeReadOnly(volume, false))
	check("writable again", false)
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}))
	check("the disk", true)
	_, err := control(t, s, drivePath(n), win.IoctlDiskIsWritable, nil)
	wantErr(t, "is the disk writable", err, winerr.ErrorWriteProtect)
}
