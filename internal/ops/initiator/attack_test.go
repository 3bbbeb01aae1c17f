// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator_test

import (
	"context"
	"slices"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// operations are those on a target with a session.
var operations = map[string]func(ctx context.Context, i *initiator.Initiator, p csiproxy.ISCSIPortal) error{
	"ConnectTarget": func(ctx context.Context, i *initiator.Initiator, p csiproxy.ISCSIPortal) error {
		return i.ConnectTarget(ctx, p, name, noAuth)
	},
	"DisconnectTarget": func(ctx context.Context, i *initiator.Initiator, p csiproxy.ISCSIPortal) error {
		return i.DisconnectTarget(ctx, p, name)
	},
	"GetTargetDisks": func(ctx context.Context, i *initiator.Initiator, p csiproxy.ISCSIPortal) error {
		_, err := i.GetTargetDisks(ctx, p, name)
		return err
	},
}

// sessionsOf lists the ids of the sessions with the target.
func sessionsOf(t *testing.T, sys *winsim.System) (ids []win.ISCSISessionID) {
	t.Helper()
	sessions, err := sys.ISCSISessions(t.Context())
	must(t, err)
	for _, s := range sessions {
		if s.Target == string(name) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// A connected target is named by one of its portals: where its session leads, or where
// it was found. A host name may be any of its addresses.
func TestPortalOfConnectedTarget(t *testing.T) {
	several := target(name, 1)
	several.Portals = []win.ISCSIPortal{{Address: "10.0.0.2", Port: 3260}, {Address: "2001:db8::1", Port: 3260}}
	for what, call := range operations {
		t.Run(what, func(t *testing.T) {
			for named, test := range map[csiproxy.ISCSIPortal]struct {
				forget bool // the portal at which the target was found
				kind   error
			}{
				portal:                                {},
				{Address: "10.0.0.2"}:                 {},
				{Address: "10.0.0.2", Port: 3260}:     {forget: true},
				{Address: "storage.example.com"}:      {},
				{Address: "10.9.9.9"}:                 {kind: csiproxy.ErrFailedPrecondition},
				{Address: "10.9.9.9", Port: 860}:      {forget: true, kind: csiproxy.ErrFailedPrecondition},
				{Address: "10.0.0.2", Port: 860}:      {kind: csiproxy.ErrFailedPrecondition},
				{Address: "2001:db8::2"}:              {kind: csiproxy.ErrFailedPrecondition},
				{Address: "storage.example", Port: 1}: {kind: csiproxy.ErrFailedPrecondition},
			} {
				sys, i := newNode(t, winsim.Delays{}, several)
				discovered(t, i)
				must(t, i.ConnectTarget(t.Context(), csiproxy.ISCSIPortal{Address: "10.0.0.2"}, name, noAuth))
				must(t, sys.ISCSI().SetPersistentLogin(win.ISCSILogin{Target: string(name), Portal: win.ISCSIPortal(named)}))
				if test.forget {
					must(t, i.RemoveTargetPortal(t.Context(), portal))
				}
				err := call(t.Context(), i, named)
				if test.kind == nil {
					want(t, err, nil)
					continue
				}
				want(t, err, test.kind, "10.0.0.2:3260")
				logins, err := sys.ISCSIPersistentLogins(t.Context())
				if err != nil || len(logins) != 1 || len(sessionsOf(t, sys)) != 1 {
					t.Errorf("%v: something was changed: %v, %v", named, logins, err)
				}
			}
		})
	}
}

// Before each call, the target is replaced by another one of the same name at another
// portal, with a session of somebody else's. No operation ends that session or returns
// its disks.
func TestSessionIsSwapped(t *testing.T) {
	elsewhere := win.ISCSIPortal{Address: "10.0.0.9", Port: 3260}
	for what, call := range operations {
		t.Run(what, func(t *testing.T) {
			simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
				sys, i := newNode(t, winsim.Delays{}, target(name, 1))
				discovered(t, i)
				must(t, i.ConnectTarget(t.Context(), portal, name, noAuth))
				swapped := false
				var theirs win.ISCSISessionID
				before(sys, func(winsim.Call) {
					swapped = true
					if ids := sessionsOf(t, sys); len(ids) > 0 {
						must(t, sys.LogoutISCSITarget(t.Context(), ids[0]))
					}
					must(t, sys.ISCSI().RemoveTarget(string(name)))
					must(t, sys.ISCSI().AddTarget(iscsitarget.Target{IQN: string(name), Portals: []win.ISCSIPortal{elsewhere}},
						winsim.DiskSpec{SizeBytes: 1 << 30, Serial: "theirs"}))
					must(t, sys.AddISCSISendTargetPortal(t.Context(), elsewhere))
					must(t, sys.RemoveISCSISendTargetPortal(t.Context(), win.ISCSIPortal{Address: portal.Address, Port: 3260}))
					var err error
					theirs, err = sys.LoginISCSITarget(t.Context(), win.ISCSILogin{Target: string(name), Portal: elsewhere})
					must(t, err)
				})
				err := call(t.Context(), i, portal)
				sys.OnCall(nil)
				if !swapped {
					return
				}
				if !slices.Contains(sessionsOf(t, sys), theirs) {
					t.Error("somebody else's session has ended")
				}
				// After that, the operation says that it isn't the caller's target.
				want(t, call(t.Context(), i, portal), csiproxy.ErrFailedPrecondition)
				ended := what == "DisconnectTarget" && err == nil // the caller's session has
				if !ended && csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition {
					t.Error(err)
				}
			})
		})
	}
}

// Before each call, another process does the same, or the opposite.
func TestAnotherProcess(t *testing.T) {
	for what, call := range operations {
		for _, against := range []string{"ConnectTarget", "DisconnectTarget"} {
			t.Run(what+" against "+against, func(t *testing.T) {
				simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
					sys, i := newNode(t, winsim.Delays{}, target(name, 1))
					discovered(t, i)
					if against == "DisconnectTarget" || what == "DisconnectTarget" {
						must(t, i.ConnectTarget(t.Context(), portal, name, noAuth))
					}
					second := initiator.New(sys, initiator.Options{})
					before(sys, func(winsim.Call) {
						must(t, operations[against](t.Context(), second, portal))
					})
					must(t, call(t.Context(), i, portal))
					sys.OnCall(nil)
					must(t, call(t.Context(), i, portal))
					if n := len(sessionsOf(t, sys)); what == "ConnectTarget" && n != 1 || what == "DisconnectTarget" && n != 0 {
						t.Errorf("there are %d sessions", n)
					}
				})
			})
		}
	}
}
