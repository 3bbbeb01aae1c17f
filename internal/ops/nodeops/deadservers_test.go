// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Servers that have died, whose calls fail after half a minute, keep nobody from live
// servers, however often their drivers repeat the calls.
func TestDeadServers(t *testing.T) {
	const driversOfShare = 2
	user := csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")}
	for name, count := range map[string]struct{ servers, paths int }{
		"64 servers":                  {64, 1},
		"8 servers with 4 paths each": {8, 4},
	} {
		share := func(i int) string { return fmt.Sprintf(`\\dead%d\%d`, i/count.paths, i%count.paths) }
		link := func(i int) string { return fmt.Sprintf(`%s\%d`, simtest.Kubelet, i) }
		for what, test := range map[string]struct {
			mapped bool // before they die
			call   func(ctx context.Context, n *nodeops.Node, i int) error
		}{
			"mappings that exist": {true, func(ctx context.Context, n *nodeops.Node, i int) error {
				return n.SMB.NewSMBGlobalMapping(ctx, share(i), "", user)
			}},
			"new mappings": {false, func(ctx context.Context, n *nodeops.Node, i int) error {
				return n.SMB.NewSMBGlobalMapping(ctx, share(i), "", user)
			}},
			"staged shares": {true, func(ctx context.Context, n *nodeops.Node, i int) error {
				v, err := n.Storage.GetVolume(ctx, link(i))
				if err == nil && len(v.Conditions) == 0 {
					t.Errorf("%s leads somewhere", link(i))
				}
				return err
			}},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sys := simtest.Open(t, winsim.Delays{})
					n, err := nodeops.New(sys, nodeops.Options{})
					simtest.Must(t, err)
					simtest.Must(t, sys.MkdirAll(simtest.Kubelet))
					total := count.servers * count.paths
					for i := range total {
						simtest.Must(t, sys.SMB().AddShare(
							smbserver.Share{Server: fmt.Sprintf("dead%d", i/count.paths), Name: fmt.Sprint(i % count.paths)}))
						simtest.Must(t, sys.SMB().SetUser(fmt.Sprintf("dead%d", i/count.paths), user.Username, user.Password))
						if test.mapped {
							simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), share(i), link(i), user))
						}
					}
					for _, s := range []string{"data", "more"} {
						simtest.Must(t, sys.SMB().AddShare(smbserver.Share{Server: "alive", Name: s}))
					}
					simtest.Must(t, sys.SMB().SetUser("alive", user.Username, user.Password))
					simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), `\\alive\data`, simtest.Kubelet+`\alive`, user))
					for _, call := range []string{win.CallFileAttributes, win.CallCreateSMBGlobalMapping} {
						simtest.Must(t, sys.DelayUncancellable(winsim.Match{Call: call, Object: `\\dead`, Fires: winsim.MayFire}, 30*time.Second))
						simtest.Must(t, sys.Fail(winsim.Match{Call: call, Object: `\\dead`, Fires: winsim.MayFire}, winerr.ErrorBadNetPath))
					}

					// As the daemon calls, with the timeout of the SMB driver, which repeats.
					drivers, stop := context.WithCancel(t.Context())
					for i := range driversOfShare * total {
						go func() {
							for drivers.Err() == nil {
								ctx, cancel := context.WithTimeout(drivers, 90*time.Second)
								test.call(ctx, n, i%total)
								cancel()
								time.Sleep(time.Second)
							}
						}()
					}
					for range 8 {
						time.Sleep(5*time.Second + time.Millisecond)
						begin := time.Now()
						simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), `\\alive\data`, "", user))
						simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), `\\alive\more`, "", user))
						simtest.Must(t, n.SMB.RemoveSMBGlobalMapping(t.Context(), `\\alive\more`))
						if v, err := n.Storage.GetVolume(t.Context(), simtest.Kubelet+`\alive`); err != nil || len(v.Conditions) > 0 {
							t.Errorf("the share of a live server: %+v, %v", v, err)
						}
						if took := time.Since(begin); took != 0 {
							t.Fatalf("a live server was kept waiting for %v", took)
						}
					}
					stop()
					sys.ResetRules()
					time.Sleep(10 * time.Minute)
				})
			})
		}
	}
}
