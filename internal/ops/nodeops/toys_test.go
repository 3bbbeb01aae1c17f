// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Each test of resilience must be able to fail. Toys are operations of a few calls to Windows. One of
// these calls is made wrongly: a mishap there does harm. The test must notice it, at whichever call.

// toyCalls is how many calls a toy makes.
const toyCalls = 3

// fault makes a call of a toy wrongly. The disk is open as d if the toy opens it.
type fault func(ctx context.Context, r *rig, d win.Device, call func() error) error

const (
	toyDone   = `C:\toy-done`
	toyBroken = `C:\toy-broken`
)

var (
	errToy  = errors.New("the toy is broken")
	errLost = errors.New("the toy ends without this error")
)

// toy returns a scenario with a fault at one of its calls, or with none if there is no such call.
func toy(at int, opens bool, f fault) scenario {
	path := func(i int) string { return fmt.Sprintf(`C:\toy-%d`, i) }
	return scenario{
		name: "toy",
		prepare: func(r *rig) {
			r.raw(false)
			for i := range toyCalls {
				r.must(r.sim.WriteFile(path(i), nil))
			}
		},
		run: func(ctx context.Context, r *rig, _ *nodeops.Node) (err error) {
			var d win.Device
			if opens {
				d, err = r.sim.OpenDevice(ctx, fmt.Sprintf(`\\.\PhysicalDrive%d`, r.number), win.GenericRead|win.GenericWrite)
				if err != nil {
					return err
				}
				defer d.Close()
				query := win.EncodePropertyQuery(win.PropertyDevice)
				if _, err := d.Control(ctx, win.IoctlStorageQueryProperty, query, make([]byte, 4096)); err != nil {
					return err
				}
			}
			for i := range toyCalls {
				call := func() error { _, err := r.sim.FileAttributes(ctx, path(i)); return err }
				if i == at {
					err = f(ctx, r, d, call)
				} else {
					err = bounded(call)
				}
				if errors.Is(err, errLost) {
					return nil
				}
				if err == nil {
					err = ctx.Err()
				}
				if err != nil {
					return err
				}
			}
			return r.sim.WriteFile(toyDone, nil)
		},
		check: func(r *rig) error { return want("done", r.has(toyDone), true, nil) },
	}
}

func (r *rig) has(path string) bool {
	_, err := r.sim.ReadFile(path)
	return err == nil
}

// bounded makes a call, and waits a second for it at most.
func bounded(call func() error) error {
	ended, died := make(chan error, 1), make(chan any, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				died <- p
			}
		}()
		ended <- call()
	}()
	select {
	case err := <-ended:
		return err
	case p := <-died:
		panic(p)
	case <-time.After(time.Second):
		return errors.New("overdue")
	}
}

// serial is that of the disk that has the toy's number.
func (r *rig) serial() string {
	for _, d := range r.sim.Disks() {
		if d.Number == r.number && d.State != disks.Detached {
			return d.Spec.Serial
		}
	}
	return ""
}

func TestEachMishapIsNoticed(t *testing.T) {
	const secondFile = simtest.Kubelet + `\plugins\second\pv-1\globalmount` + file
	for name, of := range map[string]struct {
		test   func(t *testing.T)
		opens  bool
		faults map[string]fault
	}{
		"error": {test: TestErrorAtEachCall, faults: map[string]fault{
			"lost": func(_ context.Context, _ *rig, _ win.Device, call func() error) error {
				if call() != nil {
					return errLost
				}
				return nil
			},
			"for-good": func(_ context.Context, r *rig, _ win.Device, call func() error) error {
				if r.has(toyBroken) {
					return errToy
				}
				err := call()
				if err != nil {
					r.must(r.sim.WriteFile(toyBroken, nil))
				}
				return err
			},
		}},
		"given-up": {test: TestGivenUpAtEachCall, faults: map[string]fault{
			"lost": func(ctx context.Context, _ *rig, _ win.Device, call func() error) error {
				if _ = call(); ctx.Err() != nil {
					return errLost
				}
				return nil
			},
			"renamed": func(ctx context.Context, _ *rig, _ win.Device, call func() error) error {
				if _ = call(); ctx.Err() != nil {
					return errToy
				}
				return nil
			},
		}},
		"death": {test: TestDeathAtEachCall, faults: map[string]fault{"half-done": halfDone}},
		"second-process": {test: TestSecondProcessAtEachCall, faults: map[string]fault{
			"half-done": halfDone,
			"file-lost": func(_ context.Context, r *rig, _ win.Device, call func() error) error {
				before := r.has(secondFile)
				err := call()
				if !before && r.has(secondFile) {
					r.must(r.sim.Remove(secondFile))
				}
				return err
			},
		}},
		"hang": {test: TestHangAtEachCall, faults: map[string]fault{
			"repeats": func(_ context.Context, _ *rig, _ win.Device, call func() error) error { return call() },
			"others": func(_ context.Context, r *rig, _ win.Device, call func() error) error {
				err := bounded(call)
				if err != nil {
					r.must(r.sim.DelayUncancellable(winsim.Match{Call: win.CallQueryService}, time.Hour))
				}
				return err
			},
		}},
		"swap": {test: TestSwapAtEachCall, faults: map[string]fault{
			"written": func(_ context.Context, r *rig, _ win.Device, call func() error) error {
				before := r.serial()
				err := call()
				if r.serial() != before {
					r.must(r.sim.WriteImage(r.number, []byte("toy"), 0))
				}
				return err
			},
		}},
		"clone": {test: TestCloneAtEachCall, opens: true, faults: map[string]fault{
			"changed": func(ctx context.Context, r *rig, d win.Device, call func() error) error {
				before := r.serial()
				if err := call(); err != nil || r.serial() == before {
					return err
				}
				_, err := d.Control(ctx, win.IoctlDiskSetDiskAttributes, win.SetDiskAttributes{}.Encode(), nil)
				return err
			},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			toys := make(map[string]func(t *testing.T))
			for what, f := range of.faults {
				add := func(name string, at int, sample []int) {
					toys[fmt.Sprintf("%s-%s-%d", name, what, at)] = func(t *testing.T) {
						sampleOnce.Do(func() {})
						sound, broken := toy(-1, of.opens, f), toy(at, of.opens, f)
						broken.sample = sample
						scenarios = []scenario{sound, broken}
						of.test(t)
					}
				}
				add("sound", toyCalls, nil)
				for at := range toyCalls {
					add("broken", at, nil)
				}
				first := 0
				if of.opens {
					first = 2
				}
				add("broken-in-the-sample", toyCalls-1, []int{0, first + toyCalls - 1})
			}
			simtest.TryToys(t, toys)
		})
	}
}

// A toy is the models of TestModel, up to the first that fails. Its steps leave a file behind when a mishap of
// one kind meets them, or its pods don't flush what they write. TestModel checks that each kind meets enough
// steps.
func TestEachMishapOfTheModelIsNoticed(t *testing.T) {
	try := func(change func(m *model)) func(t *testing.T) {
		return func(t *testing.T) {
			for seed := uint64(0); seed < models && !t.Failed(); seed++ {
				runModel(t, seed, change)
			}
		}
	}
	toys := map[string]func(t *testing.T){
		"sound":     try(func(*model) {}),
		"unflushed": try(func(m *model) { m.flush = func(string) error { return nil } }),
	}
	for _, kind := range []string{"error", "hang", errKilled.Error(), errPowerLoss.Error()} {
		toys["broken-by-"+strings.ReplaceAll(kind, " ", "-")] = try(func(m *model) {
			m.try = func(ctx context.Context, do func() error) error {
				begin := time.Now()
				err := do()
				if mishap(ctx, begin, err) == kind {
					left := simtest.Kubelet + `\pods\left`
					simtest.WantError(m.t, errors.Join(m.sim.WriteFile(left, nil), m.sim.FlushFile(left)), nil)
				}
				return err
			}
		})
	}
	simtest.TryToys(t, toys)
}

// halfDone is how a call leaves something undone that the rest of the operation would do.
func halfDone(_ context.Context, r *rig, _ win.Device, call func() error) error {
	if r.has(toyBroken) {
		return errToy
	}
	r.must(r.sim.WriteFile(toyBroken, nil))
	err := call()
	r.must(r.sim.Remove(toyBroken))
	return err
}

// A sample has the first call of each scenario, and more.
func TestSample(t *testing.T) {
	sampleOnce.Do(func() { sample(t) })
	calls := 0
	for _, s := range scenarios {
		if calls += len(s.sample); len(s.sample) == 0 || s.sample[0] != 0 {
			t.Errorf("%s: the calls %v", s.name, s.sample)
		}
	}
	if calls < 5*len(scenarios)/2 { // scenarios have most of their lines in common
		t.Errorf("%d calls of %d scenarios", calls, len(scenarios))
	}
}

// Two acts count in a file, and one of them reads it before a call and writes it after that: what the
// other one has counted meanwhile is lost.
func TestEachMeetingIsNoticed(t *testing.T) {
	const counter = simtest.Kubelet + `\toy-count`
	count := func(r *rig, between func() error) (any, error) {
		before, err := r.sim.ReadFile(counter)
		r.must(err)
		if err := between(); err != nil {
			return nil, err
		}
		r.must(r.sim.WriteFile(counter, append(before, '1')))
		return len(before), nil
	}
	counts := func(name string, at int, meanwhile time.Duration) act {
		return act{name: name, on: aVolume, run: func(ctx context.Context, r *rig, _ *nodeops.Node) (answer any, err error) {
			for i := range toyCalls {
				call := func() error {
					_, err := r.sim.FileAttributes(ctx, simtest.Kubelet)
					time.Sleep(meanwhile)
					return err
				}
				if i == at {
					answer, err = count(r, call)
				} else {
					err = call()
				}
				if err != nil {
					return nil, err
				}
			}
			if at == toyCalls {
				return count(r, func() error { return nil })
			}
			return answer, nil
		}}
	}
	toys := make(map[string]func(t *testing.T))
	for at := range toyCalls + 1 {
		name := fmt.Sprint("broken-at-", at)
		if at == toyCalls {
			name = "sound"
		}
		for what, of := range map[string]struct {
			test      func(t *testing.T)
			pairs     string
			meanwhile time.Duration
		}{
			"all":    {TestPairs, "all", 0},
			"sample": {TestPairs, "", 0},
			"crowds": {TestCrowds, "", time.Second},
		} {
			toys[name+"-in-"+what] = func(t *testing.T) {
				t.Setenv("PAIRS", of.pairs)
				starts = []start{{name: "toy", has: aVolume, prepare: func(r *rig) { r.must(r.sim.WriteFile(counter, nil)) }}}
				acts = []act{counts("sound", toyCalls, of.meanwhile), counts("broken", at, of.meanwhile)}
				of.test(t)
			}
		}
	}
	simtest.TryToys(t, toys)
}
