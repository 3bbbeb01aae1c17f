// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Somebody else makes and removes mappings at the same time.
func TestMadeBySomebodyElse(t *testing.T) {
	sys, m := newNode(t)
	o := win.SMBMappingOptions{Username: alice.Username, Password: alice.Password, RequirePrivacy: true}
	made := false
	sys.OnCall(func(c winsim.Call) {
		if c.Name == create && !made {
			made = true // before the call, which comes by here too
			must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\server\data`, o))
		}
	})
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", bob))
	simtest.Want(t, "mapped", mapped(t, sys), `\\server\data`)

	sys.OnCall(nil)
	must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
	must(t, sys.Fail(winsim.Match{Call: create}, winerr.ErrorAlreadyAssigned))
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", bob), csiproxy.ErrUnavailable)
}

// Somebody else makes a mapping that Windows then refuses: the caller learns why.
func TestBrokenMappingMadeBySomebodyElse(t *testing.T) {
	sys, m := newNode(t)
	creations := 0
	sys.OnCall(func(c winsim.Call) {
		if c.Name != create {
			return
		}
		if creations++; creations == 1 { // before the call; the creation below comes by here too
			must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\server\data`, win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}))
			must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\server\data`}, winerr.ErrorBadNetPath))
		}
	})
	err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", bob)
	want(t, err, csiproxy.ErrUnavailable)
	if !errors.Is(err, winerr.ErrorBadNetPath) || creations != 2 {
		t.Errorf("after %d creations, the error is %v", creations, err)
	}
}

func TestRemovedBySomebodyElse(t *testing.T) {
	sys, m := newMapped(t)
	must(t, sys.SMB().SetUser("server", alice.Username, bob.Password))
	removed := false
	sys.OnCall(func(c winsim.Call) {
		if c.Name == remove && !removed {
			removed = true // before the call, which comes by here too
			must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
		}
	})
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", csiproxy.SMBCredentials{Username: alice.Username, Password: bob.Password}))
	if got := mapped(t, sys); got != `\\server\data` || !removed {
		t.Errorf("mapped is %q", got)
	}
}

// Somebody else removes the mapping with its last link, before the new link is made.
func TestRemovedBeforeItIsReached(t *testing.T) {
	sys, m := newNode(t)
	removed := false
	sys.OnCall(func(c winsim.Call) {
		if c.Name == probe && !removed {
			removed = true // before the call, which comes by here too
			must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
		}
	})
	w, err := m.Parse(`\\server\data`, stage, alice)
	must(t, err)
	w.Staging = true
	must(t, m.Map(t.Context(), w))
	if got := mapped(t, sys); got != `\\server\data` || !removed {
		t.Errorf("mapped is %q", got)
	}
}

// Who has made or removed a mapping doesn't get an answer to others that Windows began before
// that.
func TestLooksBeginAnewAfterAChange(t *testing.T) {
	for name, test := range map[string]struct {
		call   string
		change func(ctx context.Context, m *shares.Mappings) error
		want   string
	}{
		"made": {create, func(ctx context.Context, m *shares.Mappings) error {
			return m.NewSMBGlobalMapping(ctx, `\\server\logs`, "", alice)
		}, `\\server\data \\server\logs`},
		"removed": {remove, func(ctx context.Context, m *shares.Mappings) error {
			return m.RemoveSMBGlobalMapping(ctx, `\\server\data`)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys, m := newMapped(t)
				must(t, sys.Delay(winsim.Match{Call: test.call}, 2*time.Second))
				changed := make(chan error, 1)
				go func() { changed <- test.change(t.Context(), m) }()
				synctest.Wait() // it is in the call
				must(t, sys.Delay(winsim.Match{Call: list, Count: 1}, 8*time.Second))
				must(t, sys.Fail(winsim.Match{Call: list, Count: 1}, winerr.ErrorIODevice))
				before := make(chan error, 1)
				go func() {
					_, err := m.Mapped(t.Context())
					before <- err
				}()
				synctest.Wait()
				must(t, <-changed)
				got, err := m.Mapped(t.Context())
				must(t, err)
				simtest.Want(t, "mapped after the change", names(got), test.want)
				simtest.WantErrorOf(t, "who looked before the change got", <-before, winerr.ErrorIODevice)
			})
		})
	}
}

// Somebody else maps a share again that this process has unmapped: then it doesn't know with
// which credentials.
func TestMappedAgainBySomebodyElse(t *testing.T) {
	for name, unmap := range map[string]func(sys *winsim.System, m *shares.Mappings) error{
		"unmapped by this process": func(_ *winsim.System, m *shares.Mappings) error {
			return m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`)
		},
		"unmapped by both": func(sys *winsim.System, m *shares.Mappings) error {
			must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
			want(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`), csiproxy.ErrNotFound)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys, m := newMapped(t)
			must(t, unmap(sys, m))
			must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\server\data`, win.SMBMappingOptions{Username: bob.Username, Password: bob.Password}))
			w, err := m.Parse(`\\server\data`, stage, alice)
			must(t, err)
			w.Staging = true
			want(t, m.Map(t.Context(), w), csiproxy.ErrFailedPrecondition)
		})
	}
}

// Before a staged path becomes a link, another call maps the share with other credentials.
func TestMappedWithOtherCredentialsMeanwhile(t *testing.T) {
	sys, m := newNode(t)
	made := false
	sys.OnCall(func(c winsim.Call) {
		made = made || c.Name == create
		if made && c.Name == probe {
			sys.OnCall(nil)
			must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data\sub`, stage+"2", bob))
		}
	})
	w, err := m.Parse(`\\server\data`, stage, alice)
	must(t, err)
	w.Staging = true
	want(t, m.Map(t.Context(), w), csiproxy.ErrFailedPrecondition)
	if err := sys.WriteFile(stage+`\file`, nil); err == nil {
		t.Error("the path leads to the share")
	}
}

// A mapping that was to go with the last link stays if somebody asks for the share before it goes.
func TestAskedForBeforeItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, m := newNode(t)
		for _, local := range []string{stage, stage + "2"} {
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, local, alice))
		}
		must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`)) // it stays for the links
		for _, local := range []string{stage, stage + "2"} {
			must(t, sys.Remove(local))
		}
		must(t, sys.Delay(winsim.Match{Call: list}, 2*time.Second))
		asked := make(chan error, 1)
		go func() { asked <- m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice) }()
		time.Sleep(3 * time.Second) // it has the share locked, and looks whether that is mapped
		remote, err := win.ParseUNC(`\\server\data`)
		must(t, err)
		m.RemoveMappingAfterLastLink(t.Context(), remote)
		must(t, <-asked)
		simtest.Want(t, "mapped", mapped(t, sys), `\\server\data`)
	})
}

// A record seems stale, and another process makes the mapping before it is dropped: it stays.
func TestRecordOfAMappingThatComes(t *testing.T) {
	sys, _ := newNode(t)
	stageIt := func() {
		m := newMappings(t, sys, shares.Options{})
		w, err := m.Parse(`\\server\data`, stage, alice)
		must(t, err)
		w.Staging = true
		must(t, m.Map(t.Context(), w))
	}
	stageIt()
	must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
	m := newMappings(t, sys, shares.Options{})
	listed := false
	sys.OnCall(func(c winsim.Call) {
		if listed {
			sys.OnCall(nil)
			stageIt()
		}
		listed = c.Name == list
	})
	_, err := m.Mapped(t.Context())
	must(t, err)
	remote, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	if unused, err := m.IsUnused(t.Context(), remote); !unused || err != nil {
		t.Errorf("it isn't known any more that the mapping is ours: %v", err)
	}
}

// A call that fails without having made a mapping has nothing to undo, and waits for nobody.
func TestFailedCallTakesNoRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, _ := newNode(t)
		paths, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubelet})
		must(t, err)
		finder := usage.NewFinder(usage.NewSharedFinder(sys, paths, nil, slog.New(slog.DiscardHandler)))
		locker := usage.NewLocker(sys, paths, finder, usage.LockOptions{})
		m := newMappings(t, sys, shares.Options{Locks: locker})
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		remote, err := win.ParseUNC(`\\server\data`)
		must(t, err)
		held, err := locker.LockServer(t.Context(), remote)
		must(t, err)
		defer held.Release()
		must(t, sys.Fail(winsim.Match{Call: probe}, winerr.ErrorAccountLockedOut))
		begun := time.Now()
		if err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice); err == nil {
			t.Error("a mapping that can't be used is no error")
		}
		simtest.Want(t, "the time that it has waited", time.Since(begun), 0)
	})
}

// The mapping of an earlier process counts as used while not all links are known: it isn't made
// again with the caller's credentials, and serves a caller with the same user.
func TestMappingOfAnEarlierProcessWithUnknownLinks(t *testing.T) {
	sys, _ := newNode(t)
	stageIt := func(local string) error {
		m := newMappings(t, sys, shares.Options{})
		w, err := m.Parse(`\\server\data`, local, alice)
		must(t, err)
		w.Staging = true
		return m.Map(t.Context(), w)
	}
	must(t, stageIt(stage))
	must(t, sys.Remove(stage))
	const hidden = kubelet + `\hidden`
	must(t, sys.MkdirAll(hidden))
	must(t, sys.Fail(winsim.Match{Call: "NtCreateFile", Object: hidden}, winerr.ErrorAccessDenied))
	changes := counted(sys, remove, create)
	must(t, stageIt(stage+"2"))
	simtest.Want(t, "calls to create and remove", changes(), []int{0, 0})
}

// A mapping stays while not all links are known, though a driver asks for its removal, and removes
// the last link that is known.
func TestUnmapWithUnknownLinks(t *testing.T) {
	for _, linked := range []bool{false, true} {
		sys, m := newNode(t)
		data, err := win.ParseUNC(`\\server\data`)
		must(t, err)
		must(t, m.NewSMBGlobalMapping(t.Context(), data.String(), stage, alice))
		if !linked {
			must(t, sys.Remove(stage))
		}
		const hidden = kubelet + `\hidden`
		must(t, sys.MkdirAll(hidden))
		must(t, sys.Fail(winsim.Match{Call: "NtCreateFile", Object: hidden}, winerr.ErrorAccessDenied))
		must(t, m.RemoveSMBGlobalMapping(t.Context(), data.String()))
		if linked {
			must(t, sys.Remove(stage))
		}
		m.RemoveMappingAfterLastLink(t.Context(), data)
		simtest.Want(t, fmt.Sprintf("mapped, linked %t", linked), mapped(t, sys), data.String())
		sys.ResetRules()
		must(t, m.RemoveSMBGlobalMapping(t.Context(), data.String()))
		simtest.Want(t, fmt.Sprintf("mapped once all are known, linked %t", linked), mapped(t, sys), "")
	}
}

// connected is a node that lists other connections than it has, or gives an error.
type connected struct {
	*winsim.System
	to  []win.SMBConnection
	err error
}

func (c connected) SMBConnections(context.Context) ([]win.SMBConnection, error) { return c.to, c.err }

// The opens of all connections to a share count. Without a connection, the user of a mapping isn't known,
// so it may be the caller. If Windows doesn't list connections, the mapping is neither removed nor used
// for a staging.
func TestConnectionsOfAMapping(t *testing.T) {
	sys, _ := newNode(t)
	data, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	must(t, newMappings(t, sys, shares.Options{}).NewSMBGlobalMapping(t.Context(), data.String(), stage, alice))
	one := win.SMBConnection{Server: "server", Share: "data", Credential: alice.Username}
	used := one
	used.Opens = 1
	for _, refused := range []error{nil, winerr.ErrorNoSystemResources} {
		m := newMappings(t, connected{sys, []win.SMBConnection{used, one}, refused}, shares.Options{})
		if unused, err := m.IsUnused(t.Context(), data); unused || !errors.Is(err, refused) {
			t.Errorf("unused %t, %v, want %v", unused, err, refused)
		}
		r, err := m.LockForRemoval(t.Context(), data)
		must(t, err)
		removed, err := m.RemoveUnused(t.Context(), r, shares.ShareLinks{})
		r.Release()
		if removed || !errors.Is(err, refused) {
			t.Errorf("removed %t, %v, want %v", removed, err, refused)
		}
	}
	stageIt := func(refused error) error {
		m := newMappings(t, connected{sys, nil, refused}, shares.Options{}) // of another process
		w, err := m.Parse(data.String(), stage+"2", alice)
		must(t, err)
		w.Staging = true
		return m.Map(t.Context(), w)
	}
	want(t, stageIt(winerr.ErrorNoSystemResources), csiproxy.ErrUnavailable)
	must(t, stageIt(nil))
}

// Many pods start at once.
func TestConcurrently(t *testing.T) {
	sys, m := newNode(t)
	calls := counted(sys, remove)
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			remote := []string{`\\server\data`, `//SERVER/logs/`}[i%2]
			simtest.WantError(t, m.NewSMBGlobalMapping(t.Context(), remote, stage+[]string{"0", "1"}[i%2], alice), nil)
		})
	}
	callers.Wait()
	simtest.Want(t, "mapped", mapped(t, sys), `\\server\data \\server\logs`)
	simtest.Want(t, "removals", calls(), []int{0})
}
