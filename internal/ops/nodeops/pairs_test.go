// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Each operation meets each other one, and what happens to a node: the second one comes at
// each call to Windows of the first one. In another process it runs to its end there; in the
// same one, it runs up to where it waits for the first one. See meeting.judge for what must
// hold. With PAIRS=all in the environment, all is tried.
func TestPairs(t *testing.T) {
	if os.Getenv("PAIRS") != "all" {
		pairs := 6000 // of 17,792: the same sample each time
		if simtest.Sampled() {
			pairs = 40
		}
		const seed = 1
		samplePairs(t, rand.New(rand.NewPCG(seed, 0)), pairs)
		return
	}
	for _, s := range starts {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s := s.prepared(t)
			for _, first := range s.acts() {
				t.Run(first.name, func(t *testing.T) {
					t.Parallel()
					for _, second := range s.acts() {
						if mayDiffer(s, first, second) {
							continue
						}
						for _, two := range []bool{false, true} {
							s.meeting(two, first, second).atEachCall(t)
						}
					}
				})
			}
		})
	}
}

// samplePairs tries a few points of some pairs.
func samplePairs(t *testing.T, random *rand.Rand, pairs int) {
	const points = 3
	var all []start
	for _, s := range starts {
		all = append(all, s.prepared(t))
	}
	for range pairs {
		s := all[random.IntN(len(all))]
		acts := s.acts()
		m := s.meeting(random.IntN(2) == 0, acts[random.IntN(len(acts))], acts[random.IntN(len(acts))])
		if mayDiffer(s, m.acts[0], m.acts[1]) {
			continue
		}
		calls := m.turn(t, []int{0}).calls
		for range min(points, calls) {
			at := random.IntN(calls)
			if _, wrong := m.atCall(t, at); wrong != "" {
				t.Errorf("%s, at call %d:\n%s", m, at, wrong)
			}
		}
	}
}

// mayDiffer reports whether two acts may have an outcome that is that of neither order.
// PartitionDisk and SetDiskState bring a disk back online that Windows takes offline while
// they wait for its volumes, since it does so to some that have just arrived. A StageVolume that is refused
// once the disk is online, for files at its path or for nothing to read, takes the disk offline again. If the
// disk leaves before, it returns online.
func mayDiffer(s start, first, second act) bool {
	refused := first.name == "StageVolume read-only" && (s.name == "raw disk" || s.name == "raw volume") ||
		first.name == "StageVolume" && s.name == "raw disk, and files at the staging path"
	if refused && second.name == "the disk leaves" {
		return true
	}
	return second.name == "Windows takes the disk offline" &&
		(first.name == "PartitionDisk" || first.name == "SetDiskState online")
}

// acts returns those that concern what the node has.
func (s start) acts() (all []act) {
	for _, a := range acts {
		if a.on&s.has != 0 {
			all = append(all, a)
		}
	}
	return all
}

// atEachCall has the second act come at each call of the first one.
func (m *meeting) atEachCall(t *testing.T) {
	var wrong []int
	why := ""
	for at := 0; ; at++ {
		met, w := m.atCall(t, at)
		if !met {
			break
		}
		if w != "" {
			wrong = append(wrong, at)
			why = w
		}
	}
	if why != "" {
		t.Errorf("%s, at the calls %v:\n%s", m, wrong, why)
	}
}

// timeout is how long the first act waits for the second one in the same process: less
// than a call to Windows may take without being overdue.
const timeout = 503 * time.Millisecond

// atCall has the second act come at a call of the first one, and says what is wrong with the
// outcome. If the first one makes fewer calls, they haven't met.
func (m *meeting) atCall(t *testing.T, at int) (met bool, wrong string) {
	t.Helper()
	_, wrong = m.judge(t, func(r *rig, o *outcome, processes []*nodeops.Node) bool {
		var came atomic.Bool
		second := make(chan string, 1)
		var calls atomic.Int64 // the first act may make several at one time
		r.sim.OnCall(func(winsim.Call) {
			if calls.Add(1)-1 != int64(at) {
				return
			}
			r.sim.OnCall(nil)
			came.Store(true)
			ended := make(chan struct{})
			go func() {
				second <- m.act(r, 1, processes[1])
				close(ended)
			}()
			if m.two {
				<-ended
				return
			}
			select {
			case <-ended:
			case <-time.After(timeout):
			}
		})
		o.answers[0] = m.act(r, 0, processes[0])
		r.sim.OnCall(nil)
		if met = came.Load(); met {
			o.answers[1] = <-second
		}
		return met
	})
	return met, wrong
}
