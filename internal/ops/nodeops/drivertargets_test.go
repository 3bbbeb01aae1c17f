// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
)

// manyTargets is a node on which another driver's portal has named many targets, each of which answers in 10 ms.
type manyTargets struct {
	*winsim.System
	count     int
	mechanism []string // of the other driver's target
}

const plantedTarget = "iqn.2025-01.com.example:a"

func (s *manyTargets) ISCSITargets(ctx context.Context) ([]string, error) {
	all, err := s.System.ISCSITargets(ctx)
	var more []string
	for i := range s.count {
		more = append(more, fmt.Sprint(plantedTarget, i))
	}
	return append(more, all...), err
}

func (s *manyTargets) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	time.Sleep(10 * time.Millisecond)
	if strings.HasPrefix(target, plantedTarget) {
		return slices.Clone(s.mechanism), nil
	}
	return s.System.ISCSIDiscoveryMechanisms(ctx, target)
}

// The attacker's portal names many targets, all of which answer. A driver finds its own target all the same, also at the shared endpoints.
func TestManyTargetsOfAnother(t *testing.T) {
	for _, hasOwn := range []bool{true, false} {
		for _, count := range []int{0, 3000} {
			t.Run(fmt.Sprint("own endpoints ", hasOwn, ", targets ", count), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newTenants(t)
					d, other := w.own[red], w.own[blue]
					sys := &manyTargets{System: w.sim, count: count}
					drivers := w.drivers
					if !hasOwn {
						drivers = drivers[1:] // without red
					}
					node, err := nodeops.New(sys, nodeops.Options{}, drivers...)
					w.must(err)
					iscsi := node.ISCSI
					if hasOwn {
						iscsi = node.Driver(red).ISCSI
					}
					w.must(node.Driver(blue).ISCSI.AddTargetPortal(t.Context(), other.portal))
					w.must(iscsi.AddTargetPortal(t.Context(), d.portal))
					sys.mechanism, err = w.sim.ISCSIDiscoveryMechanisms(t.Context(), string(other.iqn))
					w.must(err)
					begun := time.Now()
					found, err := iscsi.DiscoverTargetPortal(t.Context(), d.portal)
					w.must(err)
					if !slices.Contains(found, d.iqn) {
						t.Errorf("the driver doesn't find its target beside %d of another driver's, each of which answers in 10 ms", count)
					}
					if took := time.Since(begun); took > time.Second {
						t.Errorf("beside %d targets of another driver's, it takes %v", count, took)
					}
					time.Sleep(time.Hour)
				})
			})
		}
	}
}
