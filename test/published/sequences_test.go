// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// shipped is a driver with what its cloud attaches.
type shipped struct {
	name string
	// drive is how the paths begin that kubelet hands to it.
	drive string
	// hardware and driver are of the i-th volume; disk is the number that its disk
	// got.
	hardware func(i int) hardware
	driver   func(c clients, i int, disk uint32) driver
	// grows tells whether staging grows the volume with its disk, and takesOffline
	// whether unstaging leaves the disk offline.
	grows, takesOffline bool
	// getsStuck tells that the driver, cut off between unmounting the volume and
	// removing the directory, fails ever after: it asks for the volume at the
	// directory, and no answer would be right but that there is none. Somebody has
	// to remove the directory.
	getsStuck bool
}

var shippedDrivers = []shipped{
	{
		name: "EBS", drive: `c:`, grows: true, takesOffline: true,
		hardware: func(i int) hardware {
			return hardware{size: 4 * gib, serial: fmt.Sprintf("vol%017x_00000001.", i)}
		},
		driver: func(c clients, i int, _ uint32) driver {
			return ebs{c, fmt.Sprintf("vol-%017x", i)}
		},
	},
	{
		name: "Azure Disk", drive: `c:`, grows: true,
		hardware: func(i int) hardware { return hardware{size: 4 * gib, adapter: 1, lun: i} },
		driver: func(c clients, i int, _ uint32) driver {
			return azureDisk{c, fmt.Sprint(i)}
		},
	},
	{
		name: "GCE PD", drive: ``, grows: true, takesOffline: true, getsStuck: true,
		hardware: func(i int) hardware {
			return hardware{size: 4 * gib, page83: fmt.Sprintf("Google  PersistentDisk  pvc-%d", i), offline: true}
		},
		driver: func(c clients, i int, _ uint32) driver {
			return gcePD{c, fmt.Sprintf("pvc-%d", i)}
		},
	},
	{
		name: "local iSCSI", drive: `C:`, takesOffline: true,
		hardware: func(int) hardware { return hardware{size: 4 * gib, sectorSize: 4096, offline: true} },
		driver: func(c clients, _ int, disk uint32) driver {
			return localISCSI{c, disk}
		},
	},
}

// claim is a volume on its way through a driver.
type claim struct {
	driver
	disk            uint32
	staging, target string // as the driver gets them
	// What the node has of the same: the paths with a drive, and a pod's file.
	nodeStaging, nodeTarget, data string
}

// claim attaches the i-th volume. As kubelet does, it makes the directory that the
// target path is in and, if makeStaging, the staging path.
func (s shipped) claim(n *node, i int, makeStaging bool, before func(string) error) claim {
	n.t.Helper()
	disk := n.attach(s.hardware(i))
	staging := fmt.Sprintf(`\var\lib\kubelet\plugins\kubernetes.io\csi\driver\%064x\globalmount`, i)
	target := fmt.Sprintf(`\var\lib\kubelet\pods\7a1c1f0e-7d2f-4a6e-9d55-0123456789ab\volumes\kubernetes.io~csi\pvc-%d\mount`, i)
	c := claim{
		driver: s.driver(n.clients(before), i, disk), disk: disk,
		staging: s.drive + staging, target: s.drive + target,
		nodeStaging: `C:` + staging, nodeTarget: `C:` + target, data: `C:` + target + `\data`,
	}
	o := n.operator()
	o.mkdir(parent(c.nodeTarget))
	o.mkdir(parent(c.nodeStaging))
	if makeStaging {
		o.mkdir(c.nodeStaging)
	}
	return c
}

// Each driver's sequence of calls, each step twice: the second time all is done
// already.
func TestDrivers(t *testing.T) {
	t.Parallel()
	for _, s := range shippedDrivers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			for i, makeStaging := range []bool{true, false} {
				t.Run(fmt.Sprintf("staging path exists=%t", makeStaging), func(t *testing.T) {
					n := n.in(t)
					testDriver(t, n, s, s.claim(n, i+1, makeStaging, nil))
				})
			}
		})
	}
}

func testDriver(t *testing.T, n *node, s shipped, c claim) {
	o := n.operator()
	twice := func(step string, f func() error) {
		t.Helper()
		for i := range 2 {
			if err := f(); err != nil {
				t.Fatalf("%s for the %d. time: %v", step, i+1, err)
			}
		}
	}
	publish := func() {
		t.Helper()
		twice("stage", func() error { return c.stage(c.staging) })
		if o.mounted(c.nodeStaging) == "" {
			t.Fatal("nothing is mounted at the staging path")
		}
		twice("publish", func() error { return c.publish(c.staging, c.target) })
	}
	unpublish := func() {
		t.Helper()
		twice("unpublish", func() error { return c.unpublish(c.target) })
		n.wantGone(c.nodeTarget)
		twice("unstage", func() error { return c.unstage(c.staging) })
		if volume := o.mounted(c.nodeStaging); volume != "" {
			t.Errorf("after unstaging %s is mounted", volume)
		}
		if online := n.disk(c.disk).Online; online == s.takesOffline {
			t.Errorf("after unstaging the disk is online: %t", online)
		}
	}

	publish()
	n.write(c.data, "of a pod")
	n.wantText(c.nodeStaging+`\data`, "of a pod")
	unpublish()

	publish()
	n.reboot() // mount points stay
	n.wantText(c.data, "of a pod")
	unpublish()

	n.grow(c.disk, 8*gib)
	publish()
	n.wantText(c.data, "of a pod")
	if size := o.size(o.mounted(c.nodeStaging)); size > 7*gib != s.grows {
		t.Errorf("on a disk of 8 GiB the volume has %d bytes", size)
	}
	unpublish()
}

// errCut is what a driver's call gives when the daemon has gone.
var errCut = status.Error(codes.Unavailable, "the daemon is gone")

// The daemon is killed before the k-th call, whichever that is; the call fails, and
// kubelet repeats the whole step.
func TestDriversCutOff(t *testing.T) {
	t.Parallel()
	for _, s := range shippedDrivers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			for k := 1; ; k += stride(7) {
				var calls int
				c := s.claim(n, k, k%2 == 0, func(string) error {
					if calls++; calls != k {
						return nil
					}
					if err := n.restart(); err != nil {
						return err
					}
					return errCut
				})
				live(n, s, c, fmt.Sprintf("cut off at call %d", k))
				if calls < k {
					if k == 1 {
						t.Fatal("the driver makes no calls")
					}
					return // k is past the end
				}
				n.detach(c.disk)
			}
		})
	}
}

// The daemon is killed and started again before every call, and the drivers don't
// notice.
func TestDriversRestartedThroughout(t *testing.T) {
	t.Parallel()
	for _, s := range shippedDrivers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			calls, stride := 0, stride(3)
			c := s.claim(n, 1, false, func(string) error {
				if calls++; calls%stride != 0 {
					return nil
				}
				return n.restart()
			})
			live(n, s, c, "restarted throughout")
		})
	}
}

// stride is 1, and short in short tests: of so many cases they take one.
func stride(short int) int {
	if testing.Short() {
		return short
	}
	return 1
}

// live takes a volume through its life on a node, which a pod's data have to
// survive, and through the next one. It repeats a step that fails once, as kubelet
// does without end.
func live(n *node, s shipped, c claim, what string) {
	n.t.Helper()
	step := func(name string, f func() error) {
		n.t.Helper()
		err := f()
		if status.Code(err) == codes.Unavailable {
			err = f()
		}
		if status.Code(err) == codes.NotFound && name == "unstage" && s.getsStuck {
			o := n.operator()
			if volume := o.mounted(c.nodeStaging); volume != "" {
				n.t.Fatalf("%s: unstaging fails while %s is mounted: %v", what, volume, err)
			}
			o.must(o.removeDir(context.Background(), c.nodeStaging, false))
			err = f()
		}
		if err != nil {
			n.t.Fatalf("%s: %s: %v", what, name, err)
		}
	}
	text := "data of a pod, " + what
	for life := range 2 {
		step("stage", func() error { return c.stage(c.staging) })
		step("publish", func() error { return c.publish(c.staging, c.target) })
		if life == 0 {
			n.write(c.data, text)
			n.grow(c.disk, 8*gib)
		}
		n.wantText(c.data, text)
		step("unpublish", func() error { return c.unpublish(c.target) })
		step("unstage", func() error { return c.unstage(c.staging) })
	}
}
