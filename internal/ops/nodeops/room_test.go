// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Any number of calls that servers, targets and services keep waiting don't keep
// others from disks, files, and servers that answer.
func TestRoomBesideThoseThatWait(t *testing.T) {
	const operations = 8
	user := csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")}
	link := simtest.Kubelet + `\link`
	alive := func(ctx context.Context, n *nodeops.Node) error {
		return n.SMB.NewSMBGlobalMapping(ctx, `\\alive\data`, "", user)
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, sys *winsim.System, n *nodeops.Node)
		call    func(ctx context.Context, n *nodeops.Node, i int) error
		other   func(ctx context.Context, n *nodeops.Node) error // must not wait either
	}{
		"mappings of one dead server": {
			call: func(ctx context.Context, n *nodeops.Node, i int) error {
				return n.SMB.NewSMBGlobalMapping(ctx, fmt.Sprintf(`\\dead\%d`, i), "", user)
			},
			other: alive,
		},
		"mappings of many dead servers": {
			call: func(ctx context.Context, n *nodeops.Node, i int) error {
				return n.SMB.NewSMBGlobalMapping(ctx, fmt.Sprintf(`\\dead%d\data`, i), "", user)
			},
		},
		"a mapping whose server has died": {
			prepare: func(t *testing.T, sys *winsim.System, n *nodeops.Node) {
				simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", user))
			},
			call: func(ctx context.Context, n *nodeops.Node, i int) error {
				return n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, "", user)
			},
			other: alive,
		},
		"a staged share whose server has died": {
			prepare: func(t *testing.T, sys *winsim.System, n *nodeops.Node) {
				simtest.Must(t, n.SMB.NewSMBGlobalMapping(t.Context(), `\\server\data`, link, user))
			},
			call: func(ctx context.Context, n *nodeops.Node, i int) error {
				v, err := n.Storage.GetVolume(ctx, link)
				if err == nil && len(v.Conditions) > 0 {
					err = errors.New(v.Conditions[0].Message)
				}
				return err
			},
			other: alive,
		},
		"a service that doesn't come up": {
			prepare: func(t *testing.T, sys *winsim.System, _ *nodeops.Node) {
				simtest.Must(t, sys.Services().Add(services.Spec{Name: "slow"}))
				simtest.Must(t, sys.Delay(winsim.Match{Call: "StartServiceW"}, time.Hour))
			},
			call: func(ctx context.Context, n *nodeops.Node, i int) error {
				return n.System.StartService(ctx, "slow")
			},
			other: func(ctx context.Context, n *nodeops.Node) error {
				_, err := n.System.GetService(ctx, "slow")
				return err
			},
		},
		"a target that doesn't answer": {
			prepare: func(t *testing.T, sys *winsim.System, n *nodeops.Node) {
				portal := win.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
				simtest.Must(t, sys.ISCSI().AddTarget(iscsitarget.Target{IQN: "iqn.x", Portals: []win.ISCSIPortal{portal}}))
				simtest.Must(t, n.ISCSI.AddTargetPortal(t.Context(), csiproxy.ISCSIPortal(portal)))
				simtest.Must(t, sys.Delay(winsim.Match{Call: "LoginIScsiTargetW"}, time.Hour))
			},
			call: func(ctx context.Context, n *nodeops.Node, i int) error {
				return n.ISCSI.ConnectTarget(ctx, csiproxy.ISCSIPortal{Address: "10.0.0.1"}, "iqn.x", csiproxy.ISCSIAuthentication{})
			},
			other: func(ctx context.Context, n *nodeops.Node) error {
				_, err := n.ISCSI.ListTargetPortals(ctx)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := simtest.Open(t, winsim.Delays{})
				for _, server := range []string{"server", "alive"} {
					simtest.Must(t, sys.SMB().AddShare(smbserver.Share{Server: server, Name: "data"}))
					simtest.Must(t, sys.SMB().SetUser(server, user.Username, user.Password))
				}
				simtest.Must(t, sys.MkdirAll(simtest.Kubelet))
				number := simtest.Attach(t, sys, winsim.DiskSpec{})
				n, err := nodeops.New(sys, nodeops.Options{})
				simtest.Must(t, err)
				if test.prepare != nil {
					test.prepare(t, sys, n)
				}
				simtest.Must(t, sys.Delay(winsim.Match{Call: "GetFileAttributesW", Object: `\\server\data`, Fires: winsim.MayFire}, time.Hour))
				for i := range 6 * operations {
					simtest.Must(t, sys.Delay(winsim.Match{Call: "MSFT_SmbGlobalMapping.Create", Object: fmt.Sprintf(`\\dead\%d`, i), Fires: winsim.MayFire}, time.Hour))
					simtest.Must(t, sys.Delay(winsim.Match{Call: "MSFT_SmbGlobalMapping.Create", Object: fmt.Sprintf(`\\dead%d\data`, i), Fires: winsim.MayFire}, time.Hour))
				}

				// As the daemon calls: nothing takes the wait off an operation.
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				ended := make(chan error, 6*operations)
				for i := range cap(ended) {
					go func() { ended <- test.call(ctx, n, i) }()
				}
				synctest.Wait()
				if len(ended) > 0 {
					t.Fatalf("nothing keeps the calls waiting: %v", <-ended)
				}
				begin := time.Now()
				others, cancelOthers := context.WithTimeout(t.Context(), time.Second)
				defer cancelOthers()
				if _, err := n.Disk.GetDiskStats(others, number); err != nil {
					t.Errorf("a disk: %v", err)
				}
				simtest.WantErrorOf(t, "a directory", n.Filesystem.Mkdir(others, simtest.Kubelet+`\dir`), nil)
				if test.other != nil {
					simtest.WantErrorOf(t, "beside those", test.other(others, n), nil)
				}
				simtest.Want(t, "the time that the others were kept", time.Since(begin), 0)
				for range cap(ended) {
					if err := <-ended; err == nil {
						t.Error("a call that was kept waiting succeeded")
					}
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// An adapter that doesn't answer keeps nobody from the disks of a target: Windows finds
// those by itself.
func TestTargetDisksBesideASilentAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := simtest.Open(t, winsim.Delays{DiskArrival: 12 * time.Second})
		portal := win.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
		target := iscsitarget.Target{IQN: "iqn.2026-01.example:target", Portals: []win.ISCSIPortal{portal}}
		simtest.Must(t, sys.ISCSI().AddTarget(target, winsim.DiskSpec{SizeBytes: 1 << 30}))
		n, err := nodeops.New(sys, nodeops.Options{})
		simtest.Must(t, err)
		simtest.Must(t, n.ISCSI.AddTargetPortal(t.Context(), csiproxy.ISCSIPortal(portal)))
		simtest.Must(t, sys.DelayUncancellable(winsim.Match{Call: win.CallReenumerateDevice}, time.Hour))
		simtest.Must(t, n.ISCSI.ConnectTarget(t.Context(), csiproxy.ISCSIPortal(portal), csiproxy.IQN(target.IQN),
			csiproxy.ISCSIAuthentication{}))
		if disks, err := n.ISCSI.GetTargetDisks(t.Context(), csiproxy.ISCSIPortal(portal), csiproxy.IQN(target.IQN)); err != nil ||
			len(disks) != 1 {
			t.Errorf("the target has the disks %v, %v", disks, err)
		}
		time.Sleep(2 * time.Hour)
	})
}
