// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk/signaturetest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const smallDisk = 20 << 20

// slowArrival gives Windows the time to take a disk that has arrived offline again, before its volumes come.
var slowArrival = winsim.Delays{VolumeArrival: 10 * time.Millisecond}

// imageOf is a sum over all bytes of a small disk but its first ones.
func imageOf(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber, skipped int) uint32 {
	t.Helper()
	b := make([]byte, smallDisk)
	simtest.Must(t, sim.ReadImage(n, b, 0))
	return crc32.ChecksumIEEE(b[skipped:])
}

// ways are what drivers do with a disk that may have to be partitioned and formatted. The last one goes
// on after errors.
var ways = map[string]func(ctx context.Context, node *nodeops.Node, n csiproxy.DiskNumber) error{
	"StageVolume": func(ctx context.Context, node *nodeops.Node, n csiproxy.DiskNumber) error {
		_, err := node.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{Number: &n}, StagingPath: simtest.Kubelet + `\plugins\example\pv-1\globalmount`})
		return err
	},
	"PartitionDisk": func(ctx context.Context, node *nodeops.Node, n csiproxy.DiskNumber) error {
		return node.Disk.PartitionDisk(ctx, n)
	},
	"FormatVolume": func(ctx context.Context, node *nodeops.Node, n csiproxy.DiskNumber) error {
		err := errors.Join(node.Disk.SetDiskState(ctx, n, true), node.Disk.PartitionDisk(ctx, n))
		ids, listErr := node.Volume.ListVolumesOnDisk(ctx, n, 0)
		for _, id := range ids {
			err = errors.Join(err, node.Volume.FormatVolume(ctx, id))
		}
		return errors.Join(err, listErr)
	},
}

// attempt is one of the ways, on a disk that is online or not, and on some Windows.
type diskAttempt struct {
	way     string
	offline bool
	windows winsim.Settings
}

// attempts are all ways with the switches that decide what Windows shows of a disk, and when.
func diskAttempts() (all []diskAttempt) {
	var windows []winsim.Settings
	for blank := settings.BlankMBR; blank <= settings.BlankRefused; blank++ {
		for offline := settings.OfflineShown; offline <= settings.OfflineNotReady; offline++ {
			windows = append(windows, winsim.Settings{BlankDisk: blank, OfflineLayout: offline})
		}
	}
	windows = append(windows, winsim.Settings{OfflineAfterArrival: true}, winsim.Settings{NoAutomount: true},
		winsim.Settings{ClonesStayOffline: true}, winsim.Settings{ReadOnlyMounts: true}, winsim.Settings{AutomaticMSR: true})
	for _, w := range windows {
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			all = append(all, diskAttempt{way, false, w}, diskAttempt{way, true, w})
		}
	}
	return all
}

func (a diskAttempt) String() string {
	return fmt.Sprintf("%s,offline=%t,%s", a.way, a.offline, simtest.SettingsName(a.windows))
}

// run tries what a driver does with a disk. Before each call to Windows, called is run with its index.
func (a diskAttempt) run(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber, called func(i int, c winsim.Call)) error {
	t.Helper()
	if !a.offline {
		setAttributes(t, sim, n, 0)
	}
	sim.Settle()
	simtest.Must(t, errors.Join(sim.MkdirAll(simtest.Kubelet), sim.SetSettings(a.windows)))
	node, err := nodeops.New(sim, nodeops.Options{})
	simtest.Must(t, err)
	simtest.BeforeCalls(sim, called)
	err = ways[a.way](t.Context(), node, n)
	sim.OnCall(nil)
	sim.Settle()
	return err
}

// A blank disk gets its partition, and that its file system, in whichever way Windows says that the disk
// has no table.
func TestBlankDisk(t *testing.T) {
	for _, a := range diskAttempts() {
		synctest.Test(t, func(t *testing.T) {
			sim := simtest.Open(t, slowArrival)
			n := attach(t, sim, winsim.DiskSpec{SizeBytes: smallDisk, Offline: true})
			simtest.WantErrorOf(t, a.String(), a.run(t, sim, n, func(int, winsim.Call) {}), nil)
			formatted := slices.ContainsFunc(sim.Volumes(), func(v volumes.Info) bool {
				return v.DiskNumber == n && v.FileSystem == "NTFS"
			})
			if len(sim.VolumesOfDisk(n)) != 1 || formatted != (a.way != "PartitionDisk") {
				t.Errorf("%s: its volumes are %q, formatted: %t", a, sim.VolumesOfDisk(n), formatted)
			}
		})
	}
}

// A list opens disks for queries only, and so can't read one for which Windows refuses this query.
func TestListOfBlankDisk(t *testing.T) {
	for blank := settings.BlankMBR; blank <= settings.BlankRefused; blank++ {
		sim, ops := newDiskNode(t)
		simtest.Must(t, sim.SetSettings(winsim.Settings{BlankDisk: blank}))
		n := attach(t, sim, winsim.DiskSpec{})
		described, err := ops.Describe(t.Context(), csiproxy.Selector{Number: &n})
		simtest.Must(t, err)
		if got := described[0]; (got.Style == csiproxy.PartitionStyleRAW) == (blank == settings.BlankRefused) ||
			(got.Error == "") == (blank == settings.BlankRefused) {
			t.Errorf("blank %d: it is listed as %+v", blank, got)
		}
	}
}

// lookalike is a disk with data of others that may look blank.
type lookalike struct {
	name      string
	attach    func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber // offline
	partition bool                                                       // the data are in a partition, so the disk needs none
	rewritten int                                                        // so many first bytes are Windows' to change
}

// lookalikes are disks with each kind of data, as they are and in a partition, with remains of tables, and
// with others that show little.
func lookalikes() (all []lookalike) {
	write := func(t *testing.T, sim *winsim.System, parts ...any) csiproxy.DiskNumber {
		n := attach(t, sim, winsim.DiskSpec{SizeBytes: smallDisk, Offline: true})
		for i := 0; i < len(parts); i += 2 {
			plant(t, sim, n, int64(parts[i].(int)), parts[i+1].(string))
		}
		return n
	}
	for _, m := range signaturetest.Media {
		all = append(all, lookalike{name: m.Name, attach: func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
			n := write(t, sim)
			m.Parts(smallDisk, func(offset int64, s string) { plant(t, sim, n, offset, s) })
			return n
		}}, lookalike{name: m.Name + " in a partition", partition: true,
			attach: func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
				n := write(t, sim, 0, smallMBR)
				m.Parts(18*mebibyte, func(offset int64, s string) { plant(t, sim, n, mebibyte+offset, s) })
				return n
			}})
	}
	for name, parts := range map[string][]any{
		"MBR with a signature":       {0, mbr(0)},
		"MBR without a signature":    {510, "\x55\xaa"},
		"MBR with a boot loader":     {0, "\xeb\x63\x90", 510, "\x55\xaa"},
		"GPT whose copy is left":     {smallDisk - 512, "EFI PART"},
		"GPT without protective MBR": {512, "EFI PART"},
		"GPT with a damaged head":    {0, mbr(0xEE), 512, "EFI PART\x00\x00\x01\x00damaged", smallDisk - 512, "EFI PART"},
		"BitLocker without a table":  {16 << 20, "\xeb\x58\x90-FVE-FS-"},
	} {
		all = append(all, lookalike{name: name,
			attach: func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber { return write(t, sim, parts...) }})
	}
	all = append(all, lookalike{name: "locked by BitLocker", partition: true,
		attach: func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
			n := write(t, sim, 0, smallMBR)
			setAttributes(t, sim, n, 0)
			sim.Settle()
			simtest.Must(t, sim.SetVolumeLocked(sim.VolumesOfDisk(n)[0], true))
			setAttributes(t, sim, n, win.DiskOffline)
			return n
		}}, lookalike{name: "clone", partition: true, rewritten: 512, // Windows gives it a signature of its own
		attach: func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
			original := write(t, sim, 0, smallMBR, mebibyte, "LUKS\xba\xbe")
			setAttributes(t, sim, original, 0)
			n, err := sim.CloneDisk(original, winsim.DiskSpec{SizeBytes: smallDisk, Offline: true})
			simtest.Must(t, err)
			return n
		}})
	// One that shows nothing holds anything.
	for _, errno := range []winerr.Errno{winerr.ErrorNotReady, winerr.ErrorGenFailure, winerr.ErrorIODevice, winerr.ErrorAccessDenied,
		winerr.ErrorInvalidParameter, winerr.ErrorInvalidFunction} {
		all = append(all, lookalike{name: fmt.Sprint("table gives ", uint32(errno)),
			attach: func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
				n := write(t, sim)
				fail := func(call string) {
					simtest.Must(t, sim.Fail(winsim.Match{Call: call, Object: win.PhysicalDrive(n), Fires: winsim.MayFire}, errno))
				}
				if fail(win.IoctlDiskGetDriveLayoutEx.String()); errno == winerr.ErrorInvalidFunction {
					fail(win.CallRead)
				}
				return n
			}})
	}
	return append(all, lookalike{name: "can't be read", attach: func(t *testing.T, sim *winsim.System) csiproxy.DiskNumber {
		n := write(t, sim)
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallRead, Object: win.PhysicalDrive(n), Fires: winsim.MayFire}, winerr.ErrorIODevice))
		return n
	}})
}

// smallMBR is a boot sector with a partition for Windows, of 18 MiB from 1 MiB on.
var smallMBR = func() string {
	b := []byte(mbr(7))
	binary.LittleEndian.PutUint32(b[446+12:], 18*mebibyte/512)
	return string(b)
}()

const mebibyte = 1 << 20

// A disk that looks blank, but isn't, is never written to, whatever Windows shows of it and whichever call
// fails. Without a failure it is refused.
func TestDisksThatLookBlank(t *testing.T) {
	all := diskAttempts()
	every := 4 // all take minutes
	if simtest.Sampled() {
		every = len(all) / 2
	}
	for i, look := range lookalikes() {
		t.Run(look.name, func(t *testing.T) {
			t.Parallel()
			for k, a := range all {
				nth := (k + 5*i) % len(all) // others for each disk
				if nth%every != 0 {
					continue
				}
				calls, step := look.stays(t, a, -1, 0), 1
				switch {
				case simtest.Sampled():
					step = calls
				case nth != 0:
					continue
				default: // the disks have most calls in common: each fails at many of these
					step = 10
				}
				for at := 31 * (i + k) % step; at < calls; at += step {
					look.stays(t, a, at, simtest.Errors[(i+k+at)%len(simtest.Errors)])
				}
			}
		})
	}
}

// stays checks that nothing is written to a disk if the call with an index fails, and returns how many calls
// are made.
func (l lookalike) stays(t *testing.T, a diskAttempt, failing int, errno winerr.Errno) (calls int) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, slowArrival)
		n := l.attach(t, sim)
		before := imageOf(t, sim, n, l.rewritten)
		var made atomic.Int64 // several may be made at one time
		err := a.run(t, sim, n, func(i int, c winsim.Call) {
			if made.Add(1); i == failing {
				simtest.Must(t, sim.Fail(winsim.Match{Call: c.Name, Count: 1, Fires: winsim.MayFire}, errno))
			}
		})
		calls = int(made.Load())
		if imageOf(t, sim, n, l.rewritten) != before {
			t.Errorf("%s, call %d fails with %d: it was written to; the error is %v", a, failing, errno, err)
		}
		if refused := !l.partition || a.way != "PartitionDisk"; failing < 0 && refused && err == nil {
			t.Errorf("%s: it isn't refused", a)
		}
	})
	return calls
}

// A disk with data of another system and no table is refused before it goes online, when Windows may write to it.
func TestForeignDiskStaysOffline(t *testing.T) {
	for offline := settings.OfflineShown; offline <= settings.OfflineNotReady; offline++ {
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			for name, parts := range map[string]map[int64]string{
				"exFAT":                  {3: "EXFAT   ", 510: "\x55\xaa"},
				"XFS":                    {0: "XFSB"},
				"damaged GPT":            {512: "EFI PART"},
				"MBR, a Linux partition": {0: mbr(0x83)},
			} {
				synctest.Test(t, func(t *testing.T) {
					sim := simtest.Open(t, slowArrival)
					n := attach(t, sim, winsim.DiskSpec{SizeBytes: smallDisk, Offline: true})
					for offset, s := range parts {
						plant(t, sim, n, offset, s)
					}
					a := diskAttempt{way, true, winsim.Settings{OfflineLayout: offline}}
					online := 0
					err := a.run(t, sim, n, func(_ int, c winsim.Call) {
						if c.Name == win.IoctlDiskSetDiskAttributes.String() {
							online++
						}
					})
					simtest.WantErrorOf(t, name+", "+a.String(), err, csiproxy.ErrFailedPrecondition)
					if online != 0 {
						t.Errorf("%s, %s: its attributes are changed %d times", name, a, online)
					}
				})
			}
		}
	}
}

// Any other error of the query says nothing of what is on the disk, nor does this one if the disk can't
// be read.
func TestUnknownTable(t *testing.T) {
	layout, read := win.IoctlDiskGetDriveLayoutEx.String(), win.CallRead
	for _, offline := range []bool{false, true} {
		for errno, want := range map[winerr.Errno]error{
			winerr.ErrorInvalidFunction: nil, winerr.ErrorNotSupported: nil, winerr.ErrorNotReady: csiproxy.ErrUnavailable,
			winerr.ErrorGenFailure: csiproxy.ErrUnavailable, winerr.ErrorIODevice: csiproxy.ErrUnavailable,
			winerr.ErrorAccessDenied: csiproxy.ErrUnavailable, winerr.ErrorInvalidParameter: csiproxy.ErrUnavailable,
		} {
			for _, readErr := range []winerr.Errno{0, winerr.ErrorIODevice} {
				synctest.Test(t, func(t *testing.T) {
					sim, ops := newDiskNode(t)
					n := attach(t, sim, winsim.DiskSpec{SizeBytes: smallDisk, Offline: offline})
					before, fails := imageOf(t, sim, n, 0), 0
					if want == nil && readErr == 0 { // once it has a table, Windows shows that
						fails = map[bool]int{false: 1, true: 2}[offline]
					}
					simtest.Must(t, sim.Fail(winsim.Match{Call: layout, Object: win.PhysicalDrive(n), Count: fails}, errno))
					want := want
					if readErr != 0 {
						simtest.Must(t, sim.Fail(winsim.Match{Call: read, Object: win.PhysicalDrive(n), Fires: winsim.MayFire}, readErr))
						want = csiproxy.ErrUnavailable
					}
					err := ops.PartitionDisk(t.Context(), n)
					simtest.WantErrorOf(t, fmt.Sprint(errno, readErr), err, want)
					if err != nil && !errors.As(err, new(winerr.Errno)) {
						t.Errorf("%v, %v: %v", errno, readErr, err)
					}
					if got := imageOf(t, sim, n, 0); err != nil && got != before {
						t.Errorf("%v, %v: it was written to", errno, readErr)
					}
				})
			}
		}
	}
}
