// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Every operation of the library ends shortly before its caller's deadline while Windows doesn't answer, and says
// for what it has waited.
func TestEveryOperationIsBounded(t *testing.T) {
	const id = csiproxy.VolumeID(`\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`)
	arguments := []any{ // by type
		csiproxy.DiskNumber(0), uint32(1), int64(1 << 30), true, id, csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260},
		csiproxy.IQN("iqn.2026-01.example:target"), csiproxy.ISCSIAuthentication{}, user, csiproxy.NewSecret("0123456789abc"),
		csiproxy.Selector{}, csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: "x"}, StagingPath: staging},
		csiproxy.UnstageVolumeRequest{StagingPath: staging}, csiproxy.ExpandVolumeRequest{StagingPath: staging},
		shareRequest(staging), csiproxy.UnstageShareRequest{StagingPath: staging, RemotePath: `\\server\data`},
		csiproxy.CheckVolumeRequest{StagingPath: staging},
	}
	texts := map[string][]string{ // by method; else a path
		"FindDiskByPage83": {"0123"}, "NewSMBGlobalMapping": {`\\server\data`, ""},
		"RemoveSMBGlobalMapping": {`\\server\data`}, "GetService": {"kubelet"}, "StartService": {"kubelet"},
		"StopService": {"kubelet"},
	}
	groups := reflect.ValueOf(nodeops.Operations{})
	for g := range groups.NumField() {
		group := groups.Type().Field(g)
		for m := range group.Type.NumMethod() {
			method := group.Type.Method(m)
			if method.Name == "WatchDisks" {
				continue // an iterator, which bounds each of its lists
			}
			t.Run(method.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim := simtest.Open(t, winsim.Delays{})
					simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall}, 2*time.Hour))
					n, err := nodeops.New(sim, nodeops.Options{})
					simtest.Must(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					args := []reflect.Value{reflect.ValueOf(ctx)}
					for i := 1; i < method.Type.NumIn(); i++ {
						var arg any = staging
						if given := texts[method.Name]; i <= len(given) {
							arg = given[i-1]
						}
						for _, a := range arguments {
							if reflect.TypeOf(a) == method.Type.In(i) {
								arg = a
							}
						}
						args = append(args, reflect.ValueOf(arg))
					}
					begin := time.Now()
					results := reflect.ValueOf(n.Bounded()).Field(g).Elem().MethodByName(method.Name).Call(args)
					err, _ = results[len(results)-1].Interface().(error)
					if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Windows has not answered") ||
						time.Since(begin) != 950*time.Millisecond {
						t.Errorf("after %v: %v", time.Since(begin), err)
					}
					sim.ResetRules()
					time.Sleep(24 * time.Hour)
				})
			})
		}
	}
}
