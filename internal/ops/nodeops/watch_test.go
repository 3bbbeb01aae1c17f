// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// watch is a watcher that takes each value as soon as it comes.
type watch struct {
	t       *testing.T
	changes chan csiproxy.DiskChanges
	ended   chan error
	cancel  context.CancelFunc
}

func watchDisks(t *testing.T, n *nodeops.Node, wanted csiproxy.Selector) *watch {
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{t, make(chan csiproxy.DiskChanges, 1000), make(chan error, 1), cancel}
	go func() {
		for changes, err := range n.Storage.WatchDisks(ctx, wanted) {
			if err != nil {
				w.ended <- err
				continue // nothing comes after it
			}
			w.changes <- changes
		}
		close(w.changes)
	}()
	return w
}

// next checks the next value, and that it comes within a time.
func (w *watch) next(within time.Duration, want string) csiproxy.DiskChanges {
	w.t.Helper()
	begun := time.Now()
	select {
	case c := <-w.changes:
		simtest.Want(w.t, "told", text(c), want)
		if took := time.Since(begun); took > within {
			w.t.Errorf("%q is told after %v, want within %v", want, took, within)
		}
		return c
	case err := <-w.ended:
		w.t.Fatalf("the watch has ended: %v", err)
	case <-time.After(time.Hour):
		w.t.Fatalf("nothing is told, want %q", want)
	}
	return csiproxy.DiskChanges{}
}

// quiet checks that nothing is told for a time.
func (w *watch) quiet(d time.Duration) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	select {
	case c := <-w.changes:
		w.t.Errorf("told %q, want nothing", text(c))
	case err := <-w.ended:
		w.t.Errorf("the watch has ended: %v", err)
	default:
	}
}

// stop ends the watch by its context.
func (w *watch) stop() {
	w.t.Helper()
	begun := time.Now()
	w.cancel()
	if err := <-w.ended; !errors.Is(err, context.Canceled) || time.Since(begun) > 0 {
		w.t.Errorf("the watch ends with %v, after %v", err, time.Since(begun))
	}
	if _, more := <-w.changes; more {
		w.t.Error("something comes after the end")
	}
}

// text says what has changed: -1 for a disk that has left, +1 for one that has come, and *1
// for one that has changed, each with what is to be told apart.
func text(c csiproxy.DiskChanges) string {
	var all []string
	for _, part := range []struct {
		sign  string
		disks []csiproxy.Disk
	}{{"-", c.Removed}, {"+", c.Added}, {"*", c.Changed}} {
		for _, d := range part.disks {
			what := d.SerialNumber
			switch {
			case d.Error != "":
				what = strings.TrimSpace(what + " error")
			case d.SystemReason != "":
				what = "system"
			}
			all = append(all, fmt.Sprintf("%s%d %s", part.sign, d.Number, what))
		}
	}
	return strings.Join(all, ", ")
}

func newWatchedNode(t *testing.T, settings winsim.Settings) (*winsim.System, *nodeops.Node) {
	t.Helper()
	sim, n := newStagingNode(t)
	simtest.Must(t, sim.SetSettings(settings))
	return sim, n
}

const (
	noticed        = 20 * time.Millisecond // from a notice to the look
	soon           = time.Second           // time for the looks right after a notice
	polled         = csiproxy.WatchInterval
	stagingPatient = nodeops.DefaultSilentDiskTimeout
)

// The list comes first, then everything that changes, whether Windows gives notices or not.
func TestWatchDisks(t *testing.T) {
	for _, settings := range []winsim.Settings{{}, {NoNotices: true}} {
		t.Run(fmt.Sprintf("NoNotices=%v", settings.NoNotices), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, n := newWatchedNode(t, settings)
				ctx := t.Context()
				arrives := noticed // by Windows' notice
				if settings.NoNotices {
					arrives = polled
				}
				a := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
				sim.Settle()
				w := watchDisks(t, n, csiproxy.Selector{})
				if c := w.next(0, "+0 system, +1 a"); len(c.Added) != 2 || c.Added[0].SystemReason == "" ||
					c.Added[1].SizeBytes != 10<<30 {
					t.Errorf("the list is %+v", c)
				}
				w.quiet(time.Hour)

				b := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "b"})
				w.next(arrives, "+2 b")
				simtest.Must(t, sim.DetachDisk(a))
				w.next(arrives, "-1 a")
				w.quiet(time.Minute)

				simtest.Must(t, n.Disk.SetDiskState(ctx, b, false))
				if c := w.next(polled, "*2 b"); c.Changed[0].Online {
					t.Error("it is online")
				}
				simtest.Must(t, n.Disk.SetDiskState(ctx, b, true))
				if c := w.next(polled, "*2 b"); !c.Changed[0].Online {
					t.Error("it is offline")
				}
				simtest.Must(t, sim.GrowDisk(b, 20<<30))
				simtest.Must(t, n.Disk.Rescan(ctx))
				simtest.Want(t, "its size", w.next(polled, "*2 b").Changed[0].SizeBytes, 20<<30)
				w.quiet(time.Minute)
				_, err := n.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: serial("b"), StagingPath: stagingPath})
				simtest.Must(t, err)
				c := w.next(polled, "*2 b")
				if p := c.Changed[0].Partitions; len(p) == 0 || !slices.Equal(p[len(p)-1].Paths, []string{stagingPath}) {
					t.Errorf("its partitions are %+v", p)
				}
				w.stop()
			})
		})
	}
}

// The list comes also if it is empty, and a disk that doesn't match is never told.
func TestWatchDisksOfASelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		w := watchDisks(t, n, serial("vol-1"))
		w.next(0, "")
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
		w.quiet(time.Minute)
		number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol1"})
		w.next(noticed, "+2 vol1")
		simtest.Must(t, sim.DetachDisk(number))
		w.next(noticed, "-2 vol1")
		w.stop()

		_, err := first(n.Storage.WatchDisks(t.Context(), csiproxy.Selector{LUN: pointer(uint32(1))}))
		simtest.WantErrorOf(t, "a bad selector", err, csiproxy.ErrInvalidArgument)
	})
}

// first returns the first value of a watch, and ends that.
func first(watch func(func(csiproxy.DiskChanges, error) bool)) (csiproxy.DiskChanges, error) {
	for c, err := range watch {
		return c, err
	}
	return csiproxy.DiskChanges{}, errors.New("nothing came")
}

// A number that is another disk's between two looks is told as that, and so is a disk under
// another number.
func TestWatchDisksOfSwappedDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newWatchedNode(t, winsim.Settings{NoNotices: true})
		one := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
		sim.Settle()
		all, a := watchDisks(t, n, csiproxy.Selector{}), watchDisks(t, n, serial("a"))
		numbered := watchDisks(t, n, csiproxy.Selector{Number: &one})
		all.next(0, "+0 system, +1 a")
		a.next(0, "+1 a")
		numbered.next(0, "+1 a")

		simtest.Must(t, sim.DetachDisk(one))
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "b", Number: &one})
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
		all.next(polled, "-1 a, +1 b, +2 a")
		a.next(0, "-1 a, +2 a")
		numbered.next(0, "-1 a, +1 b")

		// A disk that comes back as it was, between two looks, is the same.
		simtest.Must(t, sim.DetachDisk(one))
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "b", Number: &one})
		all.quiet(time.Minute)
		for _, w := range []*watch{all, a, numbered} {
			w.stop()
		}
	})
}

// A disk that doesn't answer is told with its error, also to who looks for its serial number,
// and what happens to others is told meanwhile.
func TestWatchDisksWithOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		one := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
		sim.Settle()
		all, a := watchDisks(t, n, csiproxy.Selector{}), watchDisks(t, n, serial("a"))
		all.next(0, "+0 system, +1 a")
		a.next(0, "+1 a")

		simtest.Must(t, sim.DelayUncancellable(
			winsim.Match{Call: win.IoctlStorageGetDeviceNumber.String(), Object: win.PhysicalDrive(one)}, 2*time.Hour))
		hang := all.next(polled+stagingPatient, "*1 a error")
		if d := hang.Changed[0]; d.Online || d.SizeBytes != 0 {
			t.Errorf("of the disk that hangs is told %+v", d)
		}
		a.next(soon, "*1 a error")
		all.quiet(time.Hour) // also if the error's text says for how long it hangs
		for range 3 {
			two := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "b"})
			all.next(soon, "+2 b")
			simtest.Must(t, sim.DetachDisk(two))
			all.next(soon, "-2 b")
		}
		late := watchDisks(t, n, csiproxy.Selector{})
		late.next(soon, "+0 system, +1 error")
		late.stop()

		sim.ResetRules()
		if c := all.next(polled+soon, "*1 a"); c.Changed[0].SizeBytes == 0 {
			t.Errorf("told %+v", c)
		}
		a.next(soon, "*1 a")
		all.stop()
		a.stop()
	})
}

// Another disk that comes to the number of one that doesn't answer isn't taken for that.
//
// Without notices, nothing is listed between the steps of the change.
func TestWatchDisksOfAnotherInTheSlotOfOneWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newWatchedNode(t, winsim.Settings{NoNotices: true})
		one := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
		sim.Settle()
		all, a := watchDisks(t, n, csiproxy.Selector{}), watchDisks(t, n, serial("a"))
		all.next(0, "+0 system, +1 a")
		a.next(0, "+1 a")

		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(one)}, winerr.ErrorIODevice))
		all.next(polled, "*1 a error")
		a.next(soon, "*1 a error")
		simtest.Must(t, sim.DetachDisk(one))
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "b", Number: &one})
		sim.ResetRules()
		all.next(polled, "-1 a error, +1 b")
		a.next(soon, "-1 a error")
		all.stop()
		a.stop()
	})
}

// A disk that needs a moment after its notice before it answers is told as soon as it does.
func TestWatchDisksOfADiskThatNeedsAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		w := watchDisks(t, n, csiproxy.Selector{})
		w.next(0, "+0 system")
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(1), Count: 3}, winerr.ErrorNotReady))
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
		w.next(soon, "+1 a")
		w.stop()
	})
}

// A disk of which a call hangs isn't news each time.
func TestWatchDisksWhileACallHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		one := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
		sim.Settle()
		simtest.Must(t, sim.DelayUncancellable(
			winsim.Match{Call: win.IoctlDiskGetDiskAttributes.String(), Object: win.PhysicalDrive(one)}, 2*time.Hour))
		go n.Disk.GetDiskState(t.Context(), one)
		time.Sleep(time.Minute)
		w := watchDisks(t, n, csiproxy.Selector{})
		if c := w.next(stagingPatient, "+0 system, +1 error"); !strings.Contains(c.Added[1].Error, "since 2000-") {
			t.Errorf("the error is %q", c.Added[1].Error)
		}
		w.quiet(time.Hour)
		sim.ResetRules()
		w.next(polled, "*1 a")
		w.stop()
	})
}

// The remembered number of a disk that doesn't answer may be another disk's now.
func TestWatchDisksWithTwoOfOneNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newWatchedNode(t, winsim.Settings{NoNotices: true})
		one, two := csiproxy.DiskNumber(1), csiproxy.DiskNumber(2)
		place := &win.SCSIAddress{PortNumber: 5} // at the same place, it has the same interface
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a", Number: &one, SCSI: place})
		sim.Settle()
		w := watchDisks(t, n, csiproxy.Selector{})
		w.next(0, "+0 system, +1 a")
		simtest.Must(t, sim.DetachDisk(one))
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "b", Number: &one})
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a", Number: &two, SCSI: place})
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(two)}, winerr.ErrorIODevice))
		w.next(polled, "-1 a, +1 b")
		w.quiet(time.Minute)
		sim.ResetRules()
		w.next(polled, "+2 a")
		w.stop()
	})
}

// A caller that takes its time is told once what has happened several times.
func TestWatchDisksOfASlowCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		var told []string
		for changes, err := range n.Storage.WatchDisks(t.Context(), csiproxy.Selector{}) {
			simtest.Must(t, err)
			told = append(told, text(changes))
			if len(told) == 3 {
				break
			}
			calls := sim.Calls()
			for i := range 200 {
				number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: fmt.Sprint("vol-", len(told), "-", i)})
				if i < 199 {
					simtest.Must(t, sim.DetachDisk(number))
				}
				time.Sleep(time.Second)
			}
			simtest.Want(t, "looks while the caller is busy", sim.Calls()[win.CallDeviceInterfaces],
				calls[win.CallDeviceInterfaces])
		}
		if want := []string{"+0 system", "+1 vol-1-199", "+2 vol-2-199"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		// That the notices have ended, and no goroutine is left, is checked in the end.
	})
}

// On a node with many disks, what changes is told as soon as on a small one, whoever has changed
// it, also without notices.
func TestWatchDisksOfALargeNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newWatchedNode(t, winsim.Settings{NoNotices: true})
		other, err := nodeops.New(sim, nodeops.Options{})
		simtest.Must(t, err)
		ctx, one := t.Context(), csiproxy.DiskNumber(1)
		for i := range 60 {
			simtest.Attach(t, sim, winsim.DiskSpec{Serial: fmt.Sprint(i)})
		}
		sim.Settle()
		w := watchDisks(t, n, csiproxy.Selector{})
		simtest.Want(t, "disks that are told", len((<-w.changes).Added), 61)
		for _, online := range []bool{false, true} {
			w.quiet(2 * time.Minute)
			simtest.Must(t, n.Disk.SetDiskState(ctx, one, online))
			w.next(polled, "*1 0")
		}
		simtest.Must(t, sim.GrowDisk(one, 20<<30))
		simtest.Must(t, n.Disk.Rescan(ctx))
		w.next(polled, "*1 0")
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
		w.next(polled, "+61 a")
		two := csiproxy.DiskNumber(2)
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(two)}, winerr.ErrorNotReady))
		simtest.Must(t, sim.DetachDisk(two))
		w.next(polled, "-2 1")
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "late", Number: &two})
		w.quiet(40 * time.Second)
		sim.ResetRules()
		w.next(polled, "+2 late")
		w.quiet(2 * time.Minute)
		simtest.Must(t, other.Disk.SetDiskState(ctx, one, false))
		w.next(polled, "*1 0")
		w.quiet(2 * time.Minute)
		simtest.Must(t, other.Disk.SetDiskState(ctx, one, true))
		late := watchDisks(t, n, csiproxy.Selector{Number: &one})
		if c := <-late.changes; len(c.Added) != 1 || !c.Added[0].Online {
			t.Errorf("who begins to watch is told %+v", c)
		}
		late.stop()
		w.stop()
	})
}

// If the disks can't be listed for a while, nothing is told. For more than a minute, or from
// the start, the watch ends and says why. If Windows gives no notices, polling does alone.
func TestWatchDisksFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallNotifyArrivals}, winerr.ErrorNoSystemResources))
		w := watchDisks(t, n, csiproxy.Selector{})
		w.next(0, "+0 system")
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "a"})
		w.next(polled, "+1 a")
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallDeviceInterfaces}, winerr.ErrorNoSystemResources))
		simtest.Must(t, sim.DetachDisk(1))
		w.quiet(55 * time.Second)
		sim.ResetRules()
		w.next(polled, "-1 a")
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallDeviceInterfaces}, winerr.ErrorNoSystemResources))
		begun := time.Now()
		err := <-w.ended
		if took := time.Since(begun); took < time.Minute || took > time.Minute+2*polled {
			t.Errorf("it ends after %v", took)
		}
		if !errors.Is(err, winerr.ErrorNoSystemResources) || !strings.HasPrefix(err.Error(), "WatchDisks: ") {
			t.Errorf("it ends with %v", err)
		}
		begun = time.Now()
		if _, err := first(n.Storage.WatchDisks(t.Context(), csiproxy.Selector{})); !errors.Is(err,
			winerr.ErrorNoSystemResources) || time.Since(begun) > 0 {
			t.Errorf("it begins with %v, after %v", err, time.Since(begun))
		}
	})
}

// A call that Windows never answers isn't waited for when the caller gives up, and tells
// others why they can't watch.
func TestWatchDisksThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		w := watchDisks(t, n, csiproxy.Selector{})
		w.next(0, "+0 system")
		simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: win.CallDeviceInterfaces}, time.Hour))
		w.quiet(30 * time.Second)
		w.stop()
		_, err := first(n.Storage.WatchDisks(t.Context(), csiproxy.Selector{}))
		simtest.WantErrorOf(t, "behind a call that hangs", err, csiproxy.ErrUnavailable, win.CallDeviceInterfaces)
		sim.ResetRules()
	})
}

// The initiator may hang: of the disks is told everything else, and of which targets the
// known ones are.
func TestWatchDisksWithoutTheInitiator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		var log bytes.Buffer
		n, err := nodeops.New(sim, nodeops.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		simtest.Must(t, err)
		ctx := t.Context()
		portal, iqn := csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260}, csiproxy.IQN("iqn.2010-10.org.openstack:volume-1")
		simtest.Must(t, sim.ISCSI().AddTarget(
			iscsitarget.Target{IQN: string(iqn), Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)}},
			winsim.DiskSpec{SizeBytes: 1 << 30, Serial: "lun"}))
		simtest.Must(t, n.ISCSI.AddTargetPortal(ctx, portal))
		simtest.Must(t, n.ISCSI.ConnectTarget(ctx, portal, iqn, csiproxy.ISCSIAuthentication{}))
		sim.Settle()

		all := watchDisks(t, n, csiproxy.Selector{})
		lun := watchDisks(t, n, csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: portal, IQN: iqn}})
		if c := all.next(0, "+0 system, +1 lun"); c.Added[1].ISCSI == nil || c.Added[1].ISCSI.IQN != iqn {
			t.Errorf("told %+v", c.Added[1])
		}
		lun.next(0, "+1 lun")

		simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: win.CallISCSISessions}, 2*time.Hour))
		err = <-lun.ended
		if err == nil || !strings.Contains(err.Error(), win.CallISCSISessions) { // it may be the second to ask
			t.Errorf("a watch of a LUN: %v", err)
		}
		all.quiet(time.Minute)
		number := csiproxy.DiskNumber(1)
		simtest.Must(t, n.Disk.SetDiskState(ctx, number, false))
		if c := all.next(polled+soon, "*1 lun"); c.Changed[0].ISCSI == nil {
			t.Errorf("told %+v", c.Changed[0])
		}
		all.quiet(time.Hour)
		if lines := strings.Count(log.String(), "without their iSCSI targets"); lines != 1 {
			t.Errorf("%d lines say so:\n%s", lines, &log)
		}
		sim.ResetRules()
		all.quiet(time.Minute)
		all.stop()
	})
}
