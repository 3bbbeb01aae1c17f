// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Each operation is shown against six mishaps at each of its calls to Windows: an
// error, its own death, a caller who gives up, a call that hangs, another disk in the place
// of its own, and somebody else who does the same. See scenarios.

// eachScenario tests the scenarios, several at one time.
func eachScenario(t *testing.T, test func(t *testing.T, s scenario)) {
	sampleOnce.Do(func() { sample(t) })
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

var sampleOnce sync.Once

// sample chooses the calls of each scenario at which mishaps come in a sample: the first one, and
// those that are made by other lines of the operations than all before.
func sample(t *testing.T) {
	seen := make(map[string]bool)
	for i := range scenarios {
		s := &scenarios[i]
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			s.prepare(r)
			r.sim.Settle()
			n, calls := r.process(), 0
			var mu sync.Mutex
			r.sim.OnCall(func(winsim.Call) {
				mu.Lock()
				defer mu.Unlock()
				if lines := operationLines(); calls == 0 || !seen[lines] {
					seen[lines] = true
					s.sample = append(s.sample, calls)
				}
				calls++
			})
			r.must(s.run(t.Context(), r, n))
			r.sim.OnCall(nil)
		})
	}
}

// belowOperations are the functions that operations make calls by: many have these lines in common.
var belowOperations = regexp.MustCompile(`/(operation|pathpolicy)\.`)

// operationLines returns the last three lines of the operations by which a call to Windows is made.
func operationLines() (lines string) {
	var stack [100]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(0, stack[:])])
	for n, more := 0, true; more && n < 3; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.Contains(f.Function, "/internal/ops/") && !belowOperations.MatchString(f.Function) {
			lines += fmt.Sprintln(f.File, f.Line)
			n++
		}
	}
	return lines
}

// atEachCall runs a scenario once for each call that it makes, in a bubble each, or for those of a
// sample. mishap is called before the call with the index at; after says what follows.
func atEachCall(t *testing.T, first int, s scenario,
	try func(t *testing.T, r *rig, before func(f func(c winsim.Call)))) {
	t.Helper()
	for i, more := 0, true; more; i++ {
		at := i
		if simtest.Sampled() && s.sample != nil {
			if i == len(s.sample) {
				break
			}
			at = s.sample[i]
		}
		if at < first {
			continue
		}
		var calls atomic.Int64 // an operation may make several at one time
		var met atomic.Bool
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			s.prepare(r)
			r.sim.Settle()
			try(t, r, func(f func(winsim.Call)) {
				r.sim.OnCall(func(c winsim.Call) {
					if calls.Add(1)-1 == int64(at) {
						met.Store(true)
						f(c)
					}
					if c.Name == win.IoctlStorageQueryProperty.String() {
						r.identified.Store(true) // from the next call on: the answer is yet to come
					}
				})
			})
			synctest.Wait()
		})
		if more = int64(at) < calls.Load(); more != met.Load() || calls.Load() == 0 {
			t.Errorf("the operation makes %d calls to Windows; the mishap came: %v", calls.Load(), met.Load())
		}
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
	simtest.WantError(t, s.check(r), nil)
}

func TestErrorAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		rounds := len(simtest.Errors)
		if simtest.Sampled() {
			rounds = 1
		}
		for next := range rounds { // each call has one of the errors in each round
			atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
				errno := simtest.Errors[next%len(simtest.Errors)]
				next++
				before(func(c winsim.Call) { r.must(r.sim.Fail(winsim.Match{Call: c.Name, Count: 1}, errno)) })
				if err := s.run(t.Context(), r, r.process()); err == nil || s.refused {
					s.holds(t, r)
				}
				s.succeeds(t, r)
			})
		}
	})
}

// Its caller gives up, of which Windows isn't told.
func TestGivenUpAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			before(func(winsim.Call) { cancel() })
			err := s.run(ctx, r, r.process())
			if err == nil || s.refused {
				s.holds(t, r)
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("the error is %v", err)
			}
			synctest.Wait() // for what it may have begun
			s.succeeds(t, r)
		})
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
				if s.run(t.Context(), r, r.process()) == nil {
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

// Somebody else, in another process, does the same to the end between two calls, and
// writes a file: nothing of that is lost.
func TestSecondProcessAtEachCall(t *testing.T) {
	eachScenario(t, func(t *testing.T, s scenario) {
		atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
			var mu sync.Mutex // guards what follows
			written, ended := "", false
			before(func(winsim.Call) {
				r.sim.OnCall(nil)
				// What the first process has open may keep the second one from it.
				err := s.run(context.Background(), r, r.process())
				mu.Lock()
				defer mu.Unlock()
				if ended {
					return // the first process waits for other disks only for a moment, and has gone on
				}
				if s.again(err) == nil {
					written = r.use(s)
				} else if csiproxy.KindOf(err) != csiproxy.ErrUnavailable {
					t.Errorf("the second process: %v", err)
				}
			})
			first := s.run(t.Context(), r, r.process())
			mu.Lock()
			ended = true
			mu.Unlock()
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
	ctx, n := context.Background(), r.process()
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
