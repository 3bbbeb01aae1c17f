// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// A protected volume is missing if no disk of the node has it. A DVD has a volume, too, and no disk: D: is
// a DVD's on machines of Azure that have no temporary disk, or not yet.
func TestMissingVolumes(t *testing.T) {
	n := newNode(t)
	simtest.Must(t, n.sim.SetVolumeMountPoint(t.Context(), `D:\`, string(n.id)))
	const unknown = `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`
	f := protecting(t, n, "d", "X:", unknown, strings.ToUpper(string(n.id)))
	missing := func(ofNode bool) {
		t.Helper()
		got, err := f.MissingVolumes(t.Context())
		want := map[string]bool{"D:": ofNode, "X:": true, unknown: true, strings.ToUpper(string(n.id)): ofNode}
		if !maps.Equal(got, want) || err != nil {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		disks, err := f.ProtectedDisks(t.Context())
		if err != nil || disks[n.number] == ofNode || !disks[0] {
			t.Errorf("protected are %v, %v", disks, err)
		}
	}
	missing(false)
	for _, errno := range []winerr.Errno{winerr.ErrorInvalidFunction, winerr.ErrorNotReady} {
		simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.IoctlVolumeGetVolumeDiskExtents.String(),
			Object: win.VolumePath(string(n.id))}, errno))
		missing(true)
		n.sim.ResetRules()
	}
	detach(t, n)
	missing(true)

	before := n.sim.Calls()
	if got, err := usage.DefaultFinder(n.sim).MissingVolumes(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("without a protected volume: %v, %v", got, err)
	}
	if !maps.Equal(n.sim.Calls(), before) {
		t.Error("Windows is asked although no volume is protected")
	}
}
