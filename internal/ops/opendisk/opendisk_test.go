// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// twoFaced is a node on which a handle answers one query as another disk, from some time on.
type twoFaced struct {
	*winsim.System
	other   win.Device
	code    win.IoctlCode
	query   []byte
	swapped bool
}

func (s *twoFaced) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := s.System.OpenDevice(ctx, path, access)
	return twoFacedDevice{d, s}, err
}

type twoFacedDevice struct {
	win.Device
	sys *twoFaced
}

func (d twoFacedDevice) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	if d.sys.swapped && code == d.sys.code && bytes.Equal(in, d.sys.query) {
		return d.sys.other.Control(ctx, code, in, out)
	}
	return d.Device.Control(ctx, code, in, out)
}

// A disk is told from another one by its number, and by its serial number, or page 83 if it has
// none.
func TestVerify(t *testing.T) {
	naa := func(last byte) []win.Identifier {
		id := []byte{0x60, 1, 2, 3, 4, 5, 6, last}
		return []win.Identifier{{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA, ID: id}}
	}
	for name, c := range map[string]struct {
		serial string
		code   win.IoctlCode
		query  []byte
	}{
		"by the number":        {"a", win.IoctlStorageGetDeviceNumber, nil},
		"by the serial number": {"a", win.IoctlStorageQueryProperty, win.EncodePropertyQuery(win.PropertyDevice)},
		"by page 83":           {" ", win.IoctlStorageQueryProperty, win.EncodePropertyQuery(win.PropertyDeviceID)},
	} {
		t.Run(name, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: c.serial, Page83: naa(1)})
			otherNumber := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "other", Page83: naa(2)})
			other, err := sim.OpenDevice(t.Context(), win.PhysicalDrive(otherNumber), win.AccessNone)
			simtest.Must(t, err)
			defer other.Close()
			sys := &twoFaced{System: sim, other: other, code: c.code, query: c.query}
			d, err := opendisk.Open(t.Context(), sys, number, win.AccessNone)
			simtest.Must(t, err)
			defer d.Close()
			simtest.Must(t, d.Verify(t.Context()))
			sys.swapped = true
			simtest.WantError(t, d.Verify(t.Context()), csiproxy.ErrUnavailable)
			sys.swapped = false
			simtest.Must(t, d.Verify(t.Context()))
			simtest.Must(t, sim.DetachDisk(number))
			if err := d.Verify(t.Context()); err == nil {
				t.Error("a disk that has left is still there")
			}
		})
	}
}

// A disk that is opened for writing is the one whose identity was noted, whenever another disk comes in its place.
func TestOpenForWriting(t *testing.T) {
	for name, spec := range map[string]winsim.DiskSpec{
		"one that can't be told from it": {Serial: "a"},
		"another one":                    {Serial: "clone"},
	} {
		opened := 0
		for at := 1; ; at++ {
			sim := simtest.Open(t, winsim.Delays{})
			number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
			calls := 0
			sim.OnCall(func(winsim.Call) {
				if calls++; calls == at {
					simtest.Must(t, sim.SwapDisk(number, spec, false))
				}
			})
			d, err := opendisk.Open(t.Context(), sim, number, win.GenericRead|win.GenericWrite)
			isSwapped := calls >= at
			sim.OnCall(nil)
			if err == nil {
				opened++
				simtest.Must(t, d.Verify(t.Context()))
				simtest.Must(t, d.Close())
			}
			if !isSwapped {
				break
			}
		}
		simtest.Want(t, name+": how often it is opened", opened, 2) // swapped before the first handle is open, or after all calls
	}
}

// A disk that says that it has left is an error, one that refuses a query isn't. Identifiers are
// asked for only if somebody wants them, and once.
func TestAskHardware(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
	h, err := win.OpenDevice(t.Context(), sim, win.PhysicalDrive(number), win.AccessNone)
	simtest.Must(t, err)
	defer h.Close()
	query := win.IoctlStorageQueryProperty.String()
	calls := simtest.Counted(sim, query)
	said, err := opendisk.AskHardware(t.Context(), h)
	simtest.Must(t, err)
	if said.IdentifiersAsked || calls()[0] != 1 {
		t.Errorf("asked for its hardware: %+v after %d queries", said, calls()[0])
	}
	for range 2 {
		simtest.Must(t, said.AskIdentifiers(t.Context(), h))
		if !said.IdentifiersAsked || calls()[0] != 2 {
			t.Errorf("asked for its identifiers: %+v after %d queries", said, calls()[0])
		}
	}
	for _, number := range []winerr.Errno{winerr.ErrorDeviceRemoved, winerr.ErrorNotReady} {
		simtest.Must(t, sim.Fail(winsim.Match{Call: query, Count: 1}, number))
		if _, err := opendisk.AskHardware(t.Context(), h); !errors.Is(err, number) {
			t.Errorf("after error %d: %v", uint32(number), err)
		}
	}
	simtest.Must(t, sim.Fail(winsim.Match{Call: query, Count: 1}, winerr.ErrorInvalidFunction))
	said, err = opendisk.AskHardware(t.Context(), h)
	if err != nil || !errors.Is(said.DescriptorErr, winerr.ErrorInvalidFunction) {
		t.Errorf("a disk that refuses a query: %+v, %v", said, err)
	}
	said = opendisk.Hardware{}
	simtest.Must(t, sim.Fail(winsim.Match{Call: query, Count: 1}, winerr.ErrorInvalidFunction))
	err = said.AskIdentifiers(t.Context(), h)
	if err != nil || !errors.Is(said.IdentifiersErr, winerr.ErrorInvalidFunction) {
		t.Errorf("a disk that refuses to tell its identifiers: %+v, %v", said, err)
	}
}

// A volume is found where Windows doesn't tell that of a partition. All volumes of the node are
// searched only for one that is late.
func TestSearchForVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, windows := range []winsim.Settings{{}, {NoPartitionDevices: true}, {PartitionsNamedByDevice: true}} {
			untold := windows != winsim.Settings{}
			for _, arrival := range []time.Duration{900 * time.Millisecond, 3 * time.Second} {
				sim := simtest.Open(t, winsim.Delays{VolumeArrival: arrival})
				simtest.Must(t, sim.SetSettings(windows))
				searched := untold || arrival > time.Second
				n := simtest.Attach(t, sim, winsim.DiskSpec{})
				simtest.Partition(t, sim, n, 1)
				simtest.Partition(t, sim, simtest.Attach(t, sim, winsim.DiskSpec{}), 1) // of the same number
				d, err := opendisk.Open(t.Context(), sim, n, win.AccessNone)
				simtest.Must(t, err)
				defer d.Close()
				layout, err := d.Layout(t.Context())
				simtest.Must(t, err)
				searches := simtest.Counted(sim, win.CallFindVolumes)
				found, err := d.AwaitVolumes(t.Context(), sim, sim, opendisk.DataPartitions(layout), time.Minute)
				if got := searches()[0]; err != nil || len(found) != 1 || (got > 0) != searched {
					t.Errorf("partitions untold %t, after %v: %v after %d searches, %v", untold, arrival, found, got, err)
				}
				if names := slices.Collect(maps.Values(found)); !slices.Equal(names, sim.VolumesOfDisk(n)) {
					t.Errorf("partitions untold %t, after %v: found %q, it has %q", untold, arrival, names, sim.VolumesOfDisk(n))
				}
			}
		}
	})
}

// A volume is found as soon as Windows says that it is ready. If Windows refuses to say that, or never does, it is found later.
func TestVolumesAreReady(t *testing.T) {
	const arrival = 200 * time.Millisecond
	ready := winsim.Match{Call: win.IoctlDiskAreVolumesReady.String()}
	for name, test := range map[string]struct {
		prepare func(sim *winsim.System) error
		isSoon  bool
	}{
		"Windows says it":       {func(*winsim.System) error { return nil }, true},
		"Windows refuses":       {func(sim *winsim.System) error { return sim.Fail(ready, winerr.ErrorInvalidFunction) }, false},
		"Windows never answers": {func(sim *winsim.System) error { return sim.DelayUncancellable(ready, time.Hour) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: arrival})
			sys := operation.NewWindows(sim, nil, nil)
			n := simtest.Attach(t, sim, winsim.DiskSpec{})
			simtest.Must(t, errors.Join(test.prepare(sim), sim.Fail(winsim.Match{Call: win.CallNotifyArrivals}, winerr.ErrorAccessDenied)))
			begun := time.Now()
			simtest.Partition(t, sim, n, 1)
			d, err := opendisk.Open(t.Context(), sys, n, win.AccessNone)
			simtest.Must(t, err)
			defer d.Close()
			layout, err := d.Layout(t.Context())
			simtest.Must(t, err)
			found, err := d.AwaitVolumes(t.Context(), sys, sys, opendisk.DataPartitions(layout), time.Minute)
			isSoon := time.Since(begun) < arrival+10*time.Millisecond
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("%s: it takes %v", name, took)
			}
			if err != nil || len(found) != 1 || isSoon != test.isSoon {
				t.Errorf("%s: found %v after %v, %v", name, found, time.Since(begun), err)
			}
			sim.ResetRules()
			time.Sleep(2 * time.Hour)
		})
	}
}

// A volume of another disk that hangs delays no search that finds all partitions, and any other search by a moment. Whether
// it is the missing volume is unknown. A volume that fails isn't missing. The moments get longer, so a slow volume is found.
func TestSearchBesideVolumeInTrouble(t *testing.T) {
	const patience = 15 * time.Second
	for _, test := range []struct {
		name        string
		own, others time.Duration // how long the open of the disk's volume, and of the other one, takes; 0: at once
		fails       bool          // the open of the other one
		knownToHang bool          // the other one
		missing     bool          // a partition is awaited that the disk doesn't have
		timeout     time.Duration
		want        error
		min, max    time.Duration
	}{
		{name: "all there, one hangs", others: time.Hour},
		{name: "all there, one hangs, patient", others: time.Hour, timeout: patience, min: time.Second, max: time.Second + withNotices},
		{name: "all there, slow, patient", own: 900 * time.Millisecond, timeout: patience, min: time.Second, max: patience},
		{name: "one missing", missing: true},
		{name: "one missing, one fails", missing: true, fails: true},
		{name: "one missing, one hangs", others: time.Hour, missing: true, want: csiproxy.ErrUnavailable, min: 200 * time.Millisecond,
			max: 200 * time.Millisecond},
		{name: "one missing, one is known to hang", others: time.Hour, knownToHang: true, missing: true, want: csiproxy.ErrUnavailable},
		{name: "one missing, one hangs, patient", others: time.Hour, missing: true, timeout: patience, want: csiproxy.ErrUnavailable,
			min: patience, max: patience + patience/5},
	} {
		synctest.Test(t, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			sys := operation.NewWindows(sim, nil, nil)
			simtest.Must(t, sim.SetSettings(winsim.Settings{NoPartitionDevices: true}))
			n, other := simtest.Attach(t, sim, winsim.DiskSpec{}), simtest.Attach(t, sim, winsim.DiskSpec{})
			for _, disk := range []csiproxy.DiskNumber{n, other} {
				simtest.Partition(t, sim, disk, 1)
			}
			sim.Settle()
			d, err := opendisk.Open(t.Context(), sys, n, win.AccessNone)
			simtest.Must(t, err)
			defer d.Close()
			layout, err := d.Layout(t.Context())
			simtest.Must(t, err)
			wanted := opendisk.DataPartitions(layout)
			if test.missing {
				wanted = append(wanted, 77)
			}
			open := func(disk csiproxy.DiskNumber) winsim.Match {
				m := winsim.Match{Call: win.CallOpen, Object: win.VolumePath(sim.VolumesOfDisk(disk)[0])}
				if !test.missing { // the search may have ended before the other volume is opened
					m.Fires = winsim.MayFire
				}
				return m
			}
			for disk, takes := range map[csiproxy.DiskNumber]time.Duration{n: test.own, other: test.others} {
				if takes > 0 {
					simtest.Must(t, sim.DelayUncancellable(open(disk), takes))
				}
			}
			if test.fails {
				simtest.Must(t, sim.Fail(open(other), winerr.ErrorIODevice))
			}
			if test.knownToHang {
				go func() {
					if h, err := win.OpenDevice(context.Background(), sys, open(other).Object, win.AccessNone); err == nil {
						h.Close()
					}
				}()
				time.Sleep(2 * time.Second)
			}
			begun := time.Now()
			var found opendisk.Volumes
			if test.timeout > 0 {
				found, err = d.AwaitVolumes(t.Context(), sys, sys, wanted, test.timeout)
			} else {
				found, err = d.PresentVolumes(t.Context(), sys, sys, wanted)
			}
			took := time.Since(begun)
			simtest.WantErrorOf(t, test.name, err, test.want)
			if took < test.min || took > test.max || err == nil && !slices.Equal(slices.Collect(maps.Values(found)), sim.VolumesOfDisk(n)) {
				t.Errorf("%s: found %v after %v", test.name, found, took)
			}
			sim.ResetRules()
			time.Sleep(2 * time.Hour)
		})
	}
}

// withNotices is how often volumes are awaited between notices.
const withNotices = 250 * time.Millisecond

// An open for writing is repeated for a while if the disk isn't ready or somebody else has it open.
func TestOpenIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		n := simtest.Attach(t, sim, winsim.DiskSpec{})
		for _, c := range []struct {
			errno    winerr.Errno
			count    int // of refusals; 0 is all
			access   win.Access
			attempts int
		}{
			// Before an open for writing, the disk is asked through another handle what it is.
			{winerr.ErrorAccessDenied, 3, win.GenericRead | win.GenericWrite, 5},
			{winerr.ErrorNotReady, 3, win.GenericRead | win.GenericWrite, 5},
			{winerr.ErrorSharingViolation, 3, win.GenericRead | win.GenericWrite, 5},
			{winerr.ErrorSharingViolation, 3, win.AccessNone, 1},
			{winerr.ErrorIODevice, 3, win.GenericRead | win.GenericWrite, 1},
			{winerr.ErrorSharingViolation, 0, win.GenericRead | win.GenericWrite, 51},
		} {
			open := winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(n), Count: c.count}
			simtest.Must(t, sim.Fail(open, c.errno))
			attempts := simtest.Counted(sim, win.CallOpen)
			d, err := opendisk.Open(t.Context(), sim, n, c.access)
			got := attempts()[0]
			if err == nil {
				simtest.Must(t, d.Close())
			}
			if opens := c.attempts > c.count && c.count > 0; (err == nil) != opens || !opens && !errors.Is(err, c.errno) ||
				got < c.attempts || got > c.attempts+1 { // the last one comes when the time is over
				t.Errorf("error %d %d times, access %x: %d attempts, %v", c.errno, c.count, c.access, got, err)
			}
			sim.ResetRules()
		}
	})
}
