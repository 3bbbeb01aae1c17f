// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

var askReady = win.IoctlDiskAreVolumesReady.String()

// arriving brings in a disk whose volume comes 2.9 seconds later, and opens it.
func arriving(t *testing.T, sim *winsim.System, sys win.DeviceOpener) (d *opendisk.Disk, partitions []uint32) {
	t.Helper()
	n := simtest.Attach(t, sim, winsim.DiskSpec{})
	simtest.Partition(t, sim, n, 1)
	d, err := opendisk.Open(t.Context(), sys, n, win.AccessNone)
	simtest.Must(t, err)
	layout, err := d.Layout(t.Context())
	simtest.Must(t, err)
	return d, opendisk.DataPartitions(layout)
}

const arrival = 2900 * time.Millisecond

// Volumes are found whatever IOCTL_DISK_ARE_VOLUMES_READY does. Where it works, or doesn't return,
// there are few looks; else there are as many as without it. Where Windows doesn't know it, or
// can't be interrupted in it, it is called once.
func TestAwaitReady(t *testing.T) {
	const polled, seldom = 3 * time.Second, 3750 * time.Millisecond // by looks
	for name, test := range map[string]struct {
		settings winsim.Settings
		stuck    bool             // nothing ends the call
		fails    string           // a call that fails
		after    [2]time.Duration // how long after its partition the volume of each of two disks is found
		looks    int              // of the first
		asked    int              // how often, for both
	}{
		"works":     {winsim.Settings{}, false, "", [2]time.Duration{arrival, arrival}, 7, 2},
		"error 1":   {winsim.Settings{NoVolumesReady: 1}, false, "", [2]time.Duration{polled, polled}, 15, 1},
		"error 50":  {winsim.Settings{NoVolumesReady: 50}, false, "", [2]time.Duration{polled, polled}, 15, 1},
		"error 87":  {winsim.Settings{NoVolumesReady: 87}, false, "", [2]time.Duration{polled, polled}, 15, 1},
		"error 21":  {winsim.Settings{NoVolumesReady: 21}, false, "", [2]time.Duration{polled, polled}, 15, 2},
		"too early": {winsim.Settings{VolumesReadyEarly: true}, false, "", [2]time.Duration{polled, polled}, 15, 2},
		"never":     {winsim.Settings{VolumesReadyNever: true}, false, "", [2]time.Duration{seldom, seldom}, 7, 2},
		"not even when it is interrupted": {winsim.Settings{}, true, "",
			[2]time.Duration{seldom + time.Second, polled}, 7, 1},
		"the disk can't be opened": {winsim.Settings{}, false, win.CallOpen, [2]time.Duration{polled, polled}, 15, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := simtest.Open(t, winsim.Delays{VolumeArrival: arrival})
				test.settings.NoNotices = true
				simtest.Must(t, sim.SetSettings(test.settings))
				sys := wincalls.New(sim, wincalls.Options{})
				finder := opendisk.NewFinder(sys)
				asked := simtest.Counted(sim, askReady)
				for i, after := range test.after {
					begin := time.Now()
					d, partitions := arriving(t, sim, sys)
					if test.fails != "" {
						simtest.Must(t, sim.Fail(winsim.Match{Call: test.fails}, win.ErrorAccessDenied))
					}
					if test.stuck {
						simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: askReady}, time.Hour))
					}
					looks := simtest.Counted(sim, win.CallVolumeNameForMountPoint)
					found, err := d.AwaitVolumes(t.Context(), finder, partitions, time.Minute, nil)
					if took := time.Since(begin); err != nil || len(found) != 1 || took != after {
						t.Errorf("disk %d: %v after %v, %v; want it after %v", i, found, took, err, after)
					}
					if got := looks()[0]; i == 0 && got != test.looks {
						t.Errorf("%d looks; want %d", got, test.looks)
					}
					simtest.Must(t, d.Close())
					if open := sim.OpenHandles(); len(open) > 0 && !test.stuck {
						t.Errorf("left open: %q", open)
					}
					sim.ResetRules()
					synctest.Wait()
					if open := sim.OpenHandles(); len(open) > 0 {
						t.Errorf("left open when nothing is under way any more: %q", open)
					}
				}
				simtest.Want(t, "questions to Windows", asked()[0], test.asked)
			})
		})
	}
}

// Notices bring the next look while Windows is asked, and a volume that they bring soon is found
// without the question.
func TestNoticesBesideReady(t *testing.T) {
	for after, want := range map[time.Duration]int{arrival: 1, 200 * time.Millisecond: 0} {
		synctest.Test(t, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{VolumeArrival: after})
			simtest.Must(t, sim.SetSettings(winsim.Settings{VolumesReadyNever: true}))
			begin := time.Now()
			d, partitions := arriving(t, sim, sim)
			defer d.Close()
			asked := simtest.Counted(sim, askReady)
			_, err := d.AwaitVolumes(t.Context(), opendisk.NewFinder(sim), partitions, time.Minute, nil)
			if took := time.Since(begin); err != nil || took != after || asked()[0] != want {
				t.Errorf("found after %v, want %v; %d questions, want %d; %v", took, after, asked()[0], want, err)
			}
		})
	}
}

// A wait ends with its caller, its patience or an error of who keeps the disk, and the question
// with it. A question ends by itself before its call counts as one that Windows doesn't answer.
func TestEndOfReady(t *testing.T) {
	gone := errors.New("gone")
	for name, test := range map[string]struct {
		within, patience time.Duration
		keeps            int // looks after which keep fails
		want             time.Duration
		is               error
		asked            bool // still, a moment before the end
	}{
		"caller": {within: 5 * time.Second, patience: time.Minute, want: 5 * time.Second,
			is: context.DeadlineExceeded, asked: true},
		"patience": {within: time.Hour, patience: 7 * time.Second, want: 7 * time.Second, asked: true},
		"keep": {within: time.Hour, patience: time.Minute, keeps: 5, want: 1750 * time.Millisecond,
			is: gone, asked: true},
		"question": {within: time.Hour, patience: 20 * time.Second, want: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := simtest.Open(t, winsim.Delays{VolumeArrival: time.Hour})
				simtest.Must(t, sim.SetSettings(winsim.Settings{VolumesReadyNever: true}))
				sys := wincalls.New(sim, wincalls.Options{})
				d, partitions := arriving(t, sim, sys)
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				open, looks, begin := 0, 0, time.Now()
				keep := func() error {
					open = len(sim.OpenHandles())
					if looks++; looks == test.keeps {
						return gone
					}
					for _, load := range sys.Load() {
						if load.Overdue > 0 {
							t.Errorf("%+v", load)
						}
					}
					return nil
				}
				_, err := d.AwaitVolumes(ctx, opendisk.NewFinder(sys), partitions, test.patience, keep)
				took := time.Since(begin)
				if err == nil || test.is != nil && !errors.Is(err, test.is) || took != test.want {
					t.Errorf("%v after %v; want %v after %v", err, took, test.is, test.want)
				}
				if (open == 2) != test.asked {
					t.Errorf("%d handles were open at the last look", open)
				}
				simtest.Must(t, d.Close())
				if open := sim.OpenHandles(); len(open) > 0 {
					t.Errorf("left open: %q", open)
				}
			})
		})
	}
}

// A panic in the question is that of who waits: in the daemon it ends a call, and not the process.
func TestPanicInReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{VolumeArrival: arrival})
		d, partitions := arriving(t, sim, sim)
		defer d.Close()
		sim.OnCall(func(c winsim.Call) {
			if c.Name == askReady {
				panic("it died")
			}
		})
		defer func() {
			simtest.Want(t, "the panic", recover(), "it died")
		}()
		_, err := d.AwaitVolumes(t.Context(), opendisk.NewFinder(sim), partitions, time.Minute, nil)
		t.Error(err)
	})
}

// Questions take no places of other calls on the disk, however many wait for its volumes.
func TestReadyTakesNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{VolumeArrival: arrival})
		sys := wincalls.New(sim, wincalls.Options{})
		finder := opendisk.NewFinder(sys)
		d, partitions := arriving(t, sim, sys)
		defer d.Close()
		ended := make(chan error)
		const waits = 20
		for range waits {
			go func() {
				_, err := d.AwaitVolumes(t.Context(), finder, partitions, time.Minute, nil)
				ended <- err
			}()
		}
		time.Sleep(arrival / 2)
		synctest.Wait()
		for _, load := range sys.Load() {
			want := map[string]int{"volume-arrivals": 4}[load.Pool]
			if load.Running != want || want == 0 && load.Waiting > 0 {
				t.Errorf("%+v; want %d under way", load, want)
			}
		}
		for range waits {
			simtest.Must(t, <-ended)
		}
	})
}
