// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// A disk that takes the place of the one that was meant stays as it is.
func TestSwapAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		first := 0
		if s.byNumber {
			first = 1
		}
		atEachCall(t, first, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			var newcomer csiproxy.DiskNumber
			var was string
			before(func(winsim.Call) {
				r.sim.OnCall(nil)
				newcomer, was = r.swap()
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := s.run(ctx, r, r.process())
			if was == "" {
				r.must(s.again(err))
				return
			}
			if err != nil && s.byNumber && csiproxy.KindOf(err) == csiproxy.KindOf(errors.New("of no class")) {
				t.Error(err) // what a scenario says of the result, such as that it is of the disk that came
			}
			if is := r.content(newcomer); is != was {
				t.Errorf("the disk that came was\n%s\nand is\n%s\nafter %v", was, is, err)
			}
		})
	})
}

// A disk that takes the place of the one that was meant under an open handle, with the same
// contents, is found out before each change.
func TestCloneAtEachCall(t *testing.T) {
	// An operation can't do better than look right before a change: it asks the disk what it is, and then,
	// with so many calls, whether somebody else has begun to use it.
	between := map[string]int64{
		win.IoctlDiskSetDiskAttributes.String(): 0, win.IoctlDiskCreateDisk.String(): 1,
		win.IoctlDiskSetDriveLayoutEx.String(): 1,
		win.IoctlDiskGrowPartition.String():    2, win.CallFormatVolume: 1, win.FsctlExtendVolume.String(): 0,
	}
	eachScenario(t, func(t *testing.T, s scenario) {
		atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			before(func(winsim.Call) {
				r.sim.OnCall(nil)
				if r.number == 0 || !r.identified.Load() {
					return
				}
				r.must(r.sim.SwapDisk(r.number, winsim.DiskSpec{Serial: "clone", Page83: []win.Identifier{}}, true))
				var since atomic.Int64
				r.sim.OnCall(func(c winsim.Call) {
					n := since.Add(1)
					if most, ok := between[c.Name]; ok && n > most {
						t.Errorf("%s on %q is call %d after the disk has become another one", c.Name, c.Object, n)
					}
				})
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_ = s.run(ctx, r, r.process()) // it may find out, or be done already
		})
	})
}

// swap takes the scenario's disk away, and attaches another one that gets its number: a raw one in place
// of a raw one, or else one with somebody's volume on it and room to grow.
func (r *rig) swap() (csiproxy.DiskNumber, string) {
	r.t.Helper()
	if r.volume == "" && r.number == 0 {
		return 0, ""
	}
	r.must(r.sim.DetachDisk(r.number))
	n := r.attach(winsim.DiskSpec{Serial: "newcomer", SizeBytes: 30 << 30, Offline: r.volume == ""})
	if n != r.number {
		r.t.Fatalf("the disk that came is %d, not %d", n, r.number)
	}
	if r.volume == "" {
		return n, r.content(n)
	}
	simtest.Partition(r.t, r.sim, n, 2) // of which the second has the number of the other disk's data partition
	r.sim.Settle()
	name := r.sim.VolumesOfDisk(n)[1]
	r.must(r.sim.FormatVolume(context.Background(), name, win.FormatOptions{FileSystem: "NTFS"}))
	simtest.Mount(r.t, r.sim, `C:\newcomer`, name)
	r.must(r.sim.WriteFile(`C:\newcomer`+file, []byte("somebody's")))
	r.must(r.sim.FlushFile(`C:\newcomer` + file))
	return n, r.content(n)
}

// content describes what is on a disk, its state, and where it is mounted.
func (r *rig) content(n csiproxy.DiskNumber) string {
	r.t.Helper()
	head := make([]byte, 1<<20)
	r.must(r.sim.ReadImage(n, head, 0))
	data, err := r.sim.ReadFile(`C:\newcomer` + file)
	for _, info := range r.sim.Disks() {
		if info.Number == n && info.Spec.Serial == "newcomer" {
			return fmt.Sprintf("table %x, file %q, %v, attributes %v", crc(head), data, err, info.Attributes)
		}
	}
	return "gone"
}

func crc(b []byte) (sum uint64) {
	for _, c := range b {
		sum = sum*1099511628211 + uint64(c)
	}
	return sum
}
