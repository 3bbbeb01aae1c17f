// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// opens counts the opens of each disk, and of the volumes on it.
type opens struct {
	*winsim.System
	mu             sync.Mutex
	scratch        map[string]csiproxy.DiskNumber // by the path of a disk or volume in lower case
	opened, writes map[csiproxy.DiskNumber]int
}

func (o *opens) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	o.mu.Lock()
	if n, ok := o.scratch[strings.ToLower(path)]; ok {
		o.opened[n]++
		if access != win.AccessNone {
			o.writes[n]++
		}
	}
	o.mu.Unlock()
	return o.System.OpenDevice(ctx, path, access)
}

// A container's scratch disk is opened once in ten minutes, and never for writing, whatever goes on beside it. An
// administrator's VHDX is staged like any other disk.
func TestScratchDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{VolumeArrival: time.Millisecond})
		simtest.Must(t, sim.MkdirAll(simtest.Kubelet))
		o := &opens{System: sim, scratch: make(map[string]csiproxy.DiskNumber),
			opened: make(map[csiproxy.DiskNumber]int), writes: make(map[csiproxy.DiskNumber]int)}
		for i := range 20 {
			before, err := sim.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
			simtest.Must(t, err)
			n := simtest.Attach(t, sim, winsim.DiskSpec{BusType: win.BusTypeFileBackedVirtual, Serial: fmt.Sprint("scratch", i),
				Location: fmt.Sprintf(`C:\ProgramData\containerd\root\snapshots\%d\Sandbox.vhdx`, i)})
			simtest.Partition(t, sim, n, 1)
			time.Sleep(time.Second) // until the volume has arrived
			after, err := sim.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
			simtest.Must(t, err)
			for _, path := range after {
				if !strings.Contains(strings.Join(before, "\n"), path) {
					o.scratch[strings.ToLower(path)] = n
				}
			}
			o.scratch[strings.ToLower(win.PhysicalDrive(n))] = n
			for _, name := range sim.VolumesOfDisk(n) {
				o.scratch[strings.ToLower(strings.TrimSuffix(name, `\`))] = n
			}
		}
		if len(o.scratch) != 60 {
			t.Fatalf("20 disks with one volume each have %d paths", len(o.scratch))
		}
		node, err := nodeops.New(o, nodeops.Options{})
		simtest.Must(t, err)
		_, err = node.DiskStates(t.Context()) // now they are known
		simtest.Must(t, err)
		known := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			for changes, err := range node.Storage.WatchDisks(ctx, csiproxy.Selector{}) {
				for _, d := range changes.Added {
					if ctx.Err() == nil && (err != nil || d.Bus == csiproxy.BusFile && d.SerialNumber != "vhdx") {
						t.Errorf("a watcher is told of %v, %v", d, err)
					}
				}
			}
		})
		running.Go(func() {
			for ctx.Err() == nil {
				if _, err := node.DiskStates(ctx); err != nil && ctx.Err() == nil { // for the metrics
					t.Error(err)
				}
				time.Sleep(15 * time.Second)
			}
		})
		request := csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: "vhdx"}, StagingPath: stagingPath,
			Wait: 10 * time.Second}
		if _, err := node.Storage.StageVolume(ctx, request); csiproxy.KindOf(err) != csiproxy.ErrNotFound {
			t.Errorf("staging of a disk that isn't there: %v", err)
		}
		simtest.Attach(t, sim, winsim.DiskSpec{BusType: win.BusTypeFileBackedVirtual, Serial: "vhdx",
			Location: `D:\data\my-sandbox.vhdx`})
		if _, err := node.Storage.StageVolume(ctx, request); err != nil {
			t.Errorf("staging of an administrator's VHDX: %v", err)
		}
		ids, err := node.Disk.ListDiskIDs(ctx)
		simtest.Must(t, err)
		for n := range o.opened {
			if _, listed := ids[n]; listed {
				t.Errorf("disk %d is listed", n)
			}
		}
		simtest.Must(t, node.Disk.Rescan(ctx))
		for i, minutes := range []time.Duration{9, 19} {
			time.Sleep(time.Until(known.Add(minutes * time.Minute)))
			o.mu.Lock()
			for _, n := range o.scratch {
				if o.opened[n] != i+1 || o.writes[n] != 0 {
					t.Errorf("in %d minutes, disk %d was opened %d times, %d for writing", minutes, n, o.opened[n], o.writes[n])
				}
			}
			o.mu.Unlock()
		}
		cancel()
		running.Wait()

		// What is asked for by its number is refused without being opened for writing.
		for _, n := range o.scratch {
			if err := node.Disk.PartitionDisk(t.Context(), n); csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition || o.writes[n] != 0 {
				t.Errorf("disk %d, opened %d times for writing: %v", n, o.writes[n], err)
			}
		}
	})
}
