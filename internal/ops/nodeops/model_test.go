// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Several drivers stage, publish, grow, unpublish and unstage volumes, while calls to
// Windows fail and hang, the daemon is killed, the node loses its power, and disks change
// their numbers. Each step succeeds in the end when it is repeated, as kubelet does. No
// file is lost, none is seen on another volume, no volume is formatted twice, and in the
// end no mount point, link or handle is left.
//
// TestSoakModel is the long form.
func TestModel(t *testing.T) { testModel(t, func(*model) {}) }

// models is how many models a test runs, each with its number as the seed.
const models = 4

// testModel runs some models, which change has changed, and checks that each kind of mishap has met
// steps. The bounds are well below what four runs have.
func testModel(t *testing.T, change func(m *model)) {
	met := make(map[string]int)
	for seed := range uint64(models) {
		runModel(t, seed, func(m *model) {
			m.met = met
			change(m)
		})
	}
	for mishap, least := range map[string]int{"error": 80, "hang": 4, errKilled.Error(): 80, errPowerLoss.Error(): 40} {
		if met[mishap] < least {
			t.Errorf("%d tries of steps have met %q, fewer than %d", met[mishap], mishap, least)
		}
	}
}

// TestSoakModel goes on with random seeds for as long as SOAK says. SOAK_SEED repeats one.
func TestSoakModel(t *testing.T) {
	soak(t, func(t *testing.T, seed uint64) { runModel(t, seed, func(*model) {}) })
}

// soak runs a test with random seeds for as long as SOAK says, or first with SOAK_SEED.
func soak(t *testing.T, test func(t *testing.T, seed uint64)) {
	duration, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Skip("long: SOAK says for how long, as in test/resilience --soak 2m")
	}
	seed := rand.Uint64()
	if given, err := strconv.ParseUint(os.Getenv("SOAK_SEED"), 10, 64); err == nil {
		seed = given
	}
	for until := time.Now().Add(duration); time.Now().Before(until) && !t.Failed(); seed++ {
		test(t, seed)
	}
}

// runModel runs the model with a seed, which names the test, after change has changed it.
func runModel(t *testing.T, seed uint64, change func(m *model)) {
	t.Run(fmt.Sprint("SOAK_SEED=", seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, seed)
			change(m)
			m.run()
		})
	})
}

// model is a node, those who use it, and what they may expect.
type model struct {
	t   *testing.T
	sim *winsim.System

	// power has a token for each of those who work on the node. A power loss takes them
	// all: nobody makes a call while the node is without power. It is no mutex, since time
	// in a bubble of synctest stands still while somebody waits for one.
	power chan struct{}

	mu      sync.Mutex // guards what is below
	random  *rand.Rand
	process *nodeops.Node
	ctx     context.Context // ends with the process
	kill    context.CancelCauseFunc
	formats map[string]int // by volume
	unlucky int            // steps that have failed often: nothing goes wrong until they succeed
	met     map[string]int // tries of steps that a mishap has met, by its kind

	// What a toy makes wrongly.
	try   func(ctx context.Context, do func() error) error // makes one try of a step
	flush func(path string) error
}

// Why the process ends.
var errKilled, errPowerLoss = errors.New("killed"), errors.New("power loss")

// users are those who may work on the node at one time.
const users = 8

// pv is a volume as its driver and the cloud know it.
type pv struct {
	name    string // also the disk's serial number
	size    int64
	written string // what the pod wrote and flushed last
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, sim: simtest.Open(t, winsim.Delays{VolumeArrival: 20 * time.Millisecond, DiskArrival: 30 * time.Millisecond}),
		power: make(chan struct{}, users), random: rand.New(rand.NewPCG(seed, 0)), formats: make(map[string]int),
		met: make(map[string]int), try: func(_ context.Context, do func() error) error { return do() },
	}
	m.flush = m.sim.FlushFile
	simtest.Must(t, m.sim.MkdirAll(simtest.Kubelet+`\pods`))
	m.restart()
	return m
}

// restart ends the daemon's process, if there is one, and starts another one. Windows
// ends a process only when the calls of its threads have ended.
func (m *model) restart() {
	if m.process != nil {
		m.kill(errKilled)
		for m.busy() {
			time.Sleep(10 * time.Millisecond)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := nodeops.New(m.sim, nodeops.Options{})
	if err != nil {
		m.t.Error(err)
		return
	}
	m.process = n
	m.ctx, m.kill = context.WithCancelCause(context.Background())
}

// busy reports whether the process has calls to Windows under way.
func (m *model) busy() bool { return m.process.Load().Running > 0 }

func (m *model) losePower() {
	m.kill(errPowerLoss)
	for range users {
		m.power <- struct{}{}
	}
	defer func() {
		for range users {
			<-m.power
		}
	}()
	simtest.WantError(m.t, m.sim.PowerLoss(), nil)
	m.sim.Settle()
	m.restart()
}

func (m *model) intn(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

func (m *model) run() {
	var drivers sync.WaitGroup
	for d := range 3 {
		drivers.Go(func() {
			for i := range 3 {
				m.life(&pv{name: fmt.Sprintf("vol-%d-%d", d, i), size: 1 << 30})
			}
		})
	}
	ended := make(chan struct{})
	var mishaps sync.WaitGroup
	mishaps.Go(func() { m.mishaps(ended) })
	drivers.Wait()
	close(ended)
	mishaps.Wait()
	m.kill(errKilled)
	time.Sleep(time.Hour) // what still goes on, ends
	synctest.Wait()

	for _, mount := range m.sim.MountPoints() {
		if strings.Contains(strings.ToLower(mount.Path), "kubelet") {
			m.t.Errorf("a mount point is left: %+v", mount)
		}
	}
	if entries, err := m.sim.ReadDir(simtest.Kubelet + `\pods`); err != nil || len(entries) > 0 {
		m.t.Errorf("links are left: %v, %v", entries, err)
	}
	for name, n := range m.formats {
		if n > 1 {
			m.t.Errorf("volume %s was formatted %d times", name, n)
		}
	}
}

// mishaps has something go wrong every now and then.
func (m *model) mishaps(ended chan struct{}) {
	errnos := []winerr.Errno{winerr.ErrorIODevice, winerr.ErrorSharingViolation, winerr.ErrorAccessDenied, winerr.ErrorNotReady,
		winerr.ErrorDeviceNotConnected}
	for {
		select {
		case <-ended:
			m.sim.ResetRules()
			return
		case <-time.After(time.Duration(1+m.intn(200)) * time.Millisecond):
		}
		if m.isUnlucky() {
			m.sim.ResetRules()
			continue
		}
		calls := slices.Sorted(maps.Keys(m.sim.Calls())) // those that drivers make
		call := winsim.Match{Call: calls[m.intn(len(calls))], Count: 1 + m.intn(3), Fires: winsim.MayFire}
		switch what := m.intn(60); {
		case what < 1:
			m.losePower()
		case what < 3:
			m.restart()
		case what < 21:
			simtest.WantError(m.t, m.sim.DelayUncancellable(call, time.Duration(1+m.intn(20))*time.Second), nil)
		default:
			simtest.WantError(m.t, m.sim.Fail(call, errnos[m.intn(len(errnos))]), nil)
		}
	}
}

// step repeats what a driver does until it succeeds, as kubelet does.
func (m *model) step(v *pv, name string, f func(ctx context.Context, n *nodeops.Node) error) {
	const tries, unlucky = 100, 20
	var err error
	for i := 0; i < tries; {
		m.mu.Lock()
		n, process := m.process, m.ctx
		m.mu.Unlock()
		if process.Err() == nil { // else the next one isn't there yet
			if i++; i == unlucky {
				m.addUnlucky(1)
				defer m.addUnlucky(-1)
			}
			ctx, cancel := context.WithTimeout(process, 2*time.Minute)
			m.power <- struct{}{}
			begin := time.Now()
			err = m.try(ctx, func() error { return f(ctx, n) })
			<-m.power
			cancel()
			m.note(mishap(process, begin, err))
			if err == nil {
				return
			}
		}
		time.Sleep(time.Duration(100+m.intn(900)) * time.Millisecond)
	}
	m.t.Errorf("%s of %s fails for good: %v", name, v.name, err)
}

// mishap names what has gone wrong in a try of a step of a process, "" for nothing.
func mishap(process context.Context, begin time.Time, err error) string {
	switch {
	case process.Err() != nil:
		return context.Cause(process).Error()
	case time.Since(begin) > hung, err != nil && strings.Contains(err.Error(), "has not answered"):
		return "hang"
	case err != nil:
		return "error"
	}
	return ""
}

// hung is how long a try of a step takes at most if no call hangs.
const hung = time.Second

func (m *model) note(mishap string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.met[mishap]++
}

func (m *model) addUnlucky(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlucky += n
}

func (m *model) isUnlucky() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unlucky > 0
}
