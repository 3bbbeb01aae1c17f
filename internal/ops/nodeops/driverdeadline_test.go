// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
)

// A call of a driver is cut off at each of its calls to Windows. The errors name no objects: most
// belong to other drivers.
func TestShortDeadlinesTellNothing(t *testing.T) {
	const eachCall = time.Millisecond
	for name, call := range map[string]func(ctx context.Context, d *tenant) error{
		"ListDisks": func(ctx context.Context, d *tenant) error {
			return second(d.Storage.ListDisks(ctx, csiproxy.Selector{}))
		},
		"ListVolumes": func(ctx context.Context, d *tenant) error { return second(d.Storage.ListVolumes(ctx)) },
		"UnstageVolume": func(ctx context.Context, d *tenant) error {
			return second(d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: d.staging}))
		},
		"SetDiskState": func(ctx context.Context, d *tenant) error { return d.Disk.SetDiskState(ctx, d.raw, false) },
		"GetTargetDisks": func(ctx context.Context, d *tenant) error {
			return second(d.ISCSI.GetTargetDisks(ctx, d.portal, d.iqn))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				w.begin(w.own[red])
				w.begin(w.own[blue])
				w.must(w.sim.Delay(winsim.Match{Call: winsim.EachCall, Fires: winsim.MayFire}, eachCall))
				cutOff := 0
				for deadline := eachCall / 2; ; deadline += eachCall {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					_, err := operation.Run(ctx, name, func(ctx context.Context) (struct{}, error) {
						return struct{}{}, call(ctx, w.own[blue])
					})
					hasEnded := ctx.Err() == nil
					cancel()
					time.Sleep(time.Minute) // until the operation has ended
					if hasEnded {
						break
					}
					if strings.Contains(err.Error(), "Windows has not answered ") {
						cutOff++
					}
					if strings.Contains(err.Error(), " on ") {
						t.Fatalf("after %v: %v", deadline, err)
					}
				}
				if cutOff < 3 {
					t.Errorf("%d errors name a call that Windows has not answered", cutOff)
				}
			})
		})
	}
}
