// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Two or three operations begin at any time, on a node whose calls and arrivals take as long
// as those of a quick cloud node. What must hold is that of meeting.judge.
//
// TestSoakCrowds is the long form.
func TestCrowds(t *testing.T) {
	seeds := uint64(1000)
	if simtest.Sampled() {
		seeds = 30
	}
	for seed := range seeds {
		crowd(t, seed)
	}
}

// TestSoakCrowds goes on with random seeds for as long as SOAK says. SOAK_SEED repeats one.
func TestSoakCrowds(t *testing.T) { soak(t, crowd) }

// crowd has acts meet that a seed chooses.
func crowd(t *testing.T, seed uint64) {
	t.Run(fmt.Sprint("SOAK_SEED=", seed), func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := starts[random.IntN(len(starts))].prepared(t)
		all := s.acts()
		m := s.meeting(random.IntN(2) == 0)
		m.delays = winsim.RealisticDelays()
		var begins []time.Duration
		for range 2 + random.IntN(2) {
			m.acts = append(m.acts, all[random.IntN(len(all))])
			begins = append(begins, time.Duration(random.Int64N(int64(time.Second))))
		}
		_, wrong := m.judge(t, func(r *rig, o *outcome, processes []*nodeops.Node) bool {
			var ended sync.WaitGroup
			for i := range m.acts {
				ended.Go(func() {
					time.Sleep(begins[i])
					o.answers[i] = m.act(r, i, processes[i])
				})
			}
			ended.Wait()
			synctest.Wait()
			return true
		})
		if wrong != "" {
			t.Errorf("%s, which begin after %v:\n%s", m, begins, wrong)
		}
	})
}
