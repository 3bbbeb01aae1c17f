// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsidsc

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Codes that operations don't tell apart.
const (
	shortCHAPSecret  winerr.Errno = 0xAFFF0048 // ISDSC_SHORT_CHAP_SECRET
	invalidSessionID winerr.Errno = 0xEFFF001C // ISDSC_INVALID_SESSION_ID
)

var (
	portal = win.ISCSIPortal{Address: "192.0.2.1", Port: 3260}
	other  = win.ISCSIPortal{Address: "fd00::2", Port: 860}
)

const iqn = "iqn.2026-01.example:one"

func TestPortals(t *testing.T) {
	sys, d := load(t)
	ctx := t.Context()
	d.addTarget(target{name: iqn, portal: portal})
	d.addTarget(target{name: "iqn.2026-01.example:two", portal: other})

	if got, err := sys.ISCSISendTargetPortals(ctx); err != nil || len(got) != 0 {
		t.Errorf("before any portal: %v, %v", got, err)
	}
	d.want("AddISCSISendTargetPortal", sys.AddISCSISendTargetPortal(ctx, portal), nil)
	d.want("again", sys.AddISCSISendTargetPortal(ctx, portal), winerr.ISDSCTargetPortalAlreadyExists)
	d.want("of another", sys.AddISCSISendTargetPortal(ctx, other), nil)
	d.want("of one that isn't there", sys.AddISCSISendTargetPortal(ctx, win.ISCSIPortal{Address: "192.0.2.9", Port: 1}),
		winerr.ISDSCConnectionFailed)
	d.want("RefreshISCSISendTargetPortal", sys.RefreshISCSISendTargetPortal(ctx, portal), nil)
	got, err := sys.ISCSISendTargetPortals(ctx)
	if diff := cmp.Diff([]win.ISCSIPortal{portal, other}, got); err != nil || diff != "" {
		t.Errorf("ISCSISendTargetPortals: %v (-want +got)\n%s", err, diff)
	}
	d.want("RemoveISCSISendTargetPortal", sys.RemoveISCSISendTargetPortal(ctx, portal), nil)
	d.want("again", sys.RemoveISCSISendTargetPortal(ctx, portal), winerr.ISDSCPortalNotFound)
	d.want("refresh of the removed", sys.RefreshISCSISendTargetPortal(ctx, portal), winerr.ISDSCPortalNotFound)
	d.wantRecord(
		"add portal 192.0.2.1 3260",
		"add portal 192.0.2.1 3260",
		"add portal fd00::2 860",
		"add portal 192.0.2.9 1",
		"refresh portal 192.0.2.1 3260",
		"remove portal 192.0.2.1 3260",
		"remove portal 192.0.2.1 3260",
		"refresh portal 192.0.2.1 3260",
	)
}

func TestTargets(t *testing.T) {
	sys, d := load(t)
	ctx := t.Context()
	d.addTarget(target{name: iqn, portal: portal})
	d.addTarget(target{name: "iqn.2026-01.example:hidden", portal: other})
	if got, err := sys.ISCSITargets(ctx); err != nil || len(got) != 0 {
		t.Errorf("before any discovery: %v, %v", got, err)
	}
	_, err := sys.ISCSIDiscoveryMechanisms(ctx, iqn)
	d.want("ISCSIDiscoveryMechanisms before any discovery", err, winerr.ISDSCTargetNotFound)
	d.discover(sys, portal)
	got, err := sys.ISCSITargets(ctx)
	if diff := cmp.Diff([]string{iqn}, got); err != nil || diff != "" {
		t.Errorf("ISCSITargets: %v (-want +got)\n%s", err, diff)
	}
	got, err = sys.ISCSIDiscoveryMechanisms(ctx, iqn)
	if diff := cmp.Diff([]string{`SendTargets:*192.0.2.1 0003260 Root\ISCSIPRT\0000_0`}, got); err != nil || diff != "" {
		t.Errorf("ISCSIDiscoveryMechanisms: %v (-want +got)\n%s", err, diff)
	}
	d.wantRecord()
}

func TestSession(t *testing.T) {
	sys, d := load(t)
	ctx := t.Context()
	d.addTarget(target{name: iqn, portal: portal, luns: 2})
	d.addTarget(target{name: "iqn.2026-01.example:two", portal: portal, luns: 1})
	login := win.ISCSILogin{Target: iqn, Portal: portal}
	_, err := sys.LoginISCSITarget(ctx, login)
	d.want("login before any discovery", err, winerr.ISDSCTargetNotFound)
	d.discover(sys, portal)
	d.take()

	d.call("DoubleSetLate", 1)
	id, err := sys.LoginISCSITarget(ctx, login)
	d.want("LoginISCSITarget", err, nil)
	_, err = sys.LoginISCSITarget(ctx, login)
	d.want("again", err, winerr.ISDSCTargetAlreadyLoggedIn)
	second, err := sys.LoginISCSITarget(ctx, win.ISCSILogin{Target: "iqn.2026-01.example:two", Portal: portal})
	d.want("login to another", err, nil)
	sessions, err := sys.ISCSISessions(ctx)
	want := []win.ISCSISession{
		{ID: id, Target: iqn, Portals: []win.ISCSIPortal{portal}},
		{ID: second, Target: "iqn.2026-01.example:two", Portals: []win.ISCSIPortal{portal}},
	}
	if diff := cmp.Diff(want, sessions); err != nil || diff != "" {
		t.Errorf("ISCSISessions: %v (-want +got)\n%s", err, diff)
	}

	for _, number := range []uint32{win.NoNumber, 10} { // of the first disk: it arrives late
		devices, err := sys.ISCSISessionDevices(ctx, id)
		want := []win.ISCSIDevice{device(1, 0, number), device(1, 1, number)}
		if number != win.NoNumber {
			want[1].Device.DeviceNumber++
		}
		if diff := cmp.Diff(want, devices); err != nil || diff != "" {
			t.Errorf("ISCSISessionDevices: %v (-want +got)\n%s", err, diff)
		}
	}
	_, err = sys.ISCSISessionDevices(ctx, win.ISCSISessionID{AdapterUnique: id.AdapterUnique})
	d.want("devices of no session", err, invalidSessionID)

	d.fail("LogoutIScsiTarget", winerr.ISDSCDeviceBusyOnSession)
	d.want("logout in use", sys.LogoutISCSITarget(ctx, id), winerr.ISDSCDeviceBusyOnSession)
	d.want("LogoutISCSITarget", sys.LogoutISCSITarget(ctx, id), nil)
	d.want("again", sys.LogoutISCSITarget(ctx, id), invalidSessionID)
	if sessions, err := sys.ISCSISessions(ctx); err != nil || len(sessions) != 1 {
		t.Errorf("after the logout: %v, %v", sessions, err)
	}
	d.wantRecord(
		"login iqn.2026-01.example:one portal=192.0.2.1 3260 auth=0 user= password=",
		"login iqn.2026-01.example:one portal=192.0.2.1 3260 auth=0 user= password=",
		"login iqn.2026-01.example:two portal=192.0.2.1 3260 auth=0 user= password=",
		"logout 1", "logout 1", "logout 1",
	)
}

// device is one of a session as the double reports it.
func device(session, lun byte, number uint32) win.ISCSIDevice {
	d := win.ISCSIDevice{
		SCSIAddress: win.SCSIAddress{PortNumber: 4, TargetID: session, LUN: lun},
		Device:      win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: csiproxy.DiskNumber(number)},
	}
	if number == win.NoNumber {
		d.Device.PartitionNumber = win.NoNumber
	}
	return d
}

func TestCHAP(t *testing.T) {
	// The double looks at where it was given secrets: nothing else may come there.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	sys, d := load(t)
	ctx := t.Context()
	d.addTarget(target{name: iqn, portal: portal, user: "user", secret: "target12target", mutual: "node12node12"})
	d.discover(sys, portal)
	d.take()

	login := win.ISCSILogin{Target: iqn, Portal: portal}
	try := func(what string, auth win.ISCSIAuthType, user, password string, want error) {
		t.Helper()
		login.AuthType, login.Username, login.Secret = auth, user, csiproxy.NewSecret(password)
		id, err := sys.LoginISCSITarget(ctx, login)
		d.want(what, err, want)
		if err == nil {
			d.want("logout", sys.LogoutISCSITarget(ctx, id), nil)
		}
	}
	try("without CHAP", win.ISCSINoAuth, "ignored", "ignored12345", winerr.ISDSCAuthenticationFailed)
	try("CHAP", win.ISCSICHAP, "user", "target12target", nil)
	try("CHAP as the node", win.ISCSICHAP, "", "target12target", winerr.ISDSCAuthenticationFailed)
	try("wrong password", win.ISCSICHAP, "user", "target12wrong", winerr.ISDSCAuthenticationFailed)
	try("short password", win.ISCSICHAP, "user", "short", shortCHAPSecret)
	try("mutual CHAP before the node has a secret", win.ISCSIMutualCHAP, "user", "target12target",
		winerr.ISDSCAuthenticationFailed)
	d.want("SetISCSIInitiatorCHAPSecret", sys.SetISCSIInitiatorCHAPSecret(ctx, csiproxy.NewSecret("node12node12")), nil)
	d.want("with a short one", sys.SetISCSIInitiatorCHAPSecret(ctx, csiproxy.NewSecret("short")), shortCHAPSecret)
	d.want("with none", sys.SetISCSIInitiatorCHAPSecret(ctx, csiproxy.Secret{}), shortCHAPSecret)
	try("mutual CHAP", win.ISCSIMutualCHAP, "user", "target12target", nil)
	try("CHAP with a mutual secret", win.ISCSICHAP, "user", "target12target", nil)

	const prefix = "login " + iqn + " portal=192.0.2.1 3260 "
	d.wantRecord(
		prefix+"auth=0 user= password=",
		prefix+"auth=1 user=user password=target12target",
		"logout 1",
		prefix+"auth=1 user= password=target12target",
		prefix+"auth=1 user=user password=target12wrong",
		prefix+"auth=1 user=user password=short",
		prefix+"auth=2 user=user password=target12target",
		"initiator secret node12node12",
		"initiator secret short",
		"initiator secret ",
		prefix+"auth=2 user=user password=target12target",
		"logout 2",
		prefix+"auth=1 user=user password=target12target",
		"logout 3",
	)
	if n := d.call("DoubleCountSecretBytes"); n != 0 {
		t.Errorf("%d bytes of secrets are left in memory", n)
	}
}

func TestPersistentLogins(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // as in TestCHAP
	sys, d := load(t)
	ctx := t.Context()
	if got, err := sys.ISCSIPersistentLogins(ctx); err != nil || len(got) != 0 {
		t.Errorf("before any login: %v, %v", got, err)
	}
	// They differ in one thing each; the symbolic name isn't among what is reported.
	logins := []win.ISCSIPersistentLogin{
		{Target: iqn, Initiator: `ROOT\ISCSIPRT\0000_0`, InitiatorPort: 0xFFFFFFFF, Portal: portal},
		{Target: iqn, Initiator: `ROOT\ISCSIPRT\0000_0`, InitiatorPort: 1, Portal: portal},
		{Target: iqn, Initiator: `ROOT\ISCSIPRT\0000_0`, InitiatorPort: 0xFFFFFFFF, Portal: other},
	}
	for i, l := range logins {
		d.addPersistentLogin(l, fmt.Sprint("portal ", i))
	}
	got, err := sys.ISCSIPersistentLogins(ctx)
	if diff := cmp.Diff(logins, got); err != nil || diff != "" {
		t.Errorf("ISCSIPersistentLogins: %v (-want +got)\n%s", err, diff)
	}
	d.want("RemoveISCSIPersistentLogin", sys.RemoveISCSIPersistentLogin(ctx, logins[1]), nil)
	d.want("again", sys.RemoveISCSIPersistentLogin(ctx, logins[1]), winerr.ErrorNotFound)
	got, err = sys.ISCSIPersistentLogins(ctx)
	if diff := cmp.Diff([]win.ISCSIPersistentLogin{logins[0], logins[2]}, got); err != nil || diff != "" {
		t.Errorf("after the removal: %v (-want +got)\n%s", err, diff)
	}
	d.fail("RemoveIScsiPersistentTargetW", winerr.ISDSCCouldNotRemovePersistentLogin)
	d.want("a refused removal", sys.RemoveISCSIPersistentLogin(ctx, logins[0]), winerr.ISDSCCouldNotRemovePersistentLogin)
	d.wantRecord(
		`remove login iqn.2026-01.example:one initiator=ROOT\ISCSIPRT\0000_0 0x1 portal=portal 1 192.0.2.1 3260`,
		`remove login iqn.2026-01.example:one initiator=ROOT\ISCSIPRT\0000_0 0xffffffff portal=portal 0 192.0.2.1 3260`,
	)
	if n := d.call("DoubleCountSecretBytes"); n != 0 {
		t.Errorf("%d bytes of stored secrets are left in memory", n)
	}
}

// Every list is one that the first buffer is too small for, whatever code says so.
func TestGrowingBuffers(t *testing.T) {
	for _, tooSmall := range []winerr.Errno{winerr.ErrorInsufficientBuffer, 0x8007007A, winerr.ISDSCBufferTooSmall} {
		t.Run(fmt.Sprintf("%#x", uint32(tooSmall)), func(t *testing.T) {
			sys, d := load(t)
			d.reset(tooSmall)
			ctx := t.Context()
			var portals []win.ISCSIPortal
			for i := range 5 {
				p := win.ISCSIPortal{Address: fmt.Sprint("192.0.2.", i), Port: uint16(3260 + i)}
				portals = append(portals, p)
				for j := range 20 {
					d.addTarget(target{name: fmt.Sprintf("iqn.2026-01.example:target-%d-%d", i, j), portal: p, luns: 40})
				}
				d.discover(sys, p)
				d.addPersistentLogin(win.ISCSIPersistentLogin{Target: iqn, Initiator: "initiator", Portal: p}, "")
			}
			if got, err := sys.ISCSISendTargetPortals(ctx); err != nil || !slices.Equal(got, portals) {
				t.Errorf("ISCSISendTargetPortals gives %v, %v", got, err)
			}
			d.call("DoubleSetGrowing", 3)
			targets, err := sys.ISCSITargets(ctx)
			if err != nil || len(targets) < 101 || targets[100] != "iqn.2026-01.example:late-2" {
				t.Errorf("ISCSITargets gives %q, %v", targets, err)
			}
			var sessions []win.ISCSISession
			for _, name := range targets[:20] {
				id, err := sys.LoginISCSITarget(ctx, win.ISCSILogin{Target: name, Portal: portals[0]})
				must(t, err)
				sessions = append(sessions, win.ISCSISession{ID: id, Target: name, Portals: portals[:1]})
			}
			if got, err := sys.ISCSISessions(ctx); err != nil || !cmp.Equal(got, sessions) {
				t.Errorf("ISCSISessions gives %v, %v", got, err)
			}
			devices, err := sys.ISCSISessionDevices(ctx, sessions[19].ID)
			if err != nil || len(devices) != 40 || devices[39] != device(20, 39, 239) {
				t.Errorf("ISCSISessionDevices gives %v, %v", devices, err)
			}
			if got, err := sys.ISCSIPersistentLogins(ctx); err != nil || len(got) != 5 || got[4].Portal != portals[4] {
				t.Errorf("ISCSIPersistentLogins gives %v, %v", got, err)
			}
			if strings.Contains(d.take(), "not ") {
				t.Error("the double refused an argument")
			}
		})
	}
}

// errorOf is the error of a call, of which nothing else counts.
func errorOf[T any](_ T, err error) error { return err }

// An error of each call is the number that the initiator gives.
func TestErrors(t *testing.T) {
	sys, d := load(t)
	ctx := t.Context()
	d.addPersistentLogin(win.ISCSIPersistentLogin{Target: iqn, Initiator: "initiator", Portal: portal}, "")
	for function, call := range map[string]func() error{
		"AddIScsiSendTargetPortalW":       func() error { return sys.AddISCSISendTargetPortal(ctx, portal) },
		"RemoveIScsiSendTargetPortalW":    func() error { return sys.RemoveISCSISendTargetPortal(ctx, portal) },
		"RefreshIScsiSendTargetPortalW":   func() error { return sys.RefreshISCSISendTargetPortal(ctx, portal) },
		"ReportIScsiSendTargetPortalsExW": func() error { return errorOf(sys.ISCSISendTargetPortals(ctx)) },
		"ReportIScsiTargetsW":             func() error { return errorOf(sys.ISCSITargets(ctx)) },
		"GetIScsiTargetInformationW":      func() error { return errorOf(sys.ISCSIDiscoveryMechanisms(ctx, iqn)) },
		"LoginIScsiTargetW": func() error {
			return errorOf(sys.LoginISCSITarget(ctx, win.ISCSILogin{Target: iqn, Portal: portal}))
		},
		"LogoutIScsiTarget":    func() error { return sys.LogoutISCSITarget(ctx, win.ISCSISessionID{}) },
		"GetIScsiSessionListW": func() error { return errorOf(sys.ISCSISessions(ctx)) },
		"GetDevicesForIScsiSessionW": func() error {
			return errorOf(sys.ISCSISessionDevices(ctx, win.ISCSISessionID{}))
		},
		"ReportIScsiPersistentLoginsW": func() error { return errorOf(sys.ISCSIPersistentLogins(ctx)) },
		"RemoveIScsiPersistentTargetW": func() error {
			return sys.RemoveISCSIPersistentLogin(ctx,
				win.ISCSIPersistentLogin{Target: iqn, Initiator: "initiator", Portal: portal})
		},
		"SetIScsiInitiatorCHAPSharedSecret": func() error {
			return sys.SetISCSIInitiatorCHAPSecret(ctx, csiproxy.NewSecret("node12node12"))
		},
	} {
		d.fail(function, winerr.ISDSCServiceNotRunning)
		d.want(function, call(), winerr.ISDSCServiceNotRunning)
	}
}

// What is wrong in itself doesn't come to the initiator.
func TestBadInput(t *testing.T) {
	sys, d := load(t)
	ctx := t.Context()
	long := win.ISCSIPortal{Address: strings.Repeat("x", 256), Port: 1}
	d.want("AddISCSISendTargetPortal", sys.AddISCSISendTargetPortal(ctx, long), winerr.ErrorInvalidParameter)
	d.want("RemoveISCSISendTargetPortal", sys.RemoveISCSISendTargetPortal(ctx, long), winerr.ErrorInvalidParameter)
	d.want("RefreshISCSISendTargetPortal", sys.RefreshISCSISendTargetPortal(ctx, long), winerr.ErrorInvalidParameter)
	_, err := sys.LoginISCSITarget(ctx, win.ISCSILogin{Target: iqn, Portal: long})
	d.want("LoginISCSITarget at a bad portal", err, winerr.ErrorInvalidParameter)
	for _, name := range []string{strings.Repeat("x", 224), "iqn\x00"} {
		_, err := sys.LoginISCSITarget(ctx, win.ISCSILogin{Target: name, Portal: portal})
		d.want("LoginISCSITarget", err, winerr.ISDSCInvalidISCSIName)
		_, err = sys.ISCSIDiscoveryMechanisms(ctx, name)
		d.want("ISCSIDiscoveryMechanisms", err, winerr.ISDSCInvalidISCSIName)
	}
	d.wantRecord()
}
