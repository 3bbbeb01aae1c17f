// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/winsim"
	"github.com/csi-proxy/csi-proxy/internal/winsim/simtest"
)

const kubelet = simtest.Kubelet

// Short names for what prepares a test.
var (
	must      = simtest.Must
	newVolume = simtest.Volume
	mount     = simtest.Mount
)

func newNode(t *testing.T) *winsim.System {
	sys := simtest.Open(t, winsim.Delays{})
	must(t, sys.SetSettings(windows))
	return sys
}

// windows are the switches of the nodes that a test is on: what Windows does there isn't
// documented.
var windows winsim.Settings

// onOtherWindows runs tests with the switches that concern paths in other positions.
func onOtherWindows(t *testing.T, tests map[string]func(*testing.T)) {
	defer func() { windows = winsim.Settings{} }()
	for name, settings := range map[string]winsim.Settings{
		"the mount manager wants a directory for itself": {MountManagerExclusive: true},
		"a bind filter": {BindFilter: true},
		"both":          {MountManagerExclusive: true, BindFilter: true},
	} {
		windows = settings
		t.Run(name, func(t *testing.T) {
			for name, test := range tests {
				t.Run(name, test)
			}
		})
	}
}

func mustParse(t *testing.T, p *pathpolicy.Policy, path string) pathpolicy.Path {
	t.Helper()
	parsed, err := p.Parse(path, pathpolicy.MaxPath)
	must(t, err)
	return parsed
}

func newPolicy(t *testing.T, workingDirs ...string) *pathpolicy.Policy {
	t.Helper()
	p, err := pathpolicy.New(kubelet, workingDirs...)
	must(t, err)
	return p
}

func TestOnOtherWindows(t *testing.T) {
	onOtherWindows(t, map[string]func(*testing.T){
		"TestResolve":          TestResolve,
		"TestExists":           TestExists,
		"TestReachHolds":       TestReachHolds,
		"TestReachFollows":     TestReachFollows,
		"TestReachRefuses":     TestReachRefuses,
		"TestReachMaking":      TestReachMaking,
		"TestCheckReplaceable": TestCheckReplaceable,
		"TestResolveFailures":  TestResolveFailures,
		"TestKeptMeetsLink":    TestKeptMeetsLink,
		"TestKeptIsReplaced":   TestKeptIsReplaced,
	})
}
