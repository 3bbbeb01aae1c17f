// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// beginLists begins many lists of a driver's disks at the same time, each with another selector.
func beginLists(ctx context.Context, d *tenant) {
	for i := range 100 {
		go func() { _, _ = d.Storage.ListDisks(ctx, csiproxy.Selector{SerialNumber: fmt.Sprint("none-", i)}) }()
	}
	synctest.Wait()
}

// However many lists a driver begins, each with another selector, few of them ask the driver's slow disks at the same time.
func TestListsWithManySelectors(t *testing.T) {
	const disks = 10
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		d := w.own[blue]
		for i := range disks {
			n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: fmt.Sprint("many-", i)})
			w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", n)}, 900*time.Millisecond))
		}
		ctx, cancel := context.WithCancel(t.Context())
		beginLists(ctx, d)
		load := w.node.Load()
		simtest.Want(t, "calls under way, and calls that wait", []int{load.Running, load.Waiting}, []int{4 * disks, 0})
		cancel()
		time.Sleep(time.Hour)
	})
}

// A driver lists and stages its new disk, and its target, as fast beside many lists of another driver as without.
func TestManyListsOfAnother(t *testing.T) {
	const targets = 5
	times := func(isBusy bool) (took map[string]time.Duration) {
		took = make(map[string]time.Duration)
		synctest.Test(t, func(t *testing.T) {
			w := newTenants(t)
			d, other := w.own[red], w.own[blue]
			w.begin(d)
			w.begin(other)
			for i := range targets {
				iqn := csiproxy.IQN(fmt.Sprint("iqn.2026-01.com.example:many-", i))
				w.must(w.sim.ISCSI().AddTarget(iscsitarget.Target{IQN: string(iqn), Portals: []win.ISCSIPortal{win.ISCSIPortal(other.portal)}}, winsim.DiskSpec{SizeBytes: 1 << 30}))
				w.must(second(other.ISCSI.DiscoverTargetPortal(t.Context(), other.portal)))
				w.must(other.ISCSI.ConnectTarget(t.Context(), other.portal, iqn, csiproxy.ISCSIAuthentication{}))
			}
			for _, one := range []*tenant{d, other} {
				w.must(second(one.Disk.ListDiskIDs(t.Context())))
			}
			n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: "new"})
			w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", n)}, 10*time.Millisecond))
			w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallISCSISessions}, 20*time.Millisecond))
			ctx, cancel := context.WithCancel(t.Context())
			measure := func(name string, call func() error) {
				if isBusy {
					beginLists(ctx, other)
				}
				begun := time.Now()
				w.must(call())
				took[name] = time.Since(begun)
			}
			measure("list", func() error {
				ids, err := d.Disk.ListDiskIDs(t.Context())
				simtest.Want(t, "serial number of the new disk", ids[n].SerialNumber, "new")
				return err
			})
			measure("stage a disk", func() error {
				return second(d.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{StagingPath: d.staging + "-new",
					Disk: csiproxy.Selector{SerialNumber: "new"}}))
			})
			measure("stage a target", func() error {
				return second(d.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{StagingPath: d.staging + "-iscsi",
					Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: d.portal, IQN: d.iqn}}}))
			})
			cancel()
			time.Sleep(time.Hour)
		})
		return took
	}
	alone, beside := times(false), times(true)
	for name := range alone {
		if beside[name] > alone[name]+alone[name]/5 {
			t.Errorf("to %s takes %v, and %v beside another driver's lists", name, alone[name], beside[name])
		}
	}
}

// A driver's new disk answers another driver's list late, and doesn't say what it is. The disk's own driver waits for it nevertheless:
// the other's calls may be late for reasons of the other.
func TestDiskThatIsSlowForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		d, other := w.own[red], w.own[blue]
		n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: "new"})
		object := fmt.Sprintf("PhysicalDrive%d ", n)
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.IoctlStorageGetDeviceNumber.String(), Object: object, Count: 1}, 300*time.Millisecond))
		w.must(w.sim.Fail(winsim.Match{Call: win.IoctlStorageQueryProperty.String(), Object: object, Count: 1}, winerr.ErrorIODevice))
		w.must(second(other.Disk.ListDiskIDs(t.Context())))
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: object}, 10*time.Millisecond))
		ids, err := d.Disk.ListDiskIDs(t.Context())
		w.must(err)
		simtest.Want(t, "serial number of the new disk", ids[n].SerialNumber, "new")
	})
}

// samePlace is a node on which a new disk has the interface path of a disk that has left, as on Windows in the same place. The simulated
// node counts the disks of a place.
type samePlace struct {
	*winsim.System
	mu                sync.Mutex
	left, replacement string // interface paths; "" before the disk is replaced
}

func (s *samePlace) DeviceInterfaces(ctx context.Context, class winid.GUID) ([]string, error) {
	all, err := s.System.DeviceInterfaces(ctx, class)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(all, s.replacement); i >= 0 {
		all[i] = s.left
	}
	return all, err
}

func (s *samePlace) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	s.mu.Lock()
	if path == s.left {
		path = s.replacement
	}
	s.mu.Unlock()
	return s.System.OpenDevice(ctx, path, access)
}

// newDisk returns the interface path of the disk that isn't among before.
func (s *samePlace) newDisk(before []string) string {
	all, _ := s.System.DeviceInterfaces(context.Background(), win.InterfaceClassDisk)
	return all[slices.IndexFunc(all, func(path string) bool { return !slices.Contains(before, path) })]
}

// Another driver's disk hangs, and leaves while Windows' calls on it still hang. A driver's disk that comes to the same place, with the
// same number, is listed after two minutes.
func TestDiskInPlaceOfHangingDisk(t *testing.T) {
	for _, call := range []win.IoctlCode{win.IoctlStorageGetDeviceNumber, win.IoctlStorageQueryProperty} {
		t.Run(call.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				sys := &samePlace{System: w.sim}
				node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
				w.must(err)
				before, err := sys.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
				w.must(err)
				spec := winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: w.own[blue].vendor, ProductID: "Disk 1", Serial: "hangs"}
				n := w.attach(spec)
				left := sys.newDisk(before)
				list := func() string {
					ids, err := node.Driver(red).Disk.ListDiskIDs(t.Context())
					w.must(err)
					time.Sleep(time.Minute)
					return ids[n].SerialNumber
				}
				list()
				w.must(w.sim.DelayUncancellable(winsim.Match{Call: call.String(), Object: fmt.Sprintf("PhysicalDrive%d ", n), Count: 1}, 24*time.Hour))
				list()
				spec.VendorID, spec.Serial = w.own[red].vendor, "new"
				w.must(w.sim.SwapDisk(n, spec, true))
				replacement := sys.newDisk(append(before, left))
				sys.mu.Lock()
				sys.left, sys.replacement = left, replacement
				sys.mu.Unlock()
				simtest.Want(t, "serial numbers in lists", []string{list(), list(), list()}[1:], []string{"new", "new"})
				time.Sleep(48 * time.Hour)
			})
		})
	}
}
