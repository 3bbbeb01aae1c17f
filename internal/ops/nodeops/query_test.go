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

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// panicking is a system on which a disk that is opened meets a fault of the program.
type panicking struct{ win.System }

func (panicking) OpenDevice(context.Context, string, win.Access) (win.Device, error) { panic("a bug") }

// A panic while a disk is asked reaches the caller: on the goroutine of the disk it would end the process.
func TestPanicWhileADiskIsAsked(t *testing.T) {
	ops := groupsOf(t, panicking{simtest.Open(t, winsim.Delays{})}, nodeops.Options{}).Disks
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "a bug") || !strings.Contains(p, "OpenDevice") {
			t.Errorf("the caller's panic is %q", p)
		}
	}()
	_, err := ops.AllOnline(t.Context(), "")
	t.Errorf("no panic, but %v", err)
}

// A disk that comes after a slow list has begun is known to another list that ends first. It stays known when the slow list ends:
// while it hangs, it is listed with its number.
func TestSlowListForgetsNoNewDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simtest.Open(t, winsim.Delays{})
		node, err := nodeops.New(sim, nodeops.Options{SilentDiskTimeout: 5 * time.Second})
		simtest.Must(t, err)
		slow := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "slow"})
		simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", slow), Count: 1}, 2*time.Second))
		ended := make(chan error, 1)
		go func() {
			_, err := node.Disk.ListDiskIDs(context.Background())
			ended <- err
		}()
		time.Sleep(time.Second)
		arrived := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "new"})
		states, err := node.DiskStates(t.Context())
		simtest.Must(t, err)
		simtest.Want(t, "online", states["online"], 3) // one is the system's
		simtest.Must(t, <-ended)
		simtest.Must(t, sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", arrived)}, time.Hour))
		ids, err := node.Disk.ListDiskIDs(t.Context())
		simtest.Must(t, err)
		if _, isListed := ids[arrived]; !isListed {
			t.Errorf("the disk isn't listed: %v", ids)
		}
		time.Sleep(2 * time.Hour)
	})
}
