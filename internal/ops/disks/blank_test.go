// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks_test

import (
	"errors"
	"fmt"
	"hash/crc64"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

const smallDisk = 40 << 20

// imageOf is a sum over all bytes of a small disk.
func imageOf(t *testing.T, sim *winsim.System, n disk.Number) uint64 {
	t.Helper()
	b := make([]byte, smallDisk)
	simtest.Must(t, sim.ReadImage(n, b, 0))
	return crc64.Checksum(b, crc64.MakeTable(crc64.ECMA))
}

// eachBlank runs a test with each way in which Windows may say that a disk has no partition table.
func eachBlank(t *testing.T, test func(t *testing.T, blank settings.BlankDisk, spec winsim.DiskSpec)) {
	for _, blank := range []settings.BlankDisk{settings.BlankMBR, settings.BlankRAW, settings.BlankRefused} {
		for _, offline := range []bool{false, true} {
			t.Run(fmt.Sprintf("blank=%d,offline=%t", blank, offline), func(t *testing.T) {
				test(t, blank, winsim.DiskSpec{SizeBytes: smallDisk, Offline: offline})
			})
		}
	}
}

// A blank disk gets its partition in whichever way Windows says that it has no table.
func TestBlankDisk(t *testing.T) {
	eachBlank(t, func(t *testing.T, blank settings.BlankDisk, spec winsim.DiskSpec) {
		sim, ops := newNode(t)
		simtest.Must(t, sim.SetSettings(winsim.Settings{BlankDisk: blank}))
		n := attach(t, sim, spec)
		described, err := ops.Describe(t.Context(), storage.Selector{Number: &n})
		simtest.Must(t, err)
		// A list opens disks for queries only, and so can't read one that refuses this query.
		if got := described[0]; (got.Style == storage.RAW) == (blank == settings.BlankRefused) ||
			(got.Error == "") == (blank == settings.BlankRefused) {
			t.Errorf("it is listed as %+v", got)
		}
		simtest.Must(t, ops.PartitionDisk(t.Context(), n))
		simtest.Want(t, "volumes", len(sim.VolumesOfDisk(n)), 1)
	})
}

// A disk that looks empty, but isn't, is never written to.
func TestDiskThatLooksBlank(t *testing.T) {
	eachBlank(t, func(t *testing.T, blank settings.BlankDisk, spec winsim.DiskSpec) {
		for name, c := range map[string]struct {
			plant    map[int64]string
			hasTable bool
		}{
			"XFS":                        {plant: map[int64]string{0: "XFSB"}},
			"LUKS":                       {plant: map[int64]string{0: "LUKS\xba\xbe"}},
			"ext4":                       {plant: map[int64]string{1024 + 0x38: "\x53\xef", 1024 + 0x4c: "\x01"}},
			"LVM":                        {plant: map[int64]string{512: "LABELONE", 512 + 24: "LVM2 001"}},
			"MD RAID at the end":         {plant: map[int64]string{smallDisk - 8192: "\xfc\x4e\x2b\xa9"}},
			"BitLocker without a table":  {plant: map[int64]string{16 << 20: "\xeb\x58\x90-FVE-FS-"}},
			"MBR with a signature":       {plant: map[int64]string{0: mbr(0)}, hasTable: true},
			"MBR without a signature":    {plant: map[int64]string{510: "\x55\xaa"}, hasTable: true},
			"MBR with a boot loader":     {plant: map[int64]string{0: "\xeb\x63\x90", 510: "\x55\xaa"}, hasTable: true},
			"GPT whose copy is left":     {plant: map[int64]string{smallDisk - 512: "EFI PART"}},
			"GPT without protective MBR": {plant: map[int64]string{512: "EFI PART"}},
		} {
			sim, ops := newNode(t)
			simtest.Must(t, sim.SetSettings(winsim.Settings{BlankDisk: blank}))
			n := attach(t, sim, spec)
			for offset, s := range c.plant {
				plant(t, sim, n, offset, s)
			}
			before := imageOf(t, sim, n)
			want := csiproxy.ErrFailedPrecondition
			if blank == settings.BlankRefused && !c.hasTable && name != "BitLocker without a table" {
				want = csiproxy.ErrUnavailable // whether it has a table isn't known
			}
			simtest.WantErrorOf(t, name, ops.PartitionDisk(t.Context(), n), want)
			if imageOf(t, sim, n) != before {
				t.Errorf("%s: it was written to", name)
			}
		}
	})
}

// Any other error of the query says nothing of what is on the disk, nor does this one if the disk can't
// be read.
func TestUnknownTable(t *testing.T) {
	layout, read := win.IoctlDiskGetDriveLayoutEx.String(), win.CallRead
	for _, offline := range []bool{false, true} {
		for errno, want := range map[win.Errno]error{
			win.ErrorInvalidFunction: nil, win.ErrorNotSupported: nil, win.ErrorNotReady: csiproxy.ErrUnavailable,
			win.ErrorGenFailure: csiproxy.ErrUnavailable, win.ErrorIODevice: csiproxy.ErrUnavailable,
			win.ErrorAccessDenied: csiproxy.ErrUnavailable, win.ErrorInvalidParameter: csiproxy.ErrUnavailable,
		} {
			for _, readErr := range []win.Errno{0, win.ErrorIODevice} {
				synctest.Test(t, func(t *testing.T) {
					sim, ops := newNode(t)
					n := attach(t, sim, winsim.DiskSpec{SizeBytes: smallDisk, Offline: offline})
					before, fails := imageOf(t, sim, n), 0
					if want == nil && readErr == 0 { // once it has a table, Windows shows that
						fails = map[bool]int{false: 1, true: 2}[offline]
					}
					simtest.Must(t, sim.Fail(winsim.Match{Call: layout, Object: win.PhysicalDrive(n), Count: fails}, errno))
					want := want
					if readErr != 0 {
						simtest.Must(t, sim.Fail(winsim.Match{Call: read, Object: win.PhysicalDrive(n)}, readErr))
						want = csiproxy.ErrUnavailable
					}
					err := ops.PartitionDisk(t.Context(), n)
					simtest.WantErrorOf(t, fmt.Sprint(errno, readErr), err, want)
					if err != nil && !errors.As(err, new(win.Errno)) {
						t.Errorf("%v, %v: %v", errno, readErr, err)
					}
					if got := imageOf(t, sim, n); err != nil && got != before {
						t.Errorf("%v, %v: it was written to", errno, readErr)
					}
				})
			}
		}
	}
}
