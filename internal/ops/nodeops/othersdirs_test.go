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
			w.must(w.sim.Delay(winsim.Match{Call: call, Object: object}, time.Hour))
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
		w.must(w.sim.MkdirAll(pod))
		for _, link := range []string{fmt.Sprint(dir, `\`, i), pod + `\mount`} {
			w.must(d.Filesystem.CreateSymlink(ctx, way+`\x\y`, link))
		}
	}
}

// What can't be known of a driver's own directories keeps no other driver from ending its uses. It does so of the
// driver itself and of administrators: to these, what is unknown may be a use.
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
				for who, ops := range map[string]*tenant{
					"the driver": {Operations: other.Operations, staging: other.staging},
					"the node":   {Operations: w.node.Operations, staging: d.staging},
				} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					_, err := ops.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: ops.staging})
					if cancel(); err == nil {
						t.Errorf("%s unstages a volume", who)
					}
				}
				begun := time.Now()
				list, err := d.Storage.CleanUp(t.Context(), true)
				w.must(err)
				simtest.Want(t, "why the list is incomplete", list.IncompleteReason, "")
				w.end(d)
				// A search waits for what is in use, a second in each directory of a driver.
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A link in another driver's directories to what is the driver's is a use of that, as one that was made at the shared
// endpoints, though not all there can be read.
func TestUseInAnothersDirectories(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[red], w.own[blue]
	w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
	troubles["an unreadable directory"](w, other)
	dir := simtest.Kubelet + `\plugins\` + other.name
	deep := dir + strings.Repeat(`\d`, 9)
	w.must(w.sim.MkdirAll(deep))
	for name, targets := range map[string][]string{
		"a link": {d.staging}, "into it": {d.staging + `\directory`}, "by a link": {d.staging, dir + `\0\directory`},
		"by a link that isn't found": {deep + `\way\directory`},
	} {
		w.must(w.sim.MkdirAll(d.staging + `\directory`))
		if strings.Contains(name, "found") {
			w.must(w.node.Filesystem.CreateSymlink(t.Context(), d.staging, deep+`\way`))
		}
		for i, target := range targets {
			w.must(w.node.Filesystem.CreateSymlink(t.Context(), target, fmt.Sprint(dir, `\`, i)))
		}
		_, err := d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
		simtest.WantErrorOf(t, name, err, csiproxy.ErrFailedPrecondition, "it is published at")
		for i := range targets {
			w.must(w.node.Filesystem.Rmdir(t.Context(), fmt.Sprint(dir, `\`, i), false))
		}
	}
	w.must(w.node.Filesystem.CreateSymlink(t.Context(), d.shareStaging, dir+`\of-share`))
	unstaged, err := d.Storage.UnstageShare(t.Context(), csiproxy.UnstageShareRequest{StagingPath: d.shareStaging})
	if unstaged.Unmapped {
		t.Errorf("the share of a link is unmapped: %v", err)
	}
}
