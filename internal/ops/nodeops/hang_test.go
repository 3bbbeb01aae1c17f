// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// bystanders are operations on other objects than those of any scenario.
func bystanders(r *rig) map[string]func(ctx context.Context, n *nodeops.Node) error {
	other := r.attach(winsim.DiskSpec{Serial: "other"})
	simtest.Partition(r.t, r.sim, other, 1)
	r.sim.Settle()
	name := csiproxy.VolumeID(r.sim.VolumesOfDisk(other)[0])
	r.must(r.sim.FormatVolume(context.Background(), string(name), win.FormatOptions{FileSystem: "NTFS"}))
	staged := simtest.Kubelet + `\plugins\other\pv-3\globalmount`
	simtest.Mount(r.t, r.sim, staged, string(name))
	paths := 0
	next := func(path string) string {
		paths++
		return fmt.Sprintf("%s-%d", path, paths)
	}
	return map[string]func(ctx context.Context, n *nodeops.Node) error{
		"a disk": func(ctx context.Context, n *nodeops.Node) error {
			_, err := n.Disk.GetDiskStats(ctx, other)
			return err
		},
		"a volume": func(ctx context.Context, n *nodeops.Node) error {
			_, err := n.Volume.GetVolumeStats(ctx, name)
			return err
		},
		"the list of disks": func(ctx context.Context, n *nodeops.Node) error {
			_, err := n.Disk.ListDiskIDs(ctx)
			return err
		},
		"a rescan": func(ctx context.Context, n *nodeops.Node) error {
			// Twice, since the device tree is asked only if nothing new is found.
			return errors.Join(n.Disk.Rescan(ctx), n.Disk.Rescan(ctx))
		},
		"staging": func(ctx context.Context, n *nodeops.Node) error {
			return n.Volume.MountVolume(ctx, name, simtest.Kubelet+`\plugins\other\pv-2\globalmount`)
		},
		"publishing": func(ctx context.Context, n *nodeops.Node) error {
			return n.Storage.PublishVolume(ctx, staged, next(simtest.Kubelet+`\pods\other\volumes\pv-3`)+`\mount`)
		},
		"staging a share": func(ctx context.Context, n *nodeops.Node) error {
			request := shareRequest(next(simtest.Kubelet + `\plugins\other\share`))
			request.RemotePath = `\\other\data`
			return n.Storage.StageShare(ctx, request)
		},
		"the list of leftovers": func(ctx context.Context, n *nodeops.Node) error {
			_, err := n.Storage.CleanUp(ctx, false)
			return err
		},
		"a directory": func(ctx context.Context, n *nodeops.Node) error {
			return n.Filesystem.Mkdir(ctx, simtest.Kubelet+`\pods\other`)
		},
		"a share": func(ctx context.Context, n *nodeops.Node) error {
			return n.SMB.NewSMBGlobalMapping(ctx, `\\other\data`, "", user)
		},
		"the portals": func(ctx context.Context, n *nodeops.Node) error {
			_, err := n.ISCSI.ListTargetPortals(ctx)
			return err
		},
		"a service": func(ctx context.Context, n *nodeops.Node) error {
			_, err := n.System.GetService(ctx, "kubelet")
			return err
		},
		"the firmware": func(ctx context.Context, n *nodeops.Node) error {
			_, err := n.System.GetBIOSSerialNumber(ctx)
			return err
		},
	}
}

// passesOver reports whether a bystander has to do without the object that hangs: lists
// and rescans pass over a disk that doesn't answer, and the list of leftovers also over a
// volume.
func passesOver(bystander string, hung winsim.Call) bool {
	switch bystander {
	case "the list of disks", "a rescan":
		return strings.Contains(hung.Object, "PhysicalDrive")
	case "the list of leftovers":
		return strings.Contains(hung.Object, "PhysicalDrive") || strings.HasPrefix(hung.Object, `\\?\Volume`)
	}
	return false
}

// meets reports whether one of the calls is the one that hangs, or opens a path through its directory.
func meets(made map[winsim.Call]bool, hung winsim.Call) bool {
	for c := range made {
		if c == hung || c.Name == win.CallOpenAt && c.Name == hung.Name && strings.HasPrefix(c.Object, hung.Object+`\`) {
			return true
		}
	}
	return false
}

// patient is how long an operation may take while another object hangs: that of a disk
// that is silent, and a little.
const patient = 6 * time.Second

func TestHangAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			n := r.process()
			beside := bystanders(r)
			// A bystander that makes the very call that hangs, such as on the kubelet
			// directory, or opens a path through what hangs, is none.
			makes := make(map[string]map[winsim.Call]bool)
			const last = "the list of leftovers" // which finds what the others make
			for _, name := range append(slices.DeleteFunc(slices.Sorted(maps.Keys(beside)), func(name string) bool {
				return name == last
			}), last) {
				f := beside[name]
				var mu sync.Mutex
				made := make(map[winsim.Call]bool)
				r.sim.OnCall(func(c winsim.Call) {
					mu.Lock()
					defer mu.Unlock()
					made[c] = true
				})
				r.must(f(t.Context(), n))
				makes[name] = made
			}
			r.sim.OnCall(nil)

			var hung winsim.Call
			before(func(c winsim.Call) {
				hung = c
				r.must(r.sim.DelayUncancellable(winsim.Match{Call: c.Name, Object: c.Object}, time.Hour))
			})
			first := make(chan error, 1)
			go func() { first <- s.run(t.Context(), r, n) }()
			time.Sleep(15 * time.Second)
			synctest.Wait()
			if hung.Name == "" { // the operation makes fewer calls
				r.must(<-first)
				return
			}

			for name, f := range beside {
				own := name == "a directory" && strings.HasSuffix(hung.Object, `\pods\other`) ||
					strings.HasSuffix(hung.Object, `\csi-proxy-mappings`) || // which has the records of all mappings
					strings.HasSuffix(name, "a share") && strings.HasPrefix(hung.Object, `\\other\data`)
				if own || meets(makes[name], hung) && !passesOver(name, hung) {
					continue
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := f(ctx, n)
				cancel()
				limit := patient
				if name == "a rescan" { // there are two, and each may be the first call of its name on the disk
					limit *= 2
				}
				if took := time.Since(began); err != nil || took > limit {
					t.Errorf("%s hangs on %q; %s took %v: %v", hung.Name, hung.Object, name, took, err)
				}
			}
			// Repeats end, whatever they answer, and don't pile up.
			const repeats = 20
			ended := make(chan struct{}, repeats)
			ctx, cancel := context.WithTimeout(t.Context(), patient-time.Second) // who waits for a lock gives up then
			defer cancel()
			for range repeats {
				go func() {
					_ = s.run(ctx, r, n)
					ended <- struct{}{}
				}()
			}
			time.Sleep(patient)
			synctest.Wait()
			if len(ended) < repeats && !s.waits {
				t.Errorf("%s hangs on %q; %d of %d repeats wait for it", hung.Name, hung.Object, repeats-len(ended), repeats)
			}
			r.sim.OnCall(nil)
			r.sim.ResetRules()
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			s.succeeds(t, r)
		})
	})
}
