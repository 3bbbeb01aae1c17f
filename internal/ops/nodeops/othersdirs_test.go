// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// troubles are what a driver or its pods can do so that not all in its own directories can be read or followed.
var troubles = map[string]func(w *tenants, d *tenant){
	"an unreadable directory": func(w *tenants, d *tenant) {
		w.must(w.sim.MkdirAll(simtest.Kubelet + `\plugins\` + d.name + `\secret`))
		w.must(w.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: `secret`}, winerr.ErrorAccessDenied))
	},
	"all is unreadable": func(w *tenants, d *tenant) {
		w.must(w.sim.Fail(winsim.Match{Call: win.CallReadDir, Object: `csi\` + d.name}, winerr.ErrorAccessDenied))
	},
	"a directory in use": func(w *tenants, d *tenant) {
		w.must(w.sim.MkdirAll(simtest.Kubelet + `\plugins\` + d.name + `\secret`))
		w.must(w.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: `secret`}, winerr.ErrorSharingViolation))
	},
	"links into a broken volume": func(w *tenants, d *tenant) {
		w.linkIntoVolume(d)
		w.must(w.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: string(d.volume)}, winerr.ErrorIODevice))
	},
	"links into a volume that hangs": func(w *tenants, d *tenant) {
		w.linkIntoVolume(d)
		for _, call := range []string{win.CallOpenAt, win.IoctlVolumeGetVolumeDiskExtents.String()} {
			object := strings.TrimSuffix(string(d.volume), `\`)
			w.must(w.sim.Delay(winsim.Match{Call: call, Object: object, Fires: winsim.MayFire}, time.Hour))
		}
	},
}

// linkIntoVolume has a driver make links into its volume by its own calls, in its directory and published: by way of
// a link that the search finds, and of one below where it looks.
func (w *tenants) linkIntoVolume(d *tenant) {
	ctx := context.Background()
	dir := simtest.Kubelet + `\plugins\` + d.name
	deep := dir + strings.Repeat(`\d`, 9)
	w.must(d.Filesystem.Mkdir(ctx, deep))
	for i, way := range []string{dir + `\way`, deep + `\way`} {
		w.must(d.Filesystem.CreateSymlink(ctx, d.staging, way))
		pod := fmt.Sprintf(`%s\pods\%d\volumes\kubernetes.io~csi\pv`, simtest.Kubelet, i)
		w.must(d.have(w.sim, pod+`\mount`))
		for _, link := range []string{fmt.Sprint(dir, `\`, i), pod + `\mount`} {
			w.must(d.Filesystem.CreateSymlink(ctx, way+`\x\y`, link))
		}
	}
}

// What can't be known of a driver's own directories keeps nobody else from ending a use, whether by the driver's own
// endpoints or by those of the whole node. It does so of the driver itself: to that, what is unknown may be a use.
func TestTroubleInAnothersDirectories(t *testing.T) {
	for name, begin := range troubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				for _, d := range w.own {
					w.begin(d)
				}
				d, other := w.own[red], w.own[blue]
				for _, d := range w.own {
					w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
				}
				begin(w, other)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := other.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: other.staging}); err == nil {
					t.Error("the driver unstages a volume")
				}
				begun := time.Now()
				list, err := d.Storage.CleanUp(t.Context(), true)
				w.must(err)
				simtest.Want(t, "why the list is incomplete", list.IncompleteReason, "")
				w.must(second(w.node.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})))
				w.must(second(d.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
					Disk: csiproxy.Selector{SerialNumber: d.serial}, StagingPath: d.staging})))
				w.end(d)
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
				time.Sleep(2 * time.Minute) // of the bubble: until what hangs has ended
			})
		})
	}
}

// Links, mount points and junctions that a driver's container plants in the driver's directories are no uses of what
// another driver has.
func TestPlantedUses(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[red], w.own[blue]
	w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
	dir := simtest.Kubelet + `\plugins\` + other.name
	w.must(w.sim.MkdirAll(dir + `\mount`))
	w.must(w.sim.SetReparsePoint(dir+`\mount`, win.NewMountPoint(string(d.volume))))
	w.must(w.sim.Junction(dir+`\junction`, d.staging))
	w.must(w.sim.Symlink(dir+`\of-share`, d.share, true))
	w.must(w.sim.Symlink(dir+`\staged-share`, d.shareStaging, true))
	w.must(w.sim.Symlink(other.podVolume, dir+`\junction\file`, true))
	list, err := d.Storage.ListVolumes(t.Context())
	w.must(err)
	if text := fmt.Sprintf("%+v", list); strings.Contains(text, other.name) {
		t.Errorf("the driver's list has them: %s", text)
	}
	w.end(d)
}
