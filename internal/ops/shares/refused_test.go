// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Pods with a wrong secret don't have the account locked: the node tries it once in a while.
// The right one isn't held up.
func TestWrongPasswordIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, m := newNode(t)
		wrong := csiproxy.SMBCredentials{Username: alice.Username, Password: csiproxy.NewSecret("wrong")}
		calls := counted(sys, create)
		for range 10 {
			for _, remote := range []string{`\\server\data`, `\\server\logs`} {
				err := m.NewSMBGlobalMapping(t.Context(), remote, "", wrong)
				want(t, err, csiproxy.ErrUnauthenticated)
				if number, _ := csiproxy.WindowsErrorOf(err); winerr.Errno(number) != winerr.ErrorLogonFailure {
					t.Errorf("the error %v has the number %d", err, number)
				}
			}
			time.Sleep(time.Second)
		}
		simtest.Want(t, "log-ons in 10 seconds", calls()[0], 1)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
	})
}

// A mapping whose password was changed at the server: pods that look at it don't have the
// account locked either.
func TestProbesOfARefusedMappingAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, m := newMapped(t)
		must(t, sys.SMB().SetUser("server", alice.Username, csiproxy.NewSecret("changed")))
		calls := counted(sys, probe, create)
		for range 10 {
			want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice), csiproxy.ErrUnauthenticated)
			time.Sleep(time.Second)
		}
		if n := calls(); n[0] != 1 || n[1] != 0 {
			t.Errorf("there were %d probes and %d log-ons in 10 seconds", n[0], n[1])
		}
		must(t, sys.SMB().SetUser("server", alice.Username, alice.Password))
		time.Sleep(5 * time.Second)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
	})
}
