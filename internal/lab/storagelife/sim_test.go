// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagelife

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Volumes live on the simulated node, whatever its switches say.
func TestLife(t *testing.T) {
	t.Run("by itself", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { live(t, simulated(t)) }) })
	simtest.EachSwitch(t, func(t *testing.T, settings winsim.Settings) {
		synctest.Test(t, func(t *testing.T) {
			n := simulated(t)
			if settings.ClonesStayOffline {
				n.skip = []string{"new ids"} // Windows gives none
			}
			live(t, n)
		})
	})
}

func simulated(t *testing.T) testNode {
	// A moment, so that it is seen what Windows does by itself later: a copy is online before it goes offline.
	sys := simtest.Open(t, winsim.Delays{VolumeArrival: 10 * time.Millisecond})
	ops, err := nodeops.New(sys, nodeops.Options{})
	simtest.Must(t, err)
	listeners := map[string]*bufconn.Listener{}
	return testNode{
		step: func(t *testing.T, name string, f func(t *testing.T)) bool {
			f(t)
			if t.Failed() {
				t.Logf("the step was %q", name)
			}
			return !t.Failed()
		},
		listen: func(name string) (net.Listener, error) {
			listeners[name] = bufconn.Listen(64 << 10)
			return listeners[name], nil
		},
		dial: func(ctx context.Context, group, version string) (net.Conn, error) {
			return listeners[api.EndpointName(group, version)].DialContext(ctx)
		},
		operations: rpc.Operations(ops.Operations),
		kubelet:    simtest.Kubelet,
		attach: func(t *testing.T) testDisk {
			return simDisk{sys, simtest.Attach(t, sys, winsim.DiskSpec{SizeBytes: gib})}
		},
		write: func(path, text string) error { return sys.WriteFile(path, []byte(text)) },
		read: func(path string) (string, error) {
			text, err := sys.ReadFile(path)
			return string(text), err
		},
		hold: func(t *testing.T, path string) func() {
			id, err := sys.StartProcess(`C:\app.exe`, path)
			simtest.Must(t, err)
			return func() { simtest.Must(t, sys.EndProcess(id)) }
		},
		letter: func(t *testing.T, id csiproxy.VolumeID) {
			simtest.Must(t, sys.SetVolumeMountPoint(t.Context(), `T:\`, string(id)))
		},
	}
}

type simDisk struct {
	sys *winsim.System
	n   csiproxy.DiskNumber
}

func (d simDisk) number() csiproxy.DiskNumber    { return d.n }
func (d simDisk) grow(t *testing.T, size uint64) { simtest.Must(t, d.sys.GrowDisk(d.n, int64(size))) }
func (d simDisk) detach(t *testing.T)            { simtest.Must(t, d.sys.DetachDisk(d.n)) }

func (d simDisk) copy(t *testing.T) func(t *testing.T) testDisk {
	return func(t *testing.T) testDisk {
		n, err := d.sys.CloneDisk(d.n, winsim.DiskSpec{Offline: true})
		simtest.Must(t, err)
		d.sys.Settle()
		return simDisk{d.sys, n}
	}
}
