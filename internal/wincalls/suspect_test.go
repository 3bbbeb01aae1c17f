// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// network is Windows with SMB servers that answer after a time of their own.
type network struct {
	win.System

	mu      sync.Mutex
	answers func(path string) (time.Duration, error)
	now     map[string]int // calls under way, by call
}

func (n *network) call(ctx context.Context, name, path string) error {
	n.mu.Lock()
	delay, err := n.answers(path)
	n.now[name]++
	n.mu.Unlock()
	time.Sleep(delay) // also if ctx ends
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now[name]--
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (n *network) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return 0, n.call(ctx, "probe", path)
}

func (n *network) CreateSMBGlobalMapping(ctx context.Context, path string, _ win.SMBMappingOptions) error {
	return n.call(ctx, "create", path)
}

func (n *network) set(answers func(path string) (time.Duration, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers = answers
}

func (n *network) running(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now[name]
}

func onNetwork(t *testing.T, answers func(path string) (time.Duration, error), f func(t *testing.T, n *network, sys *System)) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answers: answers, now: make(map[string]int)}
		f(t, n, New(n, Options{}))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
	})
}

// suspects reports whether an SMB server is suspect.
func suspects(sys *System, server string) bool {
	sys.gate.mu.Lock()
	defer sys.gate.mu.Unlock()
	s := sys.gate.objects[key{pool: servers, name: server}]
	return s != nil && time.Now().Before(s.suspect)
}

func isDead(path string) bool { return strings.HasPrefix(path, `\\dead`) }

// A server that takes seconds to say that it can't be reached is suspect, also if a call
// of that name may take so long; an answer in time ends that, another refusal doesn't.
func TestSlowRefusalMakesSuspect(t *testing.T) {
	for number, suspect := range map[win.Errno]bool{
		win.ErrorBadNetPath: true, win.ErrorNetNameDeleted: true, win.ErrorSemTimeout: true, win.ErrorNetworkUnreachable: true,
		win.ErrorLogonFailure: false, win.ErrorBadNetName: false,
	} {
		t.Run(number.Error(), func(t *testing.T) {
			onNetwork(t, func(string) (time.Duration, error) { return 9 * time.Second, number }, func(t *testing.T, n *network, sys *System) {
				is := func() bool { return suspects(sys, "server") }
				sys.CreateSMBGlobalMapping(t.Context(), `\\server\share`, win.SMBMappingOptions{})
				if is() != suspect {
					t.Errorf("after the error it is suspect: %v", is())
				}
				n.set(func(string) (time.Duration, error) { return 0, win.ErrorBadNetPath })
				sys.FileAttributes(t.Context(), `\\server\share`)
				if is() != suspect {
					t.Errorf("after a quick refusal it is suspect: %v", is())
				}
				n.set(func(string) (time.Duration, error) { return 0, win.ErrorFileNotFound })
				sys.FileAttributes(t.Context(), `\\server\share`)
				if is() {
					t.Error("it answers, and is suspect")
				}
			})
		})
	}
}

// A call that its caller has given up, after a time in which the server could have
// answered, isn't an answer.
func TestGivenUpMakesSuspect(t *testing.T) {
	onNetwork(t, func(string) (time.Duration, error) { return 9 * time.Second, nil }, func(t *testing.T, n *network, sys *System) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := sys.CreateSMBGlobalMapping(ctx, `\\server\share`, win.SMBMappingOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if !suspects(sys, "server") {
			t.Error("it isn't suspect")
		}
	})
}

// Servers of which creations of mappings fail slowly have a small part of the pool from
// then on, and live ones don't wait for them.
func TestDeadServersHaveASmallPart(t *testing.T) {
	answers := func(path string) (time.Duration, error) {
		if isDead(path) {
			return 9 * time.Second, win.ErrorBadNetPath
		}
		return 0, nil
	}
	onNetwork(t, answers, func(t *testing.T, n *network, sys *System) {
		create := func() {
			for i := range 150 {
				go sys.CreateSMBGlobalMapping(t.Context(), fmt.Sprintf(`\\dead%d\share`, i), win.SMBMappingOptions{})
			}
			synctest.Wait()
		}
		create()
		time.Sleep(time.Minute)
		synctest.Wait()
		create()
		if n := n.running("create"); n != maxSuspect {
			t.Errorf("%d calls to dead servers are under way, want %d", n, maxSuspect)
		}
		begin := time.Now()
		if err := sys.CreateSMBGlobalMapping(t.Context(), `\\alive\share`, win.SMBMappingOptions{}); err != nil || time.Since(begin) != 0 {
			t.Errorf("a live server, after %v: %v", time.Since(begin), err)
		}
	})
}

// However many calls dead servers have under way, of which none counts any more, they
// leave some threads to others.
func TestDeadServersLeaveThreads(t *testing.T) {
	answers := func(path string) (time.Duration, error) {
		if isDead(path) {
			return 5 * time.Minute, win.ErrorBadNetPath
		}
		return 0, nil
	}
	onNetwork(t, answers, func(t *testing.T, n *network, sys *System) {
		for round := range 5 {
			for server := range 64 {
				for path := range maxOfObject {
					go sys.FileAttributes(t.Context(), fmt.Sprintf(`\\dead%d\share%d`, server, path))
					if round == 0 {
						synctest.Wait() // one server after the other
					}
				}
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			begin := time.Now()
			for range 4 {
				if _, err := sys.FileAttributes(t.Context(), `\\alive\share`); err != nil || time.Since(begin) != 0 {
					t.Fatalf("in round %d, with %d calls under way, after %v: %v", round, n.running("probe"), time.Since(begin), err)
				}
			}
		}
		if running, limit := n.running("probe"), maxOverdue*poolSizes[servers]; running >= limit {
			t.Errorf("%d calls are under way, want fewer than %d", running, limit)
		}
		_, err := sys.FileAttributes(t.Context(), `\\dead1\share`)
		if !errors.Is(err, csiproxy.ErrUnavailable) {
			t.Errorf("a dead server: %v", err)
		}
	})
}
