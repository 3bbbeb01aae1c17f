// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Each operation is shown against five mishaps at each of its calls to Windows: an
// error, its own death, a call that hangs, another disk in the place of its own, and
// somebody else who does the same. See scenarios.

// stride is how many calls lie between two mishaps of a scenario.
func stride() int {
	if simtest.Sampled() {
		return 31
	}
	return 1
}

// eachScenario tests the scenarios, several at one time.
func eachScenario(t *testing.T, test func(t *testing.T, s scenario)) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			skipOpen(t)
			test(t, s)
		})
	}
}

// atEachCall runs a scenario once for each call that it makes, in a bubble each. mishap is
// called before the call with the index at; after says what follows.
func atEachCall(t *testing.T, first int, s scenario, try func(t *testing.T, r *rig, before func(f func(c winsim.Call)))) {
	t.Helper()
	for at, more := first, true; more; at += stride() {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			s.prepare(r)
			r.sim.Settle()
			var calls atomic.Int64 // an operation may make several at one time
			try(t, r, func(f func(winsim.Call)) {
				r.sim.OnCall(func(c winsim.Call) {
					if c.Name == win.IoctlStorageQueryProperty.String() {
						r.identified.Store(true)
					}
					if calls.Add(1)-1 == int64(at) {
						f(c)
					}
				})
			})
			synctest.Wait()
			more = int64(at) < calls.Load()
			if calls.Load() == 0 {
				t.Fatal("the operation makes no call to Windows")
			}
		})
		if t.Failed() {
			t.Fatalf("that was at call %d", at)
		}
	}
}

// succeeds checks that a scenario succeeds in a new process, and has done all.
func (s scenario) succeeds(t *testing.T, r *rig) {
	t.Helper()
	r.sim.OnCall(nil)
	r.sim.ResetRules()
	if err := s.again(s.run(t.Context(), r, r.process())); err != nil {
		t.Errorf("repeated: %v", err)
		return
	}
	s.holds(t, r)
}

// holds checks what holds when a run has succeeded.
func (s scenario) holds(t *testing.T, r *rig) {
	t.Helper()
	r.sim.OnCall(nil)
	if s.check == nil {
		return
	}
	if err := s.check(r); err != nil {
		t.Error(err)
	}
}

// errorsAtCalls are the errors that a call may have, one of each class: the device has left,
// somebody else uses it, it is sick for a moment, the node may not touch it, and one that
// nobody has thought of.
var errorsAtCalls = []win.Errno{
	win.ErrorDeviceNotConnected, win.ErrorSharingViolation, win.ErrorIODevice, win.ErrorAccessDenied, win.Errno(1337),
}

func TestErrorAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		for _, errno := range errorsAtCalls {
			atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
				before(func(c winsim.Call) { r.must(r.sim.Fail(winsim.Match{Call: c.Name, Count: 1}, errno)) })
				if err := s.run(t.Context(), r, r.process()); err == nil || s.refused {
					s.holds(t, r)
				}
				s.succeeds(t, r)
			})
		}
	})
}

func TestDeathAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			const died = "the process died"
			before(func(winsim.Call) { panic(died) })
			func() {
				defer func() {
					if p := recover(); p != nil && !isDeath(p, died) {
						panic(p)
					}
				}()
				if s.run(operation.Inline(t.Context()), r, r.process()) == nil {
					s.holds(t, r)
				}
			}()
			s.succeeds(t, r)
		})
	})
}

func isDeath(p any, died string) bool {
	text := fmt.Sprint(p)
	return len(text) >= len(died) && text[:len(died)] == died
}

// bystanders are operations on other objects than those of any scenario.
func bystanders(r *rig) map[string]func(ctx context.Context, n *nodeops.Node) error {
	other := r.attach(winsim.DiskSpec{Serial: "other"})
	simtest.Partition(r.t, r.sim, other, 1)
	r.sim.Settle()
	name := volume.ID(r.sim.VolumesOfDisk(other)[0])
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

// patient is how long an operation may take while another object hangs: that of a disk
// that is silent, and a little.
const patient = 6 * time.Second

func TestHangAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			n := r.process()
			beside := bystanders(r)
			// A bystander that makes the very call that hangs, such as on the kubelet
			// directory, is none.
			makes := make(map[string]map[winsim.Call]bool)
			for name, f := range beside {
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
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := f(ctx, n)
				cancel()
				own := name == "a directory" && strings.HasSuffix(hung.Object, `\pods\other`)
				if own || makes[name][hung] && !passesOver(name, hung) {
					continue
				}
				if took := time.Since(began); err != nil || took > patient {
					t.Errorf("%s hangs on %q; %s took %v: %v", hung.Name, hung.Object, name, took, err)
				}
			}
			// Repeats end, whatever they answer, and don't pile up.
			const repeats = 20
			ended := make(chan struct{}, repeats)
			for range repeats {
				go func() {
					_ = s.run(t.Context(), r, n)
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

// A disk that takes the place of the one that was meant stays as it is.
func TestSwapAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		first := 0
		if s.byNumber {
			first = 1
		}
		atEachCall(t, first, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			var newcomer disk.Number
			var was string
			before(func(winsim.Call) {
				r.sim.OnCall(nil)
				newcomer, was = r.swap()
			})
			ctx, cancel := context.WithTimeout(operation.Inline(t.Context()), time.Minute)
			defer cancel()
			err := s.run(ctx, r, r.process())
			if was == "" {
				r.must(s.again(err))
				return
			}
			if is := r.content(newcomer); is != was {
				t.Errorf("the disk that came was\n%s\nand is\n%s\nafter %v", was, is, err)
			}
		})
	})
}

// A disk that takes the place of the one that was meant under an open handle, with the same
// contents, is found out before each change.
func TestCloneAtEachCall(t *testing.T) {
	changes := []string{
		win.IoctlDiskSetDiskAttributes.String(), win.IoctlDiskCreateDisk.String(), win.IoctlDiskSetDriveLayoutEx.String(),
		win.IoctlDiskGrowPartition.String(), win.CallFormatVolume, win.FsctlExtendVolume.String(),
	}
	// An operation can't do better than look right before a change: it asks the disk what it is,
	// and then reads what is on it.
	const between = 10
	eachScenario(t, func(t *testing.T, s scenario) {
		atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			before(func(winsim.Call) {
				r.sim.OnCall(nil)
				if r.number == 0 || !r.identified.Load() {
					return
				}
				r.must(r.sim.SwapDisk(r.number, winsim.DiskSpec{Serial: "clone", Page83: []win.Identifier{}}, true))
				var since atomic.Int64
				r.sim.OnCall(func(c winsim.Call) {
					if n := since.Add(1); n > between && slices.Contains(changes, c.Name) {
						t.Errorf("%s on %q is call %d after the disk has become another one", c.Name, c.Object, n)
					}
				})
			})
			ctx, cancel := context.WithTimeout(operation.Inline(t.Context()), time.Minute)
			defer cancel()
			_ = s.run(ctx, r, r.process()) // it may find out, or be done already
		})
	})
}

// swap takes the scenario's disk away, and attaches another one, with somebody's volume
// on it and room to grow, that gets its number.
func (r *rig) swap() (disk.Number, string) {
	r.t.Helper()
	if r.volume == "" && r.number == 0 {
		return 0, ""
	}
	r.must(r.sim.DetachDisk(r.number))
	n := r.attach(winsim.DiskSpec{Serial: "newcomer", SizeBytes: 30 << 30})
	if n != r.number {
		r.t.Fatalf("the disk that came is %d, not %d", n, r.number)
	}
	simtest.Partition(r.t, r.sim, n, 1)
	r.sim.Settle()
	names := r.sim.VolumesOfDisk(n)
	r.must(r.sim.FormatVolume(context.Background(), names[0], win.FormatOptions{FileSystem: "NTFS"}))
	simtest.Mount(r.t, r.sim, `C:\newcomer`, names[0])
	r.must(r.sim.WriteFile(`C:\newcomer`+file, []byte("somebody's")))
	r.must(r.sim.FlushFile(`C:\newcomer` + file))
	return n, r.content(n)
}

// content describes what is on a disk, its state, and where it is mounted.
func (r *rig) content(n disk.Number) string {
	r.t.Helper()
	head := make([]byte, 1<<20)
	r.must(r.sim.ReadImage(n, head, 0))
	data, err := r.sim.ReadFile(`C:\newcomer` + file)
	for _, info := range r.sim.Disks() {
		if info.Number == n && info.Spec.Serial == "newcomer" {
			return fmt.Sprintf("table %x, file %q, %v, attributes %v", crc(head), data, err, info.Attributes)
		}
	}
	return "gone"
}

func crc(b []byte) (sum uint64) {
	for _, c := range b {
		sum = sum*1099511628211 + uint64(c)
	}
	return sum
}

// Somebody else, in another process, does the same to the end between two calls, and
// writes a file: nothing of that is lost.
func TestSecondProcessAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			written := ""
			before(func(winsim.Call) {
				r.sim.OnCall(nil)
				// What the first process has open may keep the second one from it.
				err := s.run(operation.Inline(context.Background()), r, r.process())
				if s.again(err) == nil {
					written = r.use(s)
				} else if csiproxy.KindOf(err) != csiproxy.ErrUnavailable {
					t.Errorf("the second process: %v", err)
				}
			})
			first := s.run(operation.Inline(t.Context()), r, r.process())
			if s.again(first) == nil && written == "" {
				s.holds(t, r)
			}
			r.sim.OnCall(nil)
			if written != "" {
				data, err := r.sim.ReadFile(written)
				if err := want("the file of the second process", string(data), "precious", err); err != nil {
					t.Errorf("%v; the first process got %v", err, first)
				}
			}
			s.succeeds(t, r)
		})
	})
}

// use does with the scenario's disk what a driver does next, up to a file on it, and
// returns the file's path; "" if there is no disk to be used.
func (r *rig) use(s scenario) string {
	r.t.Helper()
	if r.number == 0 || s.offline || s.readOnly {
		return ""
	}
	ctx, n := operation.Inline(context.Background()), r.process()
	path := cmp.Or(s.usedAt, simtest.Kubelet+`\plugins\second\pv-1\globalmount`)
	r.must(n.Disk.SetDiskState(ctx, r.number, true))
	r.must(n.Disk.PartitionDisk(ctx, r.number))
	id, err := n.Volume.DataVolumeOfDisk(ctx, r.number)
	r.must(err)
	formatted, err := n.Volume.IsVolumeFormatted(ctx, id)
	r.must(err)
	if !formatted {
		r.must(n.Volume.FormatVolume(ctx, id))
	}
	r.must(n.Volume.MountVolume(ctx, id, path))
	r.must(r.sim.WriteFile(path+file, []byte("precious")))
	r.must(r.sim.FlushFile(path + file))
	return path + file
}
