// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/test/published/drivers"
)

// shipped is a driver with the volumes that its cloud has.
type shipped struct {
	name string
	// drive is how the paths begin that kubelet hands to it.
	drive string
	// volume makes the i-th volume, where the driver finds it.
	volume func(n *node, i int) storage
	// grows tells whether staging grows the volume with its disk.
	grows bool
	// endsWithReboot tells that a restart of the node ends what staging has done.
	endsWithReboot bool
	// getsStuck tells that the driver, cut off in the middle of unstaging, fails ever
	// after: somebody has to remove what is at the staging path. GCE PD's asks for the
	// volume there, when it has unmounted it, and no answer would be right but that
	// there is none; the SMB driver counts volumes, and can't count one down twice.
	getsStuck bool
}

// storage is a volume as it is outside of the node.
type storage interface {
	// driver returns the driver of the volume, which calls with c.
	driver(c drivers.Calls) drivers.Driver
	// grow makes the volume larger, if it has a size. It is staged.
	grow(n *node, size int64)
	// wantReleased asserts that unstaging left nothing of it on the node.
	wantReleased(n *node)
	// remove takes it away from the node.
	remove(n *node)
}

// attached is a disk that the cloud attaches.
type attached struct {
	disk      uint32
	newDriver func(c drivers.Calls) drivers.Driver
	// takesOffline tells whether unstaging leaves the disk offline.
	takesOffline bool
}

func (a attached) driver(c drivers.Calls) drivers.Driver { return a.newDriver(c) }
func (a attached) grow(n *node, size int64)              { n.t.Helper(); n.grow(a.disk, size) }
func (a attached) remove(n *node)                        { n.t.Helper(); n.detach(a.disk) }

func (a attached) wantReleased(n *node) {
	n.t.Helper()
	is := func(d answer) bool { return d.has("disk_number") && d.get("disk_number").Uint() == uint64(a.disk) }
	if online := !n.disk(is).bool("offline"); online == a.takesOffline {
		n.t.Errorf("after unstaging the disk is online: %t", online)
	}
}

var shippedDrivers = []shipped{
	{
		name: "EBS", drive: `c:`, grows: true,
		volume: func(n *node, i int) storage {
			disk := n.attach(hardware{size: 4 * gib, serial: fmt.Sprintf("vol%017x_00000001.", i)})
			return attached{disk, func(c drivers.Calls) drivers.Driver {
				id := fmt.Sprintf("vol%017x", i)
				return drivers.NewEBS(c, func(ids drivers.DiskIDs) bool { return strings.Contains(ids.SerialNumber, id) })
			}, true}
		},
	},
	{
		name: "Azure Disk", drive: `c:`, grows: true,
		volume: func(n *node, i int) storage {
			disk := n.attach(hardware{size: 4 * gib, adapter: 1, lun: i})
			return attached{disk, func(c drivers.Calls) drivers.Driver {
				return drivers.NewAzureDisk(c, func(_ uint32, lun string) bool { return lun == fmt.Sprint(i) }, true)
			}, false}
		},
	},
	{
		name: "GCE PD", drive: ``, grows: true, getsStuck: true,
		volume: func(n *node, i int) storage {
			disk := n.attach(hardware{size: 4 * gib, page83: fmt.Sprintf("Google  PersistentDisk  pvc-%d", i), offline: true})
			return attached{disk, func(c drivers.Calls) drivers.Driver {
				return drivers.NewGCEPD(c, func(ids drivers.DiskIDs) bool {
					words := strings.Fields(ids.Page83)
					return len(words) > 0 && words[len(words)-1] == fmt.Sprintf("pvc-%d", i)
				})
			}, true}
		},
	},
	{name: "local iSCSI", drive: `C:`, endsWithReboot: true, volume: newLUN},
	{name: "SMB", drive: `c:`, endsWithReboot: true, getsStuck: true, volume: newSMBVolume},
	{name: "Azure File", drive: `c:`, endsWithReboot: true, volume: newAzureFile},
}

// claim is a volume on its way through a driver.
type claim struct {
	drivers.Driver
	storage
	staging, target string // as the driver gets them
	// What the node has of the same: the paths with a drive, and a pod's file.
	nodeStaging, nodeTarget, data string
}

// claim makes the i-th volume. As kubelet does, it makes the directory that the
// target path is in and, if makeStaging, the staging path.
func (s shipped) claim(n *node, i int, makeStaging bool, before func(string) error) claim {
	n.t.Helper()
	volume := s.volume(n, i)
	c := s.publication(n, volume, i, i, before)
	o := n.operator()
	o.mkdir(parent(c.nodeStaging))
	if makeStaging {
		o.mkdir(c.nodeStaging)
	}
	return c
}

// publication is a volume, staged at the i-th path, for the pod-th pod.
func (s shipped) publication(n *node, volume storage, i, pod int, before func(string) error) claim {
	n.t.Helper()
	staging := fmt.Sprintf(`\var\lib\kubelet\plugins\kubernetes.io\csi\driver\%064x\globalmount`, i)
	target := fmt.Sprintf(`\var\lib\kubelet\pods\7a1c1f0e-7d2f-4a6e-9d55-%012d\volumes\kubernetes.io~csi\pvc-%d\mount`, pod, i)
	n.operator().mkdir(parent(`C:` + target))
	return claim{
		Driver: volume.driver(n.clients(before)), storage: volume,
		staging: s.drive + staging, target: s.drive + target,
		nodeStaging: `C:` + staging, nodeTarget: `C:` + target, data: `C:` + target + `\data`,
	}
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
		twice("stage", func() error { return c.Stage(c.staging) })
		if e := n.find(c.nodeStaging); e == nil || !e.Reparse {
			t.Fatalf("at the staging path is %+v", e)
		}
		twice("publish", func() error { return c.Publish(c.staging, c.target) })
	}
	unpublish := func() {
		t.Helper()
		twice("unpublish", func() error { return c.Unpublish(c.target) })
		n.wantGone(c.nodeTarget)
		twice("unstage", func() error { return c.Unstage(c.staging) })
		if e := n.find(c.nodeStaging); e != nil && e.Reparse {
			t.Errorf("after unstaging at the staging path is %+v", e)
		}
		c.wantReleased(n)
	}

	publish()
	n.write(c.data, "of a pod")
	n.wantText(c.nodeStaging+`\data`, "of a pod")
	unpublish()

	publish()
	must(t, n.restart())
	n.wantText(c.data, "of a pod")
	n.reboot()
	if s.endsWithReboot {
		if _, err := n.simTry("ReadFile", fields{"path": c.data}); err == nil {
			t.Error("the pod's file can be read right after a restart of the node")
		}
		publish()
	} // else links and mount points are all that it takes, and stay
	n.wantText(c.data, "of a pod")
	c.grow(n, 8*gib)
	unpublish()

	publish()
	n.wantText(c.data, "of a pod")
	if s.grows {
		if size := o.size(o.mounted(c.nodeStaging)); size < 7*gib {
			t.Errorf("on a disk of 8 GiB the volume has %d bytes", size)
		}
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
				c.remove(n)
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

// retried repeats a step once if the daemon wasn't there, as kubelet does without end.
func retried(step func() error) error {
	err := step()
	if status.Code(err) == codes.Unavailable {
		err = step()
	}
	return err
}

// live takes a volume through its life on a node, which a pod's data have to
// survive, and through the next one.
func live(n *node, s shipped, c claim, what string) {
	n.t.Helper()
	step := func(name string, f func() error) {
		n.t.Helper()
		err := retried(f)
		if err != nil && name == "unstage" && s.getsStuck {
			o := n.operator()
			if volume := o.mounted(c.nodeStaging); volume != "" {
				n.t.Fatalf("%s: unstaging fails while %s is mounted: %v", what, volume, err)
			}
			o.do(func(s *drivers.Step) { s.Rmdir(c.nodeStaging, true) })
			err = f()
		}
		if err != nil {
			n.t.Fatalf("%s: %s: %v", what, name, err)
		}
	}
	text := "data of a pod, " + what
	for life := range 2 {
		step("stage", func() error { return c.Stage(c.staging) })
		step("publish", func() error { return c.Publish(c.staging, c.target) })
		if life == 0 {
			n.write(c.data, text)
			c.grow(n, 8*gib)
		}
		n.wantText(c.data, text)
		step("unpublish", func() error { return c.Unpublish(c.target) })
		step("unstage", func() error { return c.Unstage(c.staging) })
	}
}
