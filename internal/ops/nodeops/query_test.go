// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"strings"
	"testing"

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
