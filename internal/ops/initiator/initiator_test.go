// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/google/go-cmp/cmp"
)

const (
	name  = csiproxy.IQN("iqn.2001-04.com.example:storage")
	other = csiproxy.IQN("iqn.2001-04.com.example:other")

	login  = "LoginIScsiTargetW"
	logout = "LogoutIScsiTarget"
)

var (
	must    = simtest.Must
	want    = simtest.WantError
	counted = simtest.Counted
	portal  = csiproxy.ISCSIPortal{Address: "10.0.0.1"}
	noAuth  csiproxy.ISCSIAuthentication
)

// newNode returns a node on whose network there are targets with LUNs at the portal.
func newNode(t *testing.T, delays winsim.Delays, targets ...testTarget) (*winsim.System, *initiator.Initiator) {
	t.Helper()
	sys := simtest.Open(t, delays)
	for _, target := range targets {
		target.Portals = append(target.Portals, win.ISCSIPortal{Address: portal.Address, Port: 3260})
		must(t, sys.ISCSI().AddTarget(target.Target, target.LUNs...))
	}
	n, err := nodeops.New(sys, nodeops.Options{})
	must(t, err)
	return sys, n.ISCSI.(*initiator.Initiator)
}

// testTarget is a target with its LUNs.
type testTarget struct {
	iscsitarget.Target
	LUNs []winsim.DiskSpec
}

func target(iqn csiproxy.IQN, luns int) testTarget {
	spec := testTarget{Target: iscsitarget.Target{IQN: string(iqn)}}
	for lun := range luns {
		spec.LUNs = append(spec.LUNs, winsim.DiskSpec{SizeBytes: 1 << 30, Serial: fmt.Sprintf("%s-%d", iqn, lun)})
	}
	return spec
}

func discovered(t *testing.T, i *initiator.Initiator) {
	t.Helper()
	must(t, i.AddTargetPortal(t.Context(), portal))
}

// Longhorn adds its portal for each volume, and then looks for a target that is new there.
func TestAddingAKnownPortalFindsNewTargets(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	discovered(t, i)
	later := target(other, 1)
	later.Portals = []win.ISCSIPortal{{Address: portal.Address, Port: 3260}}
	must(t, sys.ISCSI().AddTarget(later.Target, later.LUNs...))
	discovered(t, i)
	found, err := sys.ISCSITargets(t.Context())
	if err != nil || !slices.Contains(found, string(other)) {
		t.Errorf("Windows knows the targets %q, %v", found, err)
	}
}

// As a driver does it, from a service that isn't running to a disk and back.
func TestConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, i := newNode(t, winsim.RealisticDelays(), target(name, 2), target(other, 1))
		ctx := t.Context()
		_, err := i.DiscoverTargetPortal(ctx, portal)
		want(t, err, csiproxy.ErrNotFound)
		must(t, i.AddTargetPortal(ctx, portal))
		must(t, i.AddTargetPortal(ctx, portal))
		found, err := i.DiscoverTargetPortal(ctx, csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260})
		must(t, err)
		simtest.Want(t, "found", found, []csiproxy.IQN{other, name})
		if disks, err := i.GetTargetDisks(ctx, portal, name); err != nil || len(disks) != 0 {
			t.Errorf("before the login: %v, %v", disks, err)
		}
		must(t, i.ConnectTarget(ctx, portal, name, noAuth))
		// The disks are there: nobody has to wait for them any more.
		begin := time.Now()
		numbers, err := i.GetTargetDisks(ctx, portal, csiproxy.IQN(strings.ToUpper(string(name))))
		must(t, err)
		if len(numbers) != 2 || numbers[0] >= numbers[1] || time.Since(begin) > 100*time.Millisecond {
			t.Errorf("after the login: disks %v after %v", numbers, time.Since(begin))
		}
		node, err := nodeops.New(sys, nodeops.Options{})
		must(t, err)
		for _, n := range numbers {
			if _, err := node.Disk.GetDiskStats(ctx, n); err != nil {
				t.Error(err)
			}
		}
		must(t, i.ConnectTarget(ctx, portal, csiproxy.IQN(strings.ToUpper(string(name))), noAuth))
		simtest.Want(t, "logins", sys.Calls()[login], 1)
		must(t, i.ConnectTarget(ctx, portal, other, noAuth))
		must(t, i.DisconnectTarget(ctx, portal, name))
		must(t, i.DisconnectTarget(ctx, portal, name))
		if disks, err := i.GetTargetDisks(ctx, portal, name); err != nil || len(disks) != 0 {
			t.Errorf("after the logout: %v, %v", disks, err)
		}
		if disks, err := i.GetTargetDisks(ctx, portal, other); err != nil || len(disks) != 1 {
			t.Errorf("the other target: %v, %v", disks, err)
		}
		must(t, i.RemoveTargetPortal(ctx, portal))
		want(t, i.RemoveTargetPortal(ctx, portal), csiproxy.ErrNotFound)
	})
}

func TestPortals(t *testing.T) {
	v6 := testTarget{Target: iscsitarget.Target{IQN: string(name),
		Portals: []win.ISCSIPortal{{Address: "2001:db8::1", Port: 860}, {Address: "storage.example.com", Port: 3260}}}}
	sys, _ := newNode(t, winsim.Delays{}, v6, target(other, 0))
	var logged strings.Builder
	i := initiator.New(sys, initiator.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	for _, at := range []struct {
		portal csiproxy.ISCSIPortal
		found  []csiproxy.IQN
	}{
		{portal, []csiproxy.IQN{other, name}},
		{csiproxy.ISCSIPortal{Address: "[2001:DB8:0::1]", Port: 860}, []csiproxy.IQN{name}},
		{csiproxy.ISCSIPortal{Address: "Storage.Example.com"}, []csiproxy.IQN{name}},
		{portal, []csiproxy.IQN{other, name}},
	} {
		must(t, i.AddTargetPortal(t.Context(), at.portal))
		found, err := i.DiscoverTargetPortal(t.Context(), at.portal)
		if diff := cmp.Diff(at.found, found); err != nil || diff != "" {
			t.Errorf("at %+v: %v (-want +got):\n%s", at.portal, err, diff)
		}
	}
	list, err := i.ListTargetPortals(t.Context())
	must(t, err)
	if diff := cmp.Diff([]csiproxy.ISCSIPortal{{Address: "10.0.0.1", Port: 3260}, {Address: "2001:db8::1", Port: 860},
		{Address: "Storage.Example.com", Port: 3260}}, list); diff != "" {
		t.Errorf("the portals (-want +got):\n%s", diff)
	}
	// Another port or address is another portal.
	for _, p := range []csiproxy.ISCSIPortal{{Address: "2001:db8::1"}, {Address: "10.0.0.10"}} {
		want(t, i.RemoveTargetPortal(t.Context(), p), csiproxy.ErrNotFound)
	}
	must(t, i.RemoveTargetPortal(t.Context(), csiproxy.ISCSIPortal{Address: "STORAGE.example.com"}))

	if text := logged.String(); strings.Contains(text, "level=WARN") {
		t.Errorf("while all is well, the log has %q", text)
	}
	must(t, sys.ISCSI().SetPortal(win.ISCSIPortal{Address: "10.0.0.1", Port: 3260}, false))
	must(t, i.AddTargetPortal(t.Context(), portal)) // it is known
	if text := logged.String(); !strings.Contains(text, "targets not discovered again") {
		t.Errorf("the log has %q", text)
	}
	_, err = i.DiscoverTargetPortal(t.Context(), portal)
	want(t, err, csiproxy.ErrUnavailable)
	want(t, i.AddTargetPortal(t.Context(), csiproxy.ISCSIPortal{Address: "10.0.0.9"}), csiproxy.ErrUnavailable)
	want(t, i.AddTargetPortal(t.Context(), csiproxy.ISCSIPortal{Address: "no.such.host"}), csiproxy.ErrUnavailable)
	if list, err := i.ListTargetPortals(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("the portals are %v, %v", list, err)
	}
}

// A target that Windows can't say anything of hides no other one.
func TestDiscoverBesideTargetThatFails(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1), target(other, 1))
	discovered(t, i)
	must(t, sys.Fail(winsim.Match{Call: win.CallISCSITargetInformation, Object: string(other)}, winerr.ErrorIODevice))
	found, err := i.DiscoverTargetPortal(t.Context(), portal)
	must(t, err)
	simtest.Want(t, "found", found, []csiproxy.IQN{name})
	ctx, cancel := context.WithCancel(t.Context())
	sys.OnCall(func(c winsim.Call) {
		if c.Name == win.CallISCSITargetInformation {
			cancel()
		}
	})
	_, err = i.DiscoverTargetPortal(ctx, portal)
	want(t, err, context.Canceled)
}

// A silent target hides no other one, and is waited for only briefly if it may be another driver's.
func TestDiscoverBesideSilentTarget(t *testing.T) {
	for _, c := range []struct {
		drivers []string
		takes   time.Duration // of the silent target
		took    time.Duration
		found   []csiproxy.IQN
	}{
		{nil, time.Hour, 5 * time.Second, []csiproxy.IQN{name}},
		{nil, time.Second, time.Second, []csiproxy.IQN{other, name}},
		{[]string{"red"}, time.Hour, 200 * time.Millisecond, []csiproxy.IQN{name}},
		{[]string{"red"}, 100 * time.Millisecond, 100 * time.Millisecond, []csiproxy.IQN{other, name}},
	} {
		synctest.Test(t, func(t *testing.T) {
			sys, _ := newNode(t, winsim.Delays{}, target(name, 1), target(other, 1))
			i := initiator.New(sys, initiator.Options{Targets: initiator.NewTargetLocks(c.drivers)})
			discovered(t, i)
			must(t, sys.DelayUncancellable(winsim.Match{Call: win.CallISCSITargetInformation, Object: string(other)}, c.takes))
			begun := time.Now()
			found, err := i.DiscoverTargetPortal(t.Context(), portal)
			must(t, err)
			simtest.Want(t, fmt.Sprint("found beside ", c), found, c.found)
			simtest.Want(t, fmt.Sprint("time beside ", c), time.Since(begun), c.took)
			time.Sleep(2 * time.Hour)
		})
	}
}

// A portal isn't unknown because Windows doesn't tell which ones there are.
func TestPortalsThatWindowsDoesNotTell(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	must(t, i.AddTargetPortal(t.Context(), portal))
	must(t, sys.Fail(winsim.Match{Call: win.CallISCSIPortals}, winerr.ErrorIODevice))
	calls := counted(sys, win.CallAddISCSIPortal)
	_, discoverErr := i.DiscoverTargetPortal(t.Context(), portal)
	for what, err := range map[string]error{
		"AddTargetPortal": i.AddTargetPortal(t.Context(), portal), "DiscoverTargetPortal": discoverErr,
		"RemoveTargetPortal": i.RemoveTargetPortal(t.Context(), portal),
	} {
		simtest.WantErrorOf(t, what, err, winerr.ErrorIODevice)
	}
	simtest.Want(t, "additions", calls()[0], 0)
}

func TestInvalidArguments(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	calls := sys.Calls()
	ctx := t.Context()
	bad := csiproxy.ISCSIPortal{Address: "a b"}
	chap := func(typ csiproxy.ISCSIAuthType, user, text string) csiproxy.ISCSIAuthentication {
		return csiproxy.ISCSIAuthentication{Type: typ, Username: user, Secret: csiproxy.NewSecret(text)}
	}
	_, discoverErr := i.DiscoverTargetPortal(ctx, bad)
	_, disksErr := i.GetTargetDisks(ctx, bad, name)
	_, disksErr2 := i.GetTargetDisks(ctx, portal, "bad")
	for what, err := range map[string]error{
		"AddTargetPortal": i.AddTargetPortal(ctx, bad), "DiscoverTargetPortal": discoverErr,
		"RemoveTargetPortal":    i.RemoveTargetPortal(ctx, bad),
		"ConnectTarget":         i.ConnectTarget(ctx, bad, name, noAuth),
		"ConnectTarget to":      i.ConnectTarget(ctx, portal, "bad", noAuth),
		"DisconnectTarget":      i.DisconnectTarget(ctx, bad, name),
		"DisconnectTarget from": i.DisconnectTarget(ctx, portal, ""),
		"GetTargetDisks":        disksErr, "GetTargetDisks of": disksErr2,
		"an empty user": i.ConnectTarget(ctx, portal, name, chap(csiproxy.ISCSIOneWayCHAP, "", "secretsecret")),
		"a long user": i.ConnectTarget(ctx, portal, name,
			chap(csiproxy.ISCSIOneWayCHAP, strings.Repeat("u", 257), "secretsecret")),
		"a null character":   i.ConnectTarget(ctx, portal, name, chap(csiproxy.ISCSIOneWayCHAP, "u\x00", "secretsecret")),
		"a short secret":     i.ConnectTarget(ctx, portal, name, chap(csiproxy.ISCSIOneWayCHAP, "u", "secretsecre")),
		"a long secret":      i.ConnectTarget(ctx, portal, name, chap(csiproxy.ISCSIMutualCHAP, "u", "secretsecretsecre")),
		"no secret":          i.ConnectTarget(ctx, portal, name, csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIMutualCHAP, Username: "u"}),
		"a type":             i.ConnectTarget(ctx, portal, name, chap(3, "u", "secretsecret")),
		"a negative type":    i.ConnectTarget(ctx, portal, name, chap(-1, "u", "secretsecret")),
		"a short mutual one": i.SetMutualCHAPSecret(ctx, csiproxy.NewSecret("secretsecre")),
		"a long mutual one":  i.SetMutualCHAPSecret(ctx, csiproxy.NewSecret("größegrößegröße")), // bytes count
		"no mutual one":      i.SetMutualCHAPSecret(ctx, csiproxy.Secret{}),
	} {
		simtest.WantErrorOf(t, what, err, csiproxy.ErrInvalidArgument)
		if strings.Contains(fmt.Sprint(err), "secretsecre") {
			t.Errorf("%s: the error shows the secret: %v", what, err)
		}
	}
	simtest.Want(t, "calls to Windows", sys.Calls(), calls)
}

func TestCHAP(t *testing.T) {
	secured := target(name, 1)
	secured.CHAPUser, secured.CHAPSecret, secured.MutualSecret = "user", csiproxy.NewSecret("secretsecret"),
		csiproxy.NewSecret("targetsecret")
	with := func(typ csiproxy.ISCSIAuthType, user, text string) csiproxy.ISCSIAuthentication {
		return csiproxy.ISCSIAuthentication{Type: typ, Username: user, Secret: csiproxy.NewSecret(text)}
	}
	for what, test := range map[string]struct {
		a      csiproxy.ISCSIAuthentication
		mutual string
		want   error
	}{
		"one way":                        {with(csiproxy.ISCSIOneWayCHAP, "user", "secretsecret"), "", nil},
		"mutual":                         {with(csiproxy.ISCSIMutualCHAP, "user", "secretsecret"), "targetsecret", nil},
		"none":                           {noAuth, "", csiproxy.ErrUnauthenticated},
		"another user":                   {with(csiproxy.ISCSIOneWayCHAP, "other", "secretsecret"), "", csiproxy.ErrUnauthenticated},
		"another secret":                 {with(csiproxy.ISCSIOneWayCHAP, "user", "secretsecre2"), "", csiproxy.ErrUnauthenticated},
		"mutual without one of the node": {with(csiproxy.ISCSIMutualCHAP, "user", "secretsecret"), "", csiproxy.ErrUnauthenticated},
		"mutual with another of the node": {with(csiproxy.ISCSIMutualCHAP, "user", "secretsecret"), "another one!",
			csiproxy.ErrUnauthenticated},
	} {
		t.Run(what, func(t *testing.T) {
			_, i := newNode(t, winsim.Delays{}, secured)
			discovered(t, i)
			if test.mutual != "" {
				must(t, i.SetMutualCHAPSecret(t.Context(), csiproxy.NewSecret(test.mutual)))
			}
			err := i.ConnectTarget(t.Context(), portal, name, test.a)
			want(t, err, test.want)
			if strings.Contains(fmt.Sprint(err), test.a.Secret.Reveal()) && test.a.Type != csiproxy.ISCSINoAuth {
				t.Errorf("the error shows the secret: %v", err)
			}
			disks, err := i.GetTargetDisks(t.Context(), portal, name)
			must(t, err)
			if (len(disks) == 1) != (test.want == nil) {
				t.Errorf("the disks are %v", disks)
			}
		})
	}
}

func TestConnectErrors(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	want(t, i.ConnectTarget(t.Context(), portal, name, noAuth), csiproxy.ErrNotFound) // not discovered
	discovered(t, i)
	want(t, i.ConnectTarget(t.Context(), portal, other, noAuth), csiproxy.ErrNotFound)
	must(t, sys.ISCSI().SetPortal(win.ISCSIPortal{Address: portal.Address, Port: 3260}, false))
	want(t, i.ConnectTarget(t.Context(), portal, name, noAuth), csiproxy.ErrUnavailable)
	must(t, i.DisconnectTarget(t.Context(), portal, other)) // nobody knows it: there is no session
	must(t, sys.ISCSI().SetPortal(win.ISCSIPortal{Address: portal.Address, Port: 3260}, true))
	for _, there := range []winerr.Errno{winerr.ISDSCTargetAlreadyLoggedIn, winerr.ISDSCSessionAlreadyExists} {
		must(t, sys.Fail(winsim.Match{Call: login, Count: 1}, there)) // somebody else is quicker
		simtest.WantErrorOf(t, fmt.Sprintf("%v", there), i.ConnectTarget(t.Context(), portal, name, noAuth), nil)
	}
}

// A target may have come to its portal after the portal was asked.
func TestConnectToNewTarget(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1))
	discovered(t, i)
	later := target(other, 1)
	later.Portals = []win.ISCSIPortal{{Address: portal.Address, Port: 3260}}
	must(t, sys.ISCSI().AddTarget(later.Target, later.LUNs...))
	must(t, i.ConnectTarget(t.Context(), portal, other, noAuth))
	if disks, err := i.GetTargetDisks(t.Context(), portal, other); err != nil || len(disks) != 1 {
		t.Errorf("the disks are %v, %v", disks, err)
	}
}

// Disks that come late are waited for, and looked for; a target may have none.
func TestLateDisks(t *testing.T) {
	for what, test := range map[string]struct {
		spec    testTarget
		arrival time.Duration
		disks   int
		most    time.Duration
	}{
		"they come by themselves": {target(name, 3), 5 * time.Second, 3, 6 * time.Second},
		"only after a rescan": {testTarget{iscsitarget.Target{IQN: string(name)},
			[]winsim.DiskSpec{{SizeBytes: 1 << 30, NeedsRescan: true}}}, 0, 1, 2 * time.Second},
		"there are none":  {target(name, 0), 0, 0, 4 * time.Second},
		"they don't come": {target(name, 1), time.Hour, 0, 16 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys, i := newNode(t, winsim.Delays{DiskArrival: test.arrival}, test.spec)
				discovered(t, i)
				for range 2 { // the second one finds a session
					begin := time.Now()
					if err := i.ConnectTarget(t.Context(), portal, name, noAuth); err != nil || time.Since(begin) > test.most {
						t.Errorf("connected after %v: %v", time.Since(begin), err)
					}
				}
				begin := time.Now()
				disks, err := i.GetTargetDisks(t.Context(), portal, name)
				if err != nil || len(disks) != test.disks || time.Since(begin) > test.most {
					t.Errorf("after %v: disks %v, %v", time.Since(begin), disks, err)
				}
				simtest.Want(t, "logins", sys.Calls()[login], 1)
			})
		})
	}
}

func TestDiskInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, i := newNode(t, winsim.Delays{}, target(name, 1))
		discovered(t, i)
		must(t, i.ConnectTarget(t.Context(), portal, name, noAuth))
		disks, err := i.GetTargetDisks(t.Context(), portal, name)
		must(t, err)
		open := func() win.Device {
			dev, err := sys.OpenDevice(t.Context(), fmt.Sprintf(`\\.\PhysicalDrive%d`, disks[0]), win.GenericRead)
			must(t, err)
			return dev
		}
		dev := open()
		err = i.DisconnectTarget(t.Context(), portal, name)
		want(t, err, csiproxy.ErrUnavailable)
		if number, _ := csiproxy.WindowsErrorOf(err); winerr.Errno(number) != winerr.ISDSCDeviceBusyOnSession {
			t.Errorf("the Windows error is %#x", number)
		}
		if left, err := i.GetTargetDisks(t.Context(), portal, name); err != nil || len(left) != 1 {
			t.Errorf("the disks are %v, %v", left, err)
		}
		time.AfterFunc(time.Second, func() { dev.Close() })
		must(t, i.DisconnectTarget(t.Context(), portal, name))
	})
}

// A login that is repeated when the node starts goes with the session, if it is
// through the portal; that of another target stays.
func TestPersistentLogin(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1), target(other, 1))
	discovered(t, i)
	for _, iqn := range []csiproxy.IQN{name, other} {
		must(t, i.ConnectTarget(t.Context(), portal, iqn, noAuth))
		must(t, sys.ISCSI().SetPersistentLogin(
			win.ISCSILogin{Target: string(iqn), Portal: win.ISCSIPortal{Address: portal.Address, Port: 3260}}))
	}
	persistent := func() (targets []string) {
		logins, err := sys.ISCSIPersistentLogins(t.Context())
		must(t, err)
		for _, l := range logins {
			targets = append(targets, l.Target)
		}
		return targets
	}
	want(t, i.DisconnectTarget(t.Context(), csiproxy.ISCSIPortal{Address: "10.0.0.2"}, name), csiproxy.ErrFailedPrecondition)
	simtest.Want(t, "persistent logins", len(persistent()), 2)
	must(t, i.DisconnectTarget(t.Context(), portal, name))
	if got := persistent(); len(got) != 1 || got[0] != string(other) {
		t.Errorf("the persistent logins are %q", got)
	}
	must(t, i.DisconnectTarget(t.Context(), csiproxy.ISCSIPortal{Address: "10.0.0.2"}, name)) // there is no session any more
	if got := persistent(); len(got) != 1 || got[0] != string(other) {
		t.Errorf("the persistent logins are %q", got)
	}
}

// Others change what the initiator knows at the same time.
func TestChangedBySomebodyElse(t *testing.T) {
	sys, i := newNode(t, winsim.Delays{}, target(name, 1), target(other, 1))
	must(t, sys.StartService(t.Context(), "MSiSCSI"))
	must(t, sys.Fail(winsim.Match{Call: "AddIScsiSendTargetPortalW", Count: 1}, winerr.ISDSCTargetPortalAlreadyExists))
	must(t, i.AddTargetPortal(t.Context(), portal)) // somebody else adds it
	discovered(t, i)
	must(t, sys.Fail(winsim.Match{Call: "GetIScsiTargetInformationW", Object: string(other)}, winerr.ISDSCTargetNotFound))
	found, err := i.DiscoverTargetPortal(t.Context(), portal) // one of the targets goes
	if diff := cmp.Diff([]csiproxy.IQN{name}, found); err != nil || diff != "" {
		t.Errorf("found: %v (-want +got):\n%s", err, diff)
	}
	must(t, i.ConnectTarget(t.Context(), portal, name, noAuth))
	sessions, err := sys.ISCSISessions(t.Context())
	must(t, err)
	ended := false
	sys.OnCall(func(c winsim.Call) {
		if c.Name == logout && !ended {
			ended = true // before the call, which comes by here too
			must(t, sys.LogoutISCSITarget(t.Context(), sessions[0].ID))
		}
	})
	if err := i.DisconnectTarget(t.Context(), portal, name); err != nil || !ended {
		t.Errorf("a session that ends by itself: %v", err)
	}

	sys.OnCall(nil)
	must(t, i.ConnectTarget(t.Context(), portal, name, noAuth))
	sessions, err = sys.ISCSISessions(t.Context())
	must(t, err)
	ended = false
	sys.OnCall(func(c winsim.Call) {
		if c.Name == "GetDevicesForIScsiSessionW" && !ended {
			ended = true
			must(t, sys.LogoutISCSITarget(t.Context(), sessions[0].ID))
		}
	})
	if disks, err := i.GetTargetDisks(t.Context(), portal, name); err != nil || len(disks) != 0 || !ended {
		t.Errorf("of a session that ends meanwhile: %v, %v", disks, err)
	}

	sys.OnCall(nil)
	must(t, sys.ISCSI().SetPersistentLogin(
		win.ISCSILogin{Target: string(name), Portal: win.ISCSIPortal{Address: portal.Address, Port: 3260}}))
	ended = false
	sys.OnCall(func(c winsim.Call) {
		if c.Name == "RemoveIScsiPersistentTargetW" && !ended {
			ended = true
			logins, err := sys.ISCSIPersistentLogins(t.Context())
			must(t, err)
			must(t, sys.RemoveISCSIPersistentLogin(t.Context(), logins[0]))
		}
	})
	if err := i.DisconnectTarget(t.Context(), portal, name); err != nil || !ended {
		t.Errorf("a persistent login that somebody else removes: %v", err)
	}
}

// multipath is a node with two sessions to one target, through which it has the same
// disks and a tape.
type multipath struct{ *winsim.System }

func (multipath) ISCSISessions(context.Context) ([]win.ISCSISession, error) {
	return []win.ISCSISession{
		{ID: win.ISCSISessionID{AdapterUnique: 1}, Target: string(name)},
		{ID: win.ISCSISessionID{AdapterUnique: 2}, Target: string(name)},
		{ID: win.ISCSISessionID{AdapterUnique: 3}, Target: string(other)},
	}, nil
}

func (multipath) ISCSISessionDevices(_ context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	const tape = 0x1F
	device := func(typ, number uint32) win.ISCSIDevice {
		return win.ISCSIDevice{Device: win.DeviceNumber{DeviceType: typ, DeviceNumber: csiproxy.DiskNumber(number)}}
	}
	if id.AdapterUnique == 3 {
		return []win.ISCSIDevice{device(win.FileDeviceDisk, 4)}, nil
	}
	return []win.ISCSIDevice{device(win.FileDeviceDisk, 9), device(tape, 0), device(tape, win.NoNumber),
		device(win.FileDeviceDisk, 3)}, nil
}

func TestDisksOfSeveralSessions(t *testing.T) {
	sys, _ := newNode(t, winsim.Delays{})
	i := initiator.New(multipath{sys}, initiator.Options{})
	disks, err := i.GetTargetDisks(t.Context(), portal, name)
	if diff := cmp.Diff([]csiproxy.DiskNumber{3, 9}, disks); err != nil || diff != "" {
		t.Errorf("the disks: %v (-want +got):\n%s", err, diff)
	}
}

// ofOwners is a node with sessions with one target, through portals of several owners. It notes which of them end.
type ofOwners struct {
	*winsim.System
	portals [][]string // of each session
	ended   []uint64
}

func (n *ofOwners) ISCSISessions(context.Context) (all []win.ISCSISession, _ error) {
	for i, addresses := range n.portals {
		s := win.ISCSISession{ID: win.ISCSISessionID{AdapterUnique: uint64(i)}, Target: string(name)}
		for _, address := range addresses {
			s.Portals = append(s.Portals, win.ISCSIPortal{Address: address, Port: 3260})
		}
		if !slices.Contains(n.ended, uint64(i)) {
			all = append(all, s)
		}
	}
	return all, nil
}

func (n *ofOwners) LogoutISCSITarget(_ context.Context, id win.ISCSISessionID) error {
	n.ended = append(n.ended, id.AdapterUnique)
	return nil
}

func (n *ofOwners) LoginISCSITarget(context.Context, win.ISCSILogin) (id win.ISCSISessionID, _ error) {
	return id, winerr.ISDSCTargetAlreadyLoggedIn
}

func (n *ofOwners) ISCSISessionDevices(context.Context, win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	return []win.ISCSIDevice{{Device: win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: 3}}}, nil
}

// The node's calls at a portal are about sessions of the portal's owner. Those without a connection may be another owner's, and don't end.
func TestSessionsOfOwners(t *testing.T) {
	const nobodys, reds, host = "10.0.0.3", "10.0.0.1", "storage.example.com"
	for _, test := range []struct {
		name                  string
		portals               [][]string
		at                    string
		connects, disconnects error
		ended                 string // by DisconnectTarget, and by LogOut
	}{
		{"its own", [][]string{{nobodys}}, nobodys, nil, nil, "[0]"},
		{"another owner's", [][]string{{reds}}, nobodys, csiproxy.ErrUnavailable, nil, "[]"},
		{"of two owners", [][]string{{nobodys, reds}}, nobodys, csiproxy.ErrUnavailable, nil, "[]"},
		{"beside another owner's", [][]string{{reds}, {nobodys}}, nobodys, nil, nil, "[1]"},
		{"a driver's", [][]string{{reds}, {nobodys}}, reds, nil, nil, "[0 1]"},
		{"at a host", [][]string{{reds}}, host, nil, nil, "[0]"},
		{"without a connection", [][]string{{nobodys}, nil}, nobodys, nil, csiproxy.ErrUnavailable, "[0]"},
		{"without a connection, at a host", [][]string{{nobodys}, nil}, host, nil, nil, "[0 1]"},
	} {
		for _, ends := range []string{"DisconnectTarget", "LogOut"} {
			sys, _ := newNode(t, winsim.Delays{})
			n := &ofOwners{System: sys, portals: test.portals}
			i := initiator.New(n, initiator.Options{Targets: initiator.NewTargetLocks([]string{"red", "blue"}),
				OwnerOf: func(p win.ISCSIPortal) (string, bool) {
					owner, isKnown := map[string]string{nobodys: "", reds: "red"}[p.Address]
					return owner, isKnown
				}})
			luns, err := i.LUNs(t.Context())
			must(t, err)
			last := append(test.portals[len(test.portals)-1], "")[0]
			simtest.Want(t, test.name+": the portal of the disk", luns[3].Portal.Address, last)
			at := csiproxy.ISCSIPortal{Address: test.at}
			simtest.WantErrorOf(t, test.name+": Connect", i.Connect(t.Context(), at, name, csiproxy.ISCSILogin{}), test.connects)
			if ends == "LogOut" {
				_, err = i.LogOut(t.Context(), at, name)
			} else {
				err = i.DisconnectTarget(t.Context(), at, name)
			}
			simtest.WantErrorOf(t, test.name+": "+ends, err, test.disconnects)
			simtest.Want(t, test.name+": the sessions that "+ends+" ends", fmt.Sprint(n.ended), test.ended)
		}
	}
}

// Calls for the same portal at the same time share a run, which keeps the answers of all targets.
func TestDiscoveriesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, i := newNode(t, winsim.Delays{Calls: map[string]time.Duration{win.CallRefreshISCSIPortal: time.Second}}, target(name, 1))
		must(t, i.AddTargetPortal(t.Context(), portal))
		calls := counted(sys, win.CallRefreshISCSIPortal)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				found, err := i.DiscoverTargetPortal(t.Context(), portal)
				if err != nil || !slices.Equal(found, []csiproxy.IQN{name}) {
					t.Errorf("found are %v, %v", found, err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		simtest.Want(t, "runs", calls()[0], 2) // all calls but the first one share the second run
	})
}
