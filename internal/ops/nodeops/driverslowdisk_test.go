// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// slowDisk is a node on which another driver's disk takes 900 ms for a query, which is not yet overdue, and doesn't say what it is.
type slowDisk struct {
	*winsim.System
	mu   sync.Mutex
	path string // interface path
	code win.IoctlCode
	err  error
}

type slowDiskDevice struct {
	win.Device
	code win.IoctlCode
	err  error
}

func (s *slowDisk) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := s.System.OpenDevice(ctx, path, access)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.path != "" && path == s.path {
		return &slowDiskDevice{d, s.code, s.err}, nil
	}
	return d, err
}

func (d *slowDiskDevice) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	if code == d.code {
		time.Sleep(900 * time.Millisecond)
		return 0, d.err
	}
	return d.Device.Control(ctx, code, in, out)
}

// A new disk of another driver is slow and never says whose it is. A driver waits for the disk once, not at each list.
func TestSlowDiskThatNeverTells(t *testing.T) {
	for name, test := range map[string]struct {
		code win.IoctlCode
		err  error
	}{
		"descriptor, I/O error": {win.IoctlStorageQueryProperty, winerr.ErrorIODevice},
		"descriptor, not ready": {win.IoctlStorageQueryProperty, winerr.ErrorNotReady},
		"number, I/O error":     {win.IoctlStorageGetDeviceNumber, winerr.ErrorIODevice},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				sys := &slowDisk{System: w.sim, code: test.code, err: test.err}
				node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
				w.must(err)
				w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: w.own[red].vendor, ProductID: "Disk 1", Serial: "red"})
				before, err := w.sim.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
				w.must(err)
				isOld := make(map[string]bool)
				for _, path := range before {
					isOld[path] = true
				}
				list := func() time.Duration {
					begun := time.Now()
					_, err := node.Driver(red).Disk.ListDiskIDs(t.Context())
					w.must(err)
					return time.Since(begun)
				}
				list()
				w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: w.own[blue].vendor, ProductID: "Disk 1", Serial: "sick"})
				after, err := w.sim.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
				w.must(err)
				for _, path := range after {
					if !isOld[path] {
						sys.path = path
					}
				}
				if took := list(); took != 900*time.Millisecond {
					t.Errorf("the first list takes %v", took)
				}
				for range 3 {
					time.Sleep(10 * time.Second)
					if took := list(); took > 100*time.Millisecond {
						t.Errorf("a later list takes %v because of another driver's disk", took)
					}
				}
			})
		})
	}
}

// A driver's new disk takes 300 ms for each answer. Another driver's brief query meets the disk first, and ends before the disk has told
// its owner. The next list has the disk.
func TestNewDiskBesideBriefQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		d, other := w.own[red], w.own[blue]
		w.must(second(d.Disk.ListDiskIDs(t.Context())))
		n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: "new"})
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", n)}, 300*time.Millisecond))
		_, err := other.Disk.GetDiskState(t.Context(), 77) // the error lists the disks that are there
		simtest.WantError(t, err, csiproxy.ErrNotFound)
		time.Sleep(time.Second)
		ids, err := d.Disk.ListDiskIDs(t.Context())
		w.must(err)
		simtest.Want(t, "serial number of the new disk", ids[n].SerialNumber, "new")
	})
}

// The answers of another driver's new disk take longer than a list in all. A driver waits for the disk once.
func TestSlowDiskThatOutlastsLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		node, err := nodeops.New(w.sim, nodeops.Options{SilentDiskTimeout: time.Second}, w.drivers...)
		w.must(err)
		n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: w.own[blue].vendor, ProductID: "Disk 1", Serial: "slow"})
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", n)}, 900*time.Millisecond))
		var took []time.Duration
		for range 3 {
			begun := time.Now()
			w.must(second(node.Driver(red).Disk.ListDiskIDs(t.Context())))
			took = append(took, time.Since(begun))
			time.Sleep(10 * time.Second)
		}
		simtest.Want(t, "lists take", took, []time.Duration{time.Second, 0, 0})
	})
}
