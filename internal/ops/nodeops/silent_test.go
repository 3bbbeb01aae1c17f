// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/published"
)

// all are the calls on all disks.
var all = map[string]func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]published.DiskIDs, error){
	"ListDiskIDs": func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]published.DiskIDs, error) {
		return ops.ListDiskIDs(ctx)
	},
	"ListDiskLocations": func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]published.DiskIDs, error) {
		locations, err := ops.ListDiskLocations(ctx)
		ids := make(map[csiproxy.DiskNumber]published.DiskIDs)
		for n := range locations {
			ids[n] = published.DiskIDs{}
		}
		return ids, err
	},
	"Rescan": func(ctx context.Context, ops *nodeops.Disks) (map[csiproxy.DiskNumber]published.DiskIDs, error) {
		return nil, ops.Rescan(ctx)
	},
}

// Several disks that don't answer cost a call the timeout of one, once. Then nobody waits for them any
// more, until they answer again.
func TestSilentDisks(t *testing.T) {
	for name, call := range all {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := simtest.Open(t, winsim.Delays{})
				var log bytes.Buffer
				var counts []int
				ops := groupsOf(t, sim, nodeops.Options{
					SilentDiskTimeout: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
					OnSkippedDisks: func(count int) { counts = append(counts, count) },
				}).Disks
				healthy := attach(t, sim, winsim.DiskSpec{Serial: "healthy"})
				var silent []csiproxy.DiskNumber
				for range 3 {
					silent = append(silent, attach(t, sim, winsim.DiskSpec{}))
				}
				_, err := call(t.Context(), ops) // their numbers are known now
				simtest.Must(t, err)
				for _, n := range silent {
					simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(n)}, time.Hour))
				}
				for i, most := range []time.Duration{3500 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond} {
					begin := time.Now()
					got, err := call(t.Context(), ops)
					if took := time.Since(begin); err != nil || took > most {
						t.Errorf("call %d took %v: %v", i, took, err)
					}
					if _, listed := got[healthy]; name != "Rescan" && !listed {
						t.Errorf("call %d: the healthy disk is missing", i)
					}
					for _, n := range silent {
						if ids, listed := got[n]; listed != (name == "ListDiskIDs") || ids != (published.DiskIDs{}) {
							t.Errorf("call %d: disk %d is listed: %v, %+v", i, n, listed, ids)
						}
					}
				}
				for other, call := range all { // the other calls don't wait either
					begin := time.Now()
					if _, err := call(t.Context(), ops); err != nil || time.Since(begin) > 200*time.Millisecond {
						t.Errorf("%s took %v: %v", other, time.Since(begin), err)
					}
				}
				if warnings := strings.Count(log.String(), "a device is skipped"); warnings != len(silent) {
					t.Errorf("there are %d warnings:\n%s", warnings, log.String())
				}
				simtest.Must(t, sim.DetachDisk(silent[2])) // nobody skips it any more
				_, err = call(t.Context(), ops)
				simtest.Must(t, err)
				sim.ResetRules()
				synctest.Wait()
				got, err := call(t.Context(), ops)
				simtest.Must(t, err)
				if ids := got[silent[0]]; name == "ListDiskIDs" && ids.SerialNumber == "" {
					t.Error("a disk that answers again isn't listed with its ids")
				}
				simtest.Want(t, "the numbers of skipped disks", fmt.Sprint(counts), "[3 2 0]")
			})
		})
	}
}

// Who gives up while a disk doesn't answer is told which call to Windows that is.
func TestGivingUpOnASilentDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		ops := groupsOf(t, sim, nodeops.Options{}).Disks
		simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: win.CallOpen}, time.Hour))
		for _, timeout := range []time.Duration{10 * time.Millisecond, time.Second} { // both while disks are asked
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			_, err := ops.ListDiskIDs(ctx)
			cancel()
			simtest.WantErrorOf(t, fmt.Sprintf("after %v, the error is", timeout), err, context.DeadlineExceeded,
				"has not answered "+win.CallOpen)
		}
		sim.ResetRules()
		synctest.Wait()
	})
}

// A disk that answers with an error doesn't hide the others.
func TestSickDisks(t *testing.T) {
	// Not each call asks for the number, and only Rescan for the size.
	mayFire := map[string]winsim.Fires{"IOCTL_STORAGE_GET_DEVICE_NUMBER": winsim.MayFire,
		"IOCTL_DISK_UPDATE_DRIVE_SIZE": winsim.MayFire}
	for name, call := range all {
		for _, at := range []string{win.CallOpen, "IOCTL_STORAGE_GET_DEVICE_NUMBER", "IOCTL_STORAGE_QUERY_PROPERTY",
			"IOCTL_DISK_UPDATE_DRIVE_SIZE"} {
			for _, errno := range []winerr.Errno{5, 31, 32, 50, 1117} {
				sim, ops := newDiskNode(t)
				healthy, sick := attach(t, sim, winsim.DiskSpec{}), attach(t, sim, winsim.DiskSpec{})
				_, err := ops.ListDiskIDs(t.Context())
				simtest.Must(t, err)
				simtest.Must(t, sim.Fail(winsim.Match{Call: at, Object: win.PhysicalDrive(sick), Fires: mayFire[at]}, errno))
				got, err := call(t.Context(), ops)
				simtest.WantErrorOf(t, fmt.Sprintf("%s, error %d of %s", name, errno, at), err, nil)
				if _, listed := got[healthy]; name != "Rescan" && !listed {
					t.Errorf("%s, error %d of %s: the healthy disk is missing", name, errno, at)
				}
				if _, listed := got[sick]; name == "ListDiskIDs" && !listed {
					t.Errorf("%s, error %d of %s: the sick disk is missing", name, errno, at)
				}
			}
		}
	}
}

// A disk that isn't ready yet, or has no disk's device type, is no disk of the node.
func TestWhatIsNoDisk(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{})
	if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(n)}, winerr.ErrorNotReady))
	if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("a disk that isn't ready: %v, %v", ids, err)
	}
	sim.ResetRules()
	ops = groupsOf(t, numbered(sim, func(of *win.DeviceNumber) {
		if of.DeviceNumber == n {
			of.DeviceType = 0x1f // FILE_DEVICE_TAPE
		}
	}), nodeops.Options{}).Disks
	if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("a tape: %v, %v", ids, err)
	}
	before := writes(sim)
	simtest.WantError(t, ops.PartitionDisk(t.Context(), n), csiproxy.ErrFailedPrecondition)
	simtest.Want(t, "writes to a tape", writes(sim), before)
}

// What a disk answers before it is ready isn't its identity.
func TestADiskThatIsNotReady(t *testing.T) {
	sim, ops := newDiskNode(t)
	n := attach(t, sim, winsim.DiskSpec{})
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.IoctlStorageQueryProperty.String()}, winerr.ErrorNotReady))
	before := writes(sim)
	simtest.WantError(t, ops.PartitionDisk(t.Context(), n), csiproxy.ErrUnavailable)
	simtest.Want(t, "writes to it", writes(sim), before)
}

// numbered is a node whose disks say other numbers.
func numbered(sim *winsim.System, rewrite func(*win.DeviceNumber)) simtest.Controlled {
	return simtest.Controlled{System: sim, Answer: func(_ string, code win.IoctlCode, out []byte,
		do func() (int, error)) (int, error) {
		size, err := do()
		if code == win.IoctlStorageGetDeviceNumber && err == nil {
			if n, err := win.DecodeDeviceNumber(out[:size]); err == nil {
				rewrite(&n)
				return copy(out, n.Encode()), nil
			}
		}
		return size, err
	}}
}

// Re-enumerating the root also starts devices that aren't configured: it is done only when
// the adapters have found nothing.
func TestRescanAsksTheWholeTreeLast(t *testing.T) {
	sim, ops := newDiskNode(t)
	roots := 0
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallReenumerateDevice && c.Object == "" {
			roots++
		}
	})
	_, err := sim.AttachDisk(winsim.DiskSpec{SizeBytes: gibibyte, NeedsRescan: true})
	simtest.Must(t, err)
	for _, c := range []struct {
		rescan func(context.Context) error
		want   int
	}{{ops.Rescan, 0}, {ops.RescanAdapters, 0}, {ops.Rescan, 1}} { // an adapter has found a disk at first
		roots = 0
		simtest.Must(t, c.rescan(t.Context()))
		simtest.Want(t, "questions to the whole tree", roots, c.want)
	}
}

// One adapter that refuses, or doesn't answer, keeps no disk from being found.
func TestRescanBesideABadAdapter(t *testing.T) {
	for name, spoil := range map[string]func(sim *winsim.System, m winsim.Match) error{
		"refuses": func(sim *winsim.System, m winsim.Match) error { return sim.Fail(m, winerr.ErrorAccessDenied) },
		"silent":  func(sim *winsim.System, m winsim.Match) error { return sim.DelayUncancellable(m, time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, ops := newDiskNode(t)
				grown := attach(t, sim, winsim.DiskSpec{SizeBytes: gibibyte})
				simtest.Must(t, sim.GrowDisk(grown, 2*gibibyte))
				_, err := sim.AttachDisk(winsim.DiskSpec{SizeBytes: gibibyte, Serial: "new", NeedsRescan: true})
				simtest.Must(t, err)
				simtest.Must(t, spoil(sim, winsim.Match{Call: win.CallReenumerateDevice, Object: "port#0000"}))
				begin := time.Now()
				simtest.Must(t, ops.Rescan(t.Context()))
				if took := time.Since(begin); took > 6*time.Second {
					t.Errorf("it took %v", took)
				}
				if ids, err := ops.ListDiskIDs(t.Context()); err != nil || len(ids) != 3 {
					t.Errorf("the disks are %v, %v", ids, err)
				}
				if stats, err := ops.GetDiskStats(t.Context(), grown); err != nil || stats.SizeBytes != 2*gibibyte {
					t.Errorf("the disk that has grown: %+v, %v", stats, err)
				}
				sim.ResetRules()
			})
		})
	}
}

// A device tree that doesn't answer holds up a rescan for a while, later ones not at all, and those of
// the adapters never.
func TestRescanOfATreeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		ops := groupsOf(t, sim, nodeops.Options{}).Disks
		sim.OnCall(func(c winsim.Call) {
			if c.Name == win.CallReenumerateDevice && c.Object == "" {
				simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: c.Name, Count: 1}, time.Hour))
			}
		})
		for _, limit := range []time.Duration{15 * time.Second, 0, 0} {
			begin := time.Now()
			err := ops.Rescan(t.Context())
			simtest.WantErrorOf(t, "a rescan", err, csiproxy.ErrUnavailable, win.CallReenumerateDevice, "since 2000-")
			simtest.Want(t, "the time that it was waited for", time.Since(begin), limit)
		}
		simtest.Must(t, ops.RescanAdapters(t.Context()))
		time.Sleep(2 * time.Hour)
		sim.OnCall(nil)
		simtest.Must(t, ops.Rescan(t.Context()))
	})
}

func TestUnknownDiskNamesTheOthers(t *testing.T) {
	sim, ops := newDiskNode(t)
	_, err := ops.GetDiskStats(t.Context(), 99)
	if err == nil || !strings.Contains(err.Error(), "there is no disk 99; the node has disk 0") {
		t.Errorf("got %v", err)
	}
	two := csiproxy.DiskNumber(2)
	attach(t, sim, winsim.DiskSpec{Number: &two})
	_, err = ops.GetDiskStats(t.Context(), 99)
	if err == nil || !strings.Contains(err.Error(), "GetDiskStats disk 99: there is no disk 99; the node has disks 0 and 2") {
		t.Errorf("got %v", err)
	}
	one := attach(t, sim, winsim.DiskSpec{})
	open := winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(one), Count: 1}
	simtest.Must(t, sim.Fail(open, winerr.ErrorFileNotFound))
	if _, err := ops.GetDiskStats(t.Context(), one); err == nil || strings.Contains(err.Error(), "the node has") {
		t.Errorf("a disk that isn't there for a moment gave %v", err)
	}
	none := groupsOf(t, places{sim, nil}, nodeops.Options{}).Disks
	_, err = none.GetDiskStats(t.Context(), 99)
	if err == nil || !strings.Contains(err.Error(), "there is no disk 99; the node has no disks") {
		t.Errorf("a node that lists no disks gave %v", err)
	}
	absent := groupsOf(t, places{sim, map[string]csiproxy.DiskNumber{`\\?\a`: 98}}, nodeops.Options{}).Disks
	if _, err := absent.GetDiskStats(t.Context(), 99); err == nil || strings.Contains(err.Error(), "the node has") {
		t.Errorf("a node with a disk without a number gave %v", err)
	}
	if err := ops.PartitionDisk(t.Context(), 99); err == nil || !strings.Contains(err.Error(), "the node has disks 0, 1 and 2") {
		t.Errorf("got %v", err)
	}
}

// If no adapter can be asked, such as for lack of the privilege, a rescan finds nothing.
func TestRescanWithoutThePrivilege(t *testing.T) {
	sim, ops := newDiskNode(t)
	simtest.Must(t, ops.Rescan(t.Context()))
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallReenumerateDevice}, winerr.ErrorAccessDenied))
	simtest.WantError(t, ops.Rescan(t.Context()), csiproxy.ErrPermissionDenied)
}

// A disk that was another driver's is asked without waiting. If a driver's own disk has come to its path, that is found by
// the next list.
func TestDiskInPlaceOfAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		var drivers []nodeops.Driver
		for _, name := range []string{"red", "blue"} {
			drivers = append(drivers, nodeops.Driver{Driver: scope.Driver{Name: name, Disks: []scope.DiskPattern{{SerialNumber: name + "*"}}}})
		}
		own, n := attach(t, sim, winsim.DiskSpec{Serial: "red-1"}), attach(t, sim, winsim.DiskSpec{Serial: "blue-1"})
		node, err := nodeops.New(places{sim, map[string]csiproxy.DiskNumber{"own": own, "place": n}}, nodeops.Options{}, drivers...)
		simtest.Must(t, err)
		red := node.Driver("red").Disk
		lists := func(what string, want int) {
			begun := time.Now()
			ids, err := red.ListDiskIDs(t.Context())
			simtest.Must(t, err)
			simtest.Want(t, "disks "+what, len(ids), want)
			simtest.Want(t, "time "+what, time.Since(begun) > 0, want > 1)
			time.Sleep(time.Second)
		}
		lists("before", 1)
		simtest.Must(t, sim.DetachDisk(n))
		attach(t, sim, winsim.DiskSpec{Serial: "red-2", Number: &n})
		simtest.Must(t, sim.Delay(winsim.Match{Call: win.IoctlStorageQueryProperty.String(),
			Object: fmt.Sprintf("PhysicalDrive%d ", n)}, 100*time.Millisecond))
		lists("right after", 1)
		lists("afterwards", 2)
	})
}
