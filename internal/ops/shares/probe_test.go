// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// network answers after a time, also to those who have given up by then, as Windows does.
type network struct {
	shares.System // no other call is made

	mu    sync.Mutex
	calls map[string]int
	most  int // calls at one time
	now   int
	delay time.Duration
	err   error
}

func (n *network) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	n.mu.Lock()
	n.calls[path]++
	n.now++
	n.most = max(n.most, n.now)
	delay, err := n.delay, n.err
	n.mu.Unlock()
	time.Sleep(delay)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now--
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return win.AttributeDirectory, err
}

// SMBGlobalMappings answers with as many mappings as there were such calls.
func (n *network) SMBGlobalMappings(context.Context) ([]win.SMBMapping, error) {
	n.mu.Lock()
	n.calls[""]++
	list := make([]win.SMBMapping, n.calls[""])
	delay := n.delay
	n.mu.Unlock()
	time.Sleep(delay)
	return list, nil
}

// made returns how often something was asked for.
func (n *network) made(what string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[what]
}

func (n *network) set(delay time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay, n.err = delay, err
}

func path(t *testing.T, s string) win.UNCPath {
	t.Helper()
	p, err := win.ParseUNC(s)
	simtest.Must(t, err)
	return p
}

func bubble(t *testing.T, f func(t *testing.T, n *network, m *shares.Mappings)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{calls: map[string]int{}, delay: 8 * time.Second, err: winerr.ErrorBadNetPath}
		f(t, n, newMappings(t, n, shares.Options{}))
		time.Sleep(time.Hour)
	})
}

func TestProbeIsShared(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, m *shares.Mappings) {
		var callers sync.WaitGroup
		for _, s := range []string{`\\server\share`, `\\SERVER\Share\`, `//server/share`, `\\server\share`} {
			callers.Go(func() {
				simtest.WantErrorOf(t, s, m.Probe(t.Context(), path(t, s)), winerr.ErrorBadNetPath)
			})
			synctest.Wait() // so that it is the first that makes a call, and the second that makes another
			time.Sleep(time.Second)
		}
		callers.Wait()
		if n.calls[`\\server\share`]+n.calls[`\\server\Share`] != 2 || n.most != 1 {
			t.Errorf("the calls were %v, %d at one time", n.calls, n.most)
		}
		// A probe that has ended isn't an answer for those who ask later.
		n.set(0, nil)
		simtest.WantError(t, m.Probe(t.Context(), path(t, `\\server\share`)), nil)
	})
}

func TestProbeEndsWithItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, m *shares.Mappings) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		err := m.Probe(ctx, path(t, `\\server\share`))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		// Who comes then waits for the call that is still under way.
		if err := m.Probe(t.Context(), path(t, `\\server\share`)); !errors.Is(err, winerr.ErrorBadNetPath) || time.Since(begin) != 16*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		simtest.Want(t, "calls at one time", n.most, 1)
	})
}

func TestProbeWithoutDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, m *shares.Mappings) {
		n.set(24*time.Hour, nil)
		begin := time.Now()
		for range 3 { // the first waits for a while, and the others not at all
			err := m.Probe(t.Context(), path(t, `\\server\share`))
			if !errors.Is(err, csiproxy.ErrUnavailable) || time.Since(begin) != 10*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		simtest.Want(t, "calls", n.made(`\\server\share`), 1)
		time.Sleep(24 * time.Hour)
	})
}

// Whoever has changed something sees that, though others ask meanwhile.
func TestProbeAfterAChange(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, m *shares.Mappings) {
		n.set(8*time.Second, winerr.ErrorLogonFailure)
		go m.Probe(t.Context(), path(t, `\\server\share\sub`))
		synctest.Wait()
		n.set(0, nil)
		simtest.WantError(t, m.Probe(t.Context(), path(t, `\\SERVER\share\sub`)), nil)
	})
}

// Callers share the answer of WMI, but not one from before a change. If WMI doesn't
// answer, callers aren't kept for long, and those who come then not at all.
func TestList(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, m *shares.Mappings) {
		n.set(time.Second, nil)
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				if list, err := m.List(t.Context()); err != nil || len(list) > 2 {
					t.Errorf("%d mappings, %v", len(list), err)
				}
			})
		}
		synctest.Wait()
		if list, err := m.List(t.Context()); err != nil || len(list) != 2 {
			t.Errorf("after a change: %d mappings, %v", len(list), err)
		}
		callers.Wait()

		n.set(time.Minute, nil)
		begin := time.Now()
		for range 100 {
			if _, err := m.List(t.Context()); !errors.Is(err, csiproxy.ErrUnavailable) ||
				time.Since(begin) != 10*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		simtest.Want(t, "questions to WMI", n.made(""), 3)
	})
}

type panicking struct{ shares.System }

func (panicking) FileAttributes(context.Context, string) (win.FileAttributes, error) { panic("a bug") }

func TestProbePassesPanicsOn(t *testing.T) {
	m := newMappings(t, panicking{}, shares.Options{})
	for range 10 { // none keeps a slot
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was lost")
				}
			}()
			m.Probe(t.Context(), path(t, `\\server\share`))
		}()
	}
}
