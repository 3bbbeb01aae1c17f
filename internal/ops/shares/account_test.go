// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
)

// Without a user name, a share is mapped with the node's own account, if the server is in its domain.
func TestNodeAccount(t *testing.T) {
	node := csiproxy.SMBCredentials{}
	sys, m := newNode(t)
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, node), csiproxy.ErrUnauthenticated, "must be in the server's domain")
	simtest.Want(t, "mapped", mapped(t, sys), "")
	must(t, sys.SMB().SetState("server", smbserver.State{KnowsNode: true}))
	m = newMappings(t, sys, shares.Options{}) // the log-on isn't held back
	for _, local := range []string{stage, stage + "2"} {
		w, err := m.Parse(`\\server\data`, local, node)
		must(t, err)
		w.Staging = true
		must(t, m.Map(t.Context(), w))
		must(t, sys.WriteFile(local+`\file`, nil))
		m = newMappings(t, sys, shares.Options{}) // which knows the user only from the connection
	}
	w, err := m.Parse(`\\server\data`, stage+"3", alice)
	must(t, err)
	w.Staging = true
	want(t, m.Map(t.Context(), w), csiproxy.ErrFailedPrecondition, "mapped for another user")
}

// The node's own account is forbidden by an option, and for shares that let it in as an administrator.
func TestNodeAccountIsRefused(t *testing.T) {
	node := csiproxy.SMBCredentials{}
	for remote, refuse := range map[string]bool{`\\server\data`: true, `\\localhost\C$\sub`: false, `\\server\ADMIN$`: false} {
		sys, _ := newNode(t)
		must(t, sys.SMB().AddShare(smbserver.Share{Server: "localhost", Name: "C$"}))
		calls := counted(sys, create, probe)
		m := newMappings(t, sys, shares.Options{RefuseNodeAccount: refuse})
		want(t, m.NewSMBGlobalMapping(t.Context(), remote, stage, node), csiproxy.ErrPermissionDenied)
		simtest.Want(t, "calls to "+remote, calls(), []int{0, 0})
		if refuse {
			must(t, m.NewSMBGlobalMapping(t.Context(), remote, stage, alice))
		}
	}
}
