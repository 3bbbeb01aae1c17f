// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

const kubelet = simtest.Kubelet

// Short names for what prepares a test.
var (
	must      = simtest.Must
	newVolume = simtest.Volume
	mount     = simtest.Mount
)

func newNode(t *testing.T) *winsim.System { return simtest.Open(t, winsim.Delays{}) }

func mustParse(t *testing.T, p *pathpolicy.Policy, path string) pathpolicy.Path {
	t.Helper()
	parsed, err := p.Parse(path, pathpolicy.MaxPath)
	must(t, err)
	return parsed
}

func newPolicy(t *testing.T, workingDirs ...string) *pathpolicy.Policy {
	t.Helper()
	return mustNew(t, pathpolicy.Options{WorkingDirs: workingDirs})
}

func mustNew(t *testing.T, o pathpolicy.Options) *pathpolicy.Policy {
	t.Helper()
	p, err := pathpolicy.New(o)
	must(t, err)
	return p
}

func TestOnOtherWindows(t *testing.T) {
	simtest.OnOtherWindows(t, map[string]func(*testing.T){
		"TestResolve":          TestResolve,
		"TestExists":           TestExists,
		"TestReachHolds":       TestReachHolds,
		"TestReachFollows":     TestReachFollows,
		"TestReachRefuses":     TestReachRefuses,
		"TestReachMaking":      TestReachMaking,
		"TestCheckReplaceable": TestCheckReplaceable,
		"TestResolveFailures":  TestResolveFailures,
		"TestLookupFollows":    TestLookupFollowsLinksOnTheWay,
	})
}
