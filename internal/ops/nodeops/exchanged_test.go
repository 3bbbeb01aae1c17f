// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// CleanUp lists a leftover in a directory of the attacker, who then replaces the directory by a link to the directory of d: the
// mount of d's offline volume stays.
func TestCleanUpOfExchangedDirectory(t *testing.T) {
	beside(t, func(t *testing.T, w *tenants, d, other *tenant, _ string) {
		above := func(staging string) string { return staging[:len(staging)-len(`\globalmount`)] }
		planted := above(other.staging) + `0`
		w.must(w.sim.MkdirAll(planted + `\globalmount`))
		w.must(w.sim.SetReparsePoint(planted+`\globalmount`, win.NewMountPoint(string(d.volume))))
		w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
		w.must(second(w.node.Disk.ListDiskIDs(t.Context()))) // which tells whose the disks are
		w.must(w.sim.SetDiskAttributes(d.number, win.SetDiskAttributes{Mask: win.DiskOffline, Attributes: win.DiskOffline}))
		for _, n := range []csiproxy.DiskNumber{other.number, other.raw} {
			w.must(w.node.Disk.SetDiskState(t.Context(), n, true))
		}
		calls, listing := 0, 0
		w.sim.OnCall(func(winsim.Call) { listing++ })
		w.must(second(w.node.Storage.CleanUp(t.Context(), false)))
		w.sim.OnCall(func(c winsim.Call) {
			if calls++; calls == listing+1 {
				w.sim.OnCall(nil)
				w.must(w.sim.Rename(planted, planted+`-old`, false))
				w.must(w.sim.Junction(planted, above(d.staging)))
			}
		})
		left, err := w.node.Storage.CleanUp(t.Context(), true)
		w.must(err)
		w.sim.OnCall(nil)
		if link, err := w.sim.ReadLink(d.staging); link == "" {
			t.Errorf("the mount of the other driver's volume was removed: %v", err)
		}
		if len(left.Mounts) != 1 || left.Mounts[0].Removed || left.Mounts[0].Error == "" {
			t.Errorf("cleaned up are %+v", left)
		}
	})
}
