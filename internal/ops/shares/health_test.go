// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// What Windows says about a directory on a share may come from the names and links that
// pods have put there. It never costs anybody the mapping.
func TestDirectoryNeverCostsTheMapping(t *testing.T) {
	for number, kind := range map[winerr.Errno]error{
		2: nil, 3: nil, // it may be made later
		5:  csiproxy.ErrPermissionDenied,
		32: csiproxy.ErrUnavailable, 123: csiproxy.ErrUnavailable, 267: csiproxy.ErrFailedPrecondition,
		303:  csiproxy.ErrUnavailable,
		1117: csiproxy.ErrUnavailable, 1463: csiproxy.ErrUnavailable, 1920: csiproxy.ErrUnavailable,
		1921:                   csiproxy.ErrUnavailable,
		4392:                   csiproxy.ErrUnavailable,
		winerr.ErrorBadNetName: csiproxy.ErrUnavailable,
		// These would, of the root of the share.
		winerr.ErrorLogonFailure: csiproxy.ErrUnauthenticated, winerr.ErrorNoSuchLogonSession: csiproxy.ErrUnavailable,
	} {
		t.Run(fmt.Sprint(uint32(number)), func(t *testing.T) {
			sys, _ := newNode(t)
			must(t, newMappings(t, sys, shares.Options{}).NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
			must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\server\data\sub`}, number))
			calls := counted(sys, create, remove)
			err := newMappings(t, sys, shares.Options{}).NewSMBGlobalMapping(t.Context(), `\\server\data\sub`, "", bob)
			want(t, err, kind)
			if got, _ := csiproxy.WindowsErrorOf(err); kind != nil && winerr.Errno(got) != number {
				t.Errorf("the error %v has the number %d", err, got)
			}
			simtest.Want(t, "calls to create and remove", calls(), []int{0, 0})
		})
	}
}

// A user may be let in to a directory of a share whose root is closed to him.
func TestRootIsClosed(t *testing.T) {
	sys, m := newMapped(t)
	must(t, sys.MkdirAll(`\\server\data\sub`))
	calls := 0
	sys.OnCall(func(c winsim.Call) {
		if c.Name == probe && c.Object == `\\server\data` {
			calls++
			must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\server\data`, Count: 1}, winerr.ErrorAccessDenied))
		}
	})
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data\sub`, "", alice))
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data\missing`, "", alice), csiproxy.ErrPermissionDenied)
	simtest.Want(t, "looks at the root", calls, 2)
}

// A share whose root denies access is an error from the first call on, and each call has the same one. It says that a
// session keeps the user's groups.
func TestDeniedRootIsDeniedEachTime(t *testing.T) {
	for _, remote := range []string{`\\server\data`, `\\server\data\sub`} {
		for _, staging := range []bool{false, true} {
			sys, m := newNode(t)
			must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\server\data`}, winerr.ErrorAccessDenied))
			var first string
			for range 3 {
				w, err := m.Parse(remote, stage, alice)
				must(t, err)
				w.Staging = staging
				err = m.Map(t.Context(), w)
				want(t, err, csiproxy.ErrPermissionDenied, "given the rights only lately")
				if first == "" {
					first = err.Error()
				}
				simtest.Want(t, "the error", err.Error(), first)
			}
		}
	}
}

// That a directory can be used says nothing of a root that is denied as such, or is broken.
func TestRootIsAskedItself(t *testing.T) {
	sys, m := newMapped(t)
	must(t, sys.MkdirAll(`\\server\data\sub`))
	must(t, sys.Fail(winsim.Match{Call: probe, Count: 1}, winerr.ErrorAccessDenied))
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice), csiproxy.ErrPermissionDenied)
	must(t, sys.Fail(winsim.Match{Call: probe, Count: 2}, winerr.ErrorNoSuchLogonSession)) // it is looked at twice
	calls := counted(sys, create)
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data\sub`, "", alice))
	simtest.Want(t, "creations", calls()[0], 1)
}

// A mapping of before, which has no connection and gets none, is made again. One that has lost it
// only now isn't yet, and neither is one of this process.
func TestDisconnectedMappingOfBefore(t *testing.T) {
	for name, known := range map[string]bool{"an earlier process's": false, "this process's": true} {
		t.Run(name, func(t *testing.T) {
			sys, m := newMapped(t)
			if !known {
				m = newMappings(t, sys, shares.Options{})
			}
			must(t, sys.SMB().SetState("server", smbserver.State{NoEncryption: true})) // so that access is denied
			calls := counted(sys, remove)
			want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice), csiproxy.ErrPermissionDenied)
			if n := calls()[0]; n != 0 {
				t.Fatal("the mapping was removed, though it had a connection")
			}
			sys.OnCall(func(c winsim.Call) {
				if c.Name == remove {
					must(t, sys.SMB().SetState("server", smbserver.State{}))
				}
			})
			err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice)
			if known {
				want(t, err, csiproxy.ErrPermissionDenied)
			} else {
				must(t, err)
			}
			simtest.Want(t, "mapped", mapped(t, sys), `\\server\data`)
		})
	}
}

// While one mapping of a server works, or may work again, Windows takes no other
// credentials. Then those that are refused aren't removed either: nothing would come of it.
func TestConflictRemovesNothingInVain(t *testing.T) {
	for name, number := range map[string]winerr.Errno{"works": 0, "is away": winerr.ErrorBadNetPath,
		"is locked out": winerr.ErrorAccountLockedOut} {
		t.Run(name, func(t *testing.T) {
			sys, _ := newNode(t)
			for _, share := range []string{"a", "z"} {
				must(t, sys.SMB().AddShare(smbserver.Share{Server: "server", Name: share}))
			}
			m := newMappings(t, sys, shares.Options{})
			for _, share := range []string{`\\server\a`, `\\server\data`, `\\server\z`} {
				must(t, m.NewSMBGlobalMapping(t.Context(), share, "", alice))
			}
			for _, share := range []string{`\\server\a`, `\\server\z`} {
				must(t, sys.Fail(winsim.Match{Call: probe, Object: share, Fires: winsim.MayFire}, winerr.ErrorLogonFailure))
			}
			if number != 0 {
				must(t, sys.Fail(winsim.Match{Call: probe, Object: `\\server\data`}, number))
			}
			calls := counted(sys, remove)
			want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", bob), csiproxy.ErrFailedPrecondition)
			simtest.Want(t, "removed mappings", calls()[0], 0)
		})
	}
}

// Callers for one share at one time make it once, and make it again once, and it is
// logged once.
func TestMadeOnce(t *testing.T) {
	for name, broken := range map[string]bool{"missing": false, "broken": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys, _ := newNode(t)
				var log bytes.Buffer
				m := newMappings(t, sys, shares.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				c := alice
				if broken {
					must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
					c.Password = csiproxy.NewSecret("changed")
					must(t, sys.SMB().SetUser("server", c.Username, c.Password))
				}
				fires := map[string]winsim.Fires{remove: map[bool]winsim.Fires{false: winsim.MustNotFire}[broken]}
				for _, call := range []string{probe, create, remove, list} {
					must(t, sys.Delay(winsim.Match{Call: call, Fires: fires[call]}, time.Millisecond))
				}
				calls := counted(sys, create, remove)
				var callers sync.WaitGroup
				for range 16 {
					callers.Go(func() {
						simtest.WantError(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", c), nil)
					})
				}
				callers.Wait()
				removed := 0
				if broken {
					removed = 1
				}
				simtest.Want(t, "calls to create and remove", calls(), []int{1, removed})
				if n := strings.Count(log.String(), "broken mapping again"); n != removed {
					t.Errorf("it was logged %d times:\n%s", n, log.String())
				}
			})
		})
	}
}

// Who waits for a server's lock learns who holds it, whose server doesn't answer.
func TestWhoWaitsBehindASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, _ := newNode(t)
		m := newBounded(t, sys)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
		must(t, sys.Fail(winsim.Match{Call: probe, Count: 1}, winerr.ErrorNoSuchLogonSession))
		must(t, sys.DelayUncancellable(winsim.Match{Call: probe, Skip: 1}, time.Minute)) // the look under the lock
		ended := make(chan error)
		go func() { ended <- m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", bob) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := m.NewSMBGlobalMapping(ctx, `\\server\logs`, "", bob)
		want(t, err, context.DeadlineExceeded, "is held by another call since 2000-")
		<-ended
	})
}
