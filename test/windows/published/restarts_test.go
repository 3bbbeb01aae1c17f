// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
)

// The daemon is killed and started again before every call of a driver, and the driver doesn't
// notice: not in a volume's life, whose data a pod has to find again, and not in the next one.
//
// What is within a call, and the other drivers, is for internal/ops/nodeops (TestDeathAtEachCall,
// TestShareDrivers) and internal/lab/drivers.
func TestDriverRestartedThroughout(t *testing.T) {
	t.Parallel()
	const (
		id      = "vol0123456789abcdef0"
		staging = `c:\var\lib\kubelet\plugins\kubernetes.io\csi\ebs\globalmount`
		target  = `c:\var\lib\kubelet\pods\7a1c1f0e\volumes\kubernetes.io~csi\pvc-1\mount`
		data    = target + `\data`
	)
	n := newNode(t)
	disk := n.attach(hardware{size: 4 * gib, serial: id + "_00000001."})
	o := n.operator()
	o.mkdir(parent(staging))
	o.mkdir(parent(target))
	restarts := 0
	ebs := drivers.NewEBS(n.clients(func(string) error { restarts++; return n.restart() }),
		func(ids drivers.DiskIDs) bool { return strings.Contains(ids.SerialNumber, id) })

	for life := range 2 {
		step := func(name string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("life %d: %s: %v", life, name, err)
			}
		}
		step("stage", ebs.Stage(staging))
		step("publish", ebs.Publish(staging, target))
		if life == 0 {
			n.write(data, "of a pod")
			n.grow(disk, 8*gib)
		} else if size := o.size(o.mounted(staging)); size < 7*gib {
			t.Errorf("on a disk that grew to 8 GiB the volume has %d bytes", size)
		}
		n.wantText(data, "of a pod")
		step("unpublish", ebs.Unpublish(target))
		n.wantGone(target)
		step("unstage", ebs.Unstage(staging))
		if e := n.find(staging); e != nil && e.Reparse {
			t.Errorf("after unstaging at the staging path is %+v", e)
		}
	}
	if restarts < 20 || n.life() != restarts+1 {
		t.Errorf("the daemon had %d lives with %d calls, of which there are more than 20", n.life(), restarts)
	}
}
