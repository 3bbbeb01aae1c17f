// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsitarget

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const iqn = "iqn.2026-01.com.example:vol1"

var (
	portal1 = win.ISCSIPortal{Address: "10.61.169.28", Port: 3260}
	portal2 = win.ISCSIPortal{Address: "fd00::28", Port: 3261}

	chapSecret   = csiproxy.NewSecret("target secret")
	mutualSecret = csiproxy.NewSecret("mutual secret")
)

// disks are LUNs of which nothing is asked here: the node's tests have real ones.
type disks struct{}

func (disks) Attach(string)                    {}
func (disks) Detach(string)                    {}
func (disks) Dismount(string) error            { return nil }
func (disks) Devices(string) []win.ISCSIDevice { return nil }

// newTarget puts a target on the network, at both portals if nothing else is said.
func newTarget(t *testing.T, n *Network, target Target) {
	t.Helper()
	if target.IQN == "" {
		target.IQN = iqn
	}
	if target.Portals == nil {
		target.Portals = []win.ISCSIPortal{portal1, portal2}
	}
	must(t, n.Add(target))
}

// Short names for what tests of calls share.
var (
	must    = seamtest.Must
	wantErr = seamtest.WantErrno
)

func TestDiscovery(t *testing.T) {
	n := New(disks{})
	newTarget(t, n, Target{})
	newTarget(t, n, Target{IQN: "iqn.2026-01.com.example:vol2",
		Portals: []win.ISCSIPortal{{Address: "FD00:0:0::28", Port: 3261}}})
	must(t, n.SetPortal(win.ISCSIPortal{Address: "empty.example.com"}, true))
	wantTargets := func(want ...string) {
		t.Helper()
		if got := n.KnownTargets(); !cmp.Equal(got, want) {
			t.Errorf("targets %q, want %q", got, want)
		}
	}
	wantTargets()
	wantErr(t, "refresh an unknown portal", n.RefreshSendTargetPortal(portal1), winerr.ISDSCPortalNotFound)
	wantErr(t, "remove an unknown portal", n.RemoveSendTargetPortal(portal1), winerr.ISDSCPortalNotFound)
	for _, unreachable := range []struct {
		portal win.ISCSIPortal
		want   winerr.Errno
	}{
		{win.ISCSIPortal{Address: "10.61.169.29", Port: 3260}, winerr.ISDSCConnectionFailed},
		{win.ISCSIPortal{Address: "10.61.169.28", Port: 3261}, winerr.ISDSCConnectionFailed},
		{win.ISCSIPortal{Address: "EMPTY.example.com", Port: 1}, winerr.ISDSCConnectionFailed},
		{win.ISCSIPortal{Address: "other.example.com", Port: 3260}, winerr.ISDSCDNSNameUnresolved},
	} {
		wantErr(t, fmt.Sprint("add ", unreachable.portal), n.AddSendTargetPortal(unreachable.portal), unreachable.want)
	}
	must(t, n.AddSendTargetPortal(win.ISCSIPortal{Address: "EMPTY.example.com", Port: 3260}))
	wantTargets()
	must(t, n.AddSendTargetPortal(portal1))
	must(t, n.AddSendTargetPortal(portal1)) // again
	wantTargets(iqn)
	must(t, n.AddSendTargetPortal(portal2))
	wantTargets(iqn, "iqn.2026-01.com.example:vol2")

	mechanisms, err := n.DiscoveryMechanisms(strings.ToUpper(iqn))
	must(t, err)
	want := []string{
		`SendTargets:*10.61.169.28 0003260 Root\ISCSIPRT\0000_0`,
		`SendTargets:*fd00::28 0003261 Root\ISCSIPRT\0000_0`,
	}
	if diff := cmp.Diff(want, mechanisms); diff != "" {
		t.Errorf("mechanisms (-want +got):\n%s", diff)
	}
	_, err = n.DiscoveryMechanisms("iqn.unknown")
	wantErr(t, "mechanisms of an unknown target", err, winerr.ISDSCTargetNotFound)

	// A portal that is away keeps what it has told; one that is back tells anew.
	must(t, n.SetPortal(portal2, false))
	wantErr(t, "refresh", n.RefreshSendTargetPortal(portal2), winerr.ISDSCConnectionFailed)
	must(t, n.Remove("iqn.2026-01.com.example:vol2"))
	wantTargets(iqn, "iqn.2026-01.com.example:vol2")
	must(t, n.SetPortal(portal2, true))
	must(t, n.RefreshSendTargetPortal(portal2))
	wantTargets(iqn)

	must(t, n.RemoveSendTargetPortal(portal1))
	wantTargets(iqn)
	must(t, n.RemoveSendTargetPortal(portal2))
	wantTargets()
	if portals := n.SendTargetPortals(); len(portals) != 1 {
		t.Errorf("portals %v", portals)
	}
}

// What the tests of the operations don't tell apart.
func TestCHAPErrors(t *testing.T) {
	n := New(disks{})
	newTarget(t, n, Target{CHAPUser: "user", CHAPSecret: chapSecret, MutualSecret: mutualSecret})
	newTarget(t, n, Target{IQN: "iqn.open"})
	must(t, n.AddSendTargetPortal(portal1))
	short, long := csiproxy.NewSecret("short"), csiproxy.NewSecret("longer than sixteen")
	for what, test := range map[string]struct {
		target string
		auth   win.ISCSIAuthType
		secret csiproxy.Secret
		want   winerr.Errno
	}{
		"short secret":          {iqn, win.ISCSICHAP, short, winerr.ISDSCShortCHAPSecret},
		"no secret":             {iqn, win.ISCSICHAP, csiproxy.Secret{}, winerr.ISDSCShortCHAPSecret},
		"long secret":           {iqn, win.ISCSICHAP, long, winerr.ISDSCInvalidCHAPSecret},
		"mutual without secret": {iqn, win.ISCSIMutualCHAP, chapSecret, winerr.ISDSCAuthInfoUnavailable},
		"CHAP of none":          {"iqn.open", win.ISCSICHAP, chapSecret, winerr.ISDSCAuthenticationFailed},
	} {
		_, err := n.Login(win.ISCSILogin{Target: test.target, Portal: portal1, AuthType: test.auth, Username: "user",
			Secret: test.secret})
		wantErr(t, what, err, test.want)
	}
	wantErr(t, "set a short secret", n.SetInitiatorCHAPSecret(short), winerr.ISDSCShortCHAPSecret)
	wantErr(t, "set a long secret", n.SetInitiatorCHAPSecret(long), winerr.ISDSCInvalidCHAPSecret)
}

func TestLoginErrors(t *testing.T) {
	n := New(disks{})
	newTarget(t, n, Target{Portals: []win.ISCSIPortal{portal1}})
	newTarget(t, n, Target{IQN: "iqn.other", Portals: []win.ISCSIPortal{portal2}})
	login := func(what string, p win.ISCSIPortal, want winerr.Errno) {
		t.Helper()
		_, err := n.Login(win.ISCSILogin{Target: iqn, Portal: p})
		wantErr(t, what, err, want)
	}
	login("before discovery", portal1, winerr.ISDSCTargetNotFound)
	must(t, n.AddSendTargetPortal(portal1))
	login("at a portal of others", portal2, winerr.ISDSCNotFound)
	must(t, n.SetPortal(portal1, false))
	login("at a portal that is away", portal1, winerr.ISDSCConnectionFailed)
	must(t, n.SetPortal(portal1, true))
	login("at last", portal1, 0)
	login("again", portal1, winerr.ISDSCTargetAlreadyLoggedIn)
	must(t, n.Remove(iqn))
	login("after removal", portal1, winerr.ISDSCNotFound)

	wantErr(t, "log out of nothing", n.Logout(win.ISCSISessionID{AdapterUnique: 1}), winerr.ISDSCInvalidSessionID)
	_, err := n.SessionDevices(win.ISCSISessionID{AdapterUnique: 1})
	wantErr(t, "devices of nothing", err, winerr.ISDSCInvalidSessionID)
}

// TestState: a network that is restored from the state file goes on as before, also
// with the secrets, of which only hashes are kept.
func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	n := New(disks{})
	f, _, err := statefile.Open(path)
	must(t, err)
	newTarget(t, n, Target{CHAPUser: "user", CHAPSecret: chapSecret, MutualSecret: mutualSecret})
	must(t, n.AddSendTargetPortal(portal1))
	must(t, n.SetInitiatorCHAPSecret(mutualSecret))
	login := win.ISCSILogin{Target: iqn, Portal: portal1, AuthType: win.ISCSIMutualCHAP, Username: "user",
		Secret: chapSecret}
	must(t, n.SetPersistentLogin(login))
	n.Save(f)
	must(t, f.Commit())
	n.Save(f)
	if f.Pending() != 0 {
		t.Error("what hasn't changed is saved again")
	}
	must(t, f.Close())

	again := New(disks{})
	f, _, err = statefile.Open(path, again)
	must(t, err)
	must(t, f.Close())
	if diff := cmp.Diff(n.state, again.state); diff != "" {
		t.Errorf("state (-before +after):\n%s", diff)
	}
	again.Restart()
	if targets := again.KnownTargets(); len(targets) != 0 {
		t.Errorf("after a restart it knows %q", targets)
	}
	again.Start()
	if sessions := again.Sessions(); len(sessions) != 1 {
		t.Errorf("after the start of the service it has the sessions %v", sessions)
	}
}
