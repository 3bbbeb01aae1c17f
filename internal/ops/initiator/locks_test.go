// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"fmt"
	"slices"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// The names of targets compare without regard to case.
func TestTargetLocks(t *testing.T) {
	locks := NewTargetLocks([]string{"red"})
	unlock, err := locks.Lock(t.Context(), []string{"", "red"}, "iqn.2026-01.com.example:a")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for target, excludes := range map[csiproxy.IQN]bool{"IQN.2026-01.com.example:A": true, "iqn.2026-01.com.example:b": false} {
		if _, err := locks.Lock(late, []string{"red"}, target); (err != nil) != excludes {
			t.Errorf("while a is locked, the lock of %s: %v", target, err)
		}
	}
}

// Calls at a portal exclude those of its owner, and are about no other owner's sessions. A session without a connection may be of anybody.
func TestOwnersOfCalls(t *testing.T) {
	targets := NewTargetLocks([]string{"red", "blue"})
	ownerOf := func(p win.ISCSIPortal) (string, bool) {
		owner, isKnown := map[string]string{"10.0.0.1": "red", "10.0.0.2": "blue", "10.0.0.3": "", "": "red"}[p.Address]
		return owner, isKnown
	}
	node := New(nil, Options{Targets: targets, OwnerOf: ownerOf})
	red := New(nil, Options{Targets: targets, Driver: "red"})
	alone := New(nil, Options{})
	sessions := map[string][]string{"red": {"10.0.0.1"}, "nobody": {"10.0.0.3"}, "both": {"10.0.0.3", "10.0.0.1"},
		"of a host": {"host"}, "none": nil}
	for _, test := range []struct {
		name    string
		of      *Initiator
		address string
		owners  []string
		about   []string
	}{
		{"the node at red's portal", node, "10.0.0.1", []string{"", "red"}, []string{"both", "nobody", "none", "red"}},
		{"the node at nobody's portal", node, "10.0.0.3", []string{""}, []string{"nobody", "none"}},
		{"the node at a host", node, "host", []string{"", "red", "blue"}, []string{"both", "nobody", "none", "of a host", "red"}},
		{"the node at no portal", node, "", []string{"", "red", "blue"}, []string{"both", "nobody", "none", "of a host", "red"}},
		{"red at any portal", red, "10.0.0.2", []string{"red"}, []string{"both", "nobody", "none", "of a host", "red"}}, // its system has no others
		{"a node without drivers", alone, "10.0.0.1", []string{""}, []string{"both", "nobody", "none", "of a host", "red"}},
	} {
		owners := test.of.Owners(csiproxy.ISCSIPortal{Address: test.address})
		if fmt.Sprint(owners) != fmt.Sprint(test.owners) {
			t.Errorf("%s excludes %q, not %q", test.name, owners, test.owners)
		}
		for name, addresses := range sessions {
			var s win.ISCSISession
			for _, address := range addresses {
				s.Portals = append(s.Portals, win.ISCSIPortal{Address: address})
			}
			if is, want := test.of.isOf(s, owners), slices.Contains(test.about, name); is != want {
				t.Errorf("%s, about the session %s: %v", test.name, name, is)
			}
		}
	}
}
