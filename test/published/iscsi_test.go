// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The authentication types, as both versions number them.
const (
	noAuth     = protoreflect.EnumNumber(0)
	oneWayCHAP = protoreflect.EnumNumber(1)
	mutualCHAP = protoreflect.EnumNumber(2)
)

// portal is where the tests' targets are, at the default port.
var portal = fields{"target_address": "10.0.0.1"}

// addTarget puts a target without disks on the network. more are other fields of it;
// the secrets are of its user, and its own.
func addTarget(n *node, iqn string, more fields, secret, own string) {
	n.t.Helper()
	target := more.with("iqn", iqn)
	if target["portals"] == nil {
		target["portals"] = []fields{{"address": portal["target_address"]}}
	}
	n.simCall("AddIscsiTarget", target.with("chap_secret", secret).with("mutual_chap_secret", own))
}

// addLUN gives a target a disk.
func addLUN(n *node, iqn string, lun fields) {
	n.t.Helper()
	n.simCall("AddIscsiLun", fields{"iqn": iqn, "lun": lun})
}

// discover makes the node know the targets at the portal.
func (c *client) discover() {
	c.t.Helper()
	c.succeed("AddTargetPortal", fields{"target_portal": portal})
	c.succeed("DiscoverTargetPortal", fields{"target_portal": portal})
}

// Every method of every version of the iscsi group: what it does, and how it fails.
func TestISCSI(t *testing.T) {
	t.Parallel()
	for _, v := range versionsOf("iscsi", "ConnectTarget") {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := n.client(v)
			for _, test := range []struct {
				method string
				test   func(*node, *client)
			}{
				{"AddTargetPortal", testTargetPortals},
				{"DiscoverTargetPortal", testDiscoverTargetPortal},
				{"ConnectTarget", testConnectTarget},
				{"GetTargetDisks", testGetTargetDisks},
				{"SetMutualChapSecret", testMutualCHAP},
			} {
				if c.has(test.method) {
					t.Run(test.method, func(t *testing.T) { test.test(n.in(t), c.in(t)) })
				}
			}
			t.Run("arguments", func(t *testing.T) { testISCSIArguments(n.in(t), c.in(t)) })
			c.wantAllSeen()
			if life := n.life(); !n.alive() || life != 1 {
				t.Errorf("the daemon is in life %d (alive: %t)", life, n.alive())
			}
		})
	}
}

func testTargetPortals(n *node, c *client) {
	n.simCall("SetIscsiPortal", fields{"portal": fields{"address": "10.0.0.2"}, "reachable": true})
	n.simCall("SetIscsiPortal", fields{"portal": fields{"address": "10.0.0.2", "port": uint32(860)}, "reachable": true})
	n.simCall("SetIscsiPortal", fields{"portal": fields{"address": "fd00::2"}, "reachable": true})
	portals := func() (all []string) {
		for _, p := range c.succeed("ListTargetPortals", nil).messages("target_portals") {
			all = append(all, fmt.Sprintf("%s %s", p.text("target_address"), p.text("target_port")))
		}
		return all
	}
	if got := portals(); len(got) != 0 {
		c.t.Errorf("an untouched node knows the portals %q", got)
	}
	for _, p := range []fields{
		{"target_address": "10.0.0.2"}, {"target_address": "10.0.0.2", "target_port": uint32(3260)},
		{"target_address": "10.0.0.2", "target_port": uint32(860)}, {"target_address": "fd00::2"}, {"target_address": "[FD00:0::2]"},
	} {
		c.succeed("AddTargetPortal", fields{"target_portal": p})
	}
	want := []string{"10.0.0.2 3260", "10.0.0.2 860", "fd00::2 3260"}
	if diff := cmp.Diff(want, portals()); diff != "" {
		c.t.Errorf("portals (-want +got):\n%s", diff)
	}
	n.reboot()
	if diff := cmp.Diff(want, portals()); diff != "" {
		c.t.Errorf("portals after a restart of the node (-want +got):\n%s", diff)
	}
	c.succeed("RemoveTargetPortal", fields{"target_portal": fields{"target_address": "10.0.0.2"}})
	if diff := cmp.Diff(want[1:], portals()); diff != "" {
		c.t.Errorf("portals after one is removed (-want +got):\n%s", diff)
	}
	c.fail(codes.NotFound, "RemoveTargetPortal", fields{"target_portal": fields{"target_address": "10.0.0.2"}})
	c.fail(codes.Unavailable, "AddTargetPortal", fields{"target_portal": fields{"target_address": "10.0.0.99"}})
	n.failNext("ReportIScsiSendTargetPortalsExW", errorAccessDenied)
	c.fail(codes.PermissionDenied, "ListTargetPortals", nil)
}

func testDiscoverTargetPortal(n *node, c *client) {
	at := fields{"target_address": "10.0.0.3"}
	other := []fields{{"address": "10.0.0.4"}}
	here := []fields{{"address": "10.0.0.3"}}
	c.fail(codes.NotFound, "DiscoverTargetPortal", fields{"target_portal": at})
	addTarget(n, "iqn.2026-01.example:a", fields{"portals": here}, "", "")
	addTarget(n, "iqn.2026-01.example:elsewhere", fields{"portals": other}, "", "")
	c.succeed("AddTargetPortal", fields{"target_portal": at})
	c.succeed("AddTargetPortal", fields{"target_portal": fields{"target_address": "10.0.0.4"}})
	addTarget(n, "iqn.2026-01.example:b", fields{"portals": here}, "", "") // a driver's new volume
	for range 2 {
		got := c.succeed("DiscoverTargetPortal", fields{"target_portal": at}).texts("iqns")
		if diff := cmp.Diff([]string{"iqn.2026-01.example:a", "iqn.2026-01.example:b"}, got); diff != "" {
			c.t.Errorf("targets (-want +got):\n%s", diff)
		}
	}
	unreachable := fields{"portal": fields{"address": "10.0.0.3"}}
	n.simCall("SetIscsiPortal", unreachable)
	c.fail(codes.Unavailable, "DiscoverTargetPortal", fields{"target_portal": at})
	n.simCall("SetIscsiPortal", unreachable.with("reachable", true))
	c.succeed("DiscoverTargetPortal", fields{"target_portal": at})
}

func testConnectTarget(n *node, c *client) {
	const open, guarded = "iqn.2026-01.example:open", "iqn.2026-01.example:guarded"
	addTarget(n, open, nil, "", "")
	addTarget(n, guarded, fields{"chap_user": "node"}, newSecret(1), "")
	addLUN(n, open, fields{"size_bytes": int64(gib)})
	addLUN(n, guarded, fields{"size_bytes": int64(gib)})
	target := func(iqn string) fields { return fields{"target_portal": portal, "iqn": iqn} }
	c.fail(codes.NotFound, "ConnectTarget", target(open)) // it wasn't discovered
	c.discover()

	chap := target(guarded).with("auth_type", oneWayCHAP).with("chap_username", "node").with("chap_secret", newSecret(1))
	for _, request := range []fields{target(open), chap} {
		iqn := request["iqn"].(string)
		for range 2 { // the second time it is connected already
			c.succeed("ConnectTarget", request)
			if disks := c.succeed("GetTargetDisks", target(iqn)).texts("diskIDs"); len(disks) != 1 {
				c.t.Errorf("%s has the disks %q, want one", iqn, disks)
			}
		}
		for range 2 { // the second time it isn't connected any more
			c.succeed("DisconnectTarget", target(iqn))
			if disks := c.succeed("GetTargetDisks", target(iqn)).texts("diskIDs"); len(disks) != 0 {
				c.t.Errorf("without a session %s has the disks %q", iqn, disks)
			}
		}
	}

	for _, test := range []struct {
		request fields
		want    codes.Code
	}{
		{target(guarded), codes.Unauthenticated},
		{chap.with("chap_secret", newSecret(2)), codes.Unauthenticated},
		{chap.with("chap_username", "nobody"), codes.Unauthenticated},
		{chap.with("chap_secret", newSecret(1)[:11]), codes.InvalidArgument},
		{chap.with("chap_secret", newSecret(1)+"123"), codes.InvalidArgument},
		{chap.with("chap_username", ""), codes.InvalidArgument},
		{chap.with("auth_type", protoreflect.EnumNumber(3)), codes.InvalidArgument},
		{target("iqn.2026-01.example:none"), codes.NotFound},
		{target(open).with("target_portal", fields{"target_address": "10.0.0.98"}), codes.Unavailable},
	} {
		c.fail(test.want, "ConnectTarget", test.request)
	}
	if disks := c.succeed("GetTargetDisks", target(guarded)).texts("diskIDs"); len(disks) != 0 {
		c.t.Errorf("after refused logins the target has the disks %q", disks)
	}
	n.failNext("LogoutIScsiTarget", errorAccessDenied)
	c.succeed("ConnectTarget", target(open))
	c.fail(codes.PermissionDenied, "DisconnectTarget", target(open))
	c.succeed("DisconnectTarget", target(open))
}

func testGetTargetDisks(n *node, c *client) {
	const iqn = "iqn.2026-01.example:disks"
	addTarget(n, iqn, nil, "", "")
	addLUN(n, iqn, fields{"size_bytes": int64(gib), "serial_number": "lun-a"})
	addLUN(n, iqn, fields{"size_bytes": int64(gib), "serial_number": "lun-b", "needs_rescan": true})
	target := fields{"target_portal": portal, "iqn": iqn}
	c.discover()
	c.succeed("ConnectTarget", target)
	var want []string
	for _, serial := range []string{"lun-a", "lun-b"} {
		want = append(want, decimal(*n.diskBySerial(serial).Number))
	}
	got := c.succeed("GetTargetDisks", target).texts("diskIDs")
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("disks (-want +got):\n%s", diff)
	}
	// They are disks as any other.
	o := n.operator()
	volume := o.formattedVolume(*n.diskBySerial("lun-a").Number)
	o.mount(volume, kubeletPath+`\lun-`+c.name)
	n.write(kubeletPath+`\lun-`+c.name+`\data`, "on a target")
	o.must(o.UnmountVolume(context.Background(), volume, kubeletPath+`\lun-`+c.name))
	c.succeed("DisconnectTarget", target)
	if number := n.diskBySerial("lun-a").Number; number != nil {
		c.t.Errorf("without a session disk %d is there", *number)
	}
	c.succeed("ConnectTarget", target)
	o.mount(volume, kubeletPath+`\lun-`+c.name)
	n.wantText(kubeletPath+`\lun-`+c.name+`\data`, "on a target")
	n.failNext("GetDevicesForIScsiSessionW", errorAccessDenied)
	c.fail(codes.PermissionDenied, "GetTargetDisks", target)
}

// testMutualCHAP lets the target prove itself, with a secret that belongs to the node.
func testMutualCHAP(n *node, c *client) {
	const iqn = "iqn.2026-01.example:mutual"
	addTarget(n, iqn, fields{"chap_user": "node"}, newSecret(1), newSecret(2))
	addLUN(n, iqn, fields{"size_bytes": int64(gib)})
	c.discover()
	login := fields{
		"target_portal": portal, "iqn": iqn, "auth_type": mutualCHAP, "chap_username": "node", "chap_secret": newSecret(1),
	}
	c.fail(codes.Unauthenticated, "ConnectTarget", login) // the node has no secret yet
	c.succeed("SetMutualChapSecret", fields{"MutualChapSecret": newSecret(3)})
	c.fail(codes.Unauthenticated, "ConnectTarget", login)
	c.succeed("SetMutualChapSecret", fields{"MutualChapSecret": newSecret(2)})
	c.succeed("ConnectTarget", login)
	for _, secret := range []string{"", newSecret(2)[:11], newSecret(2) + "123"} {
		c.fail(codes.InvalidArgument, "SetMutualChapSecret", fields{"MutualChapSecret": secret})
	}
}

// testISCSIArguments leaves out and bends what targets are named by. Without the
// portal, the published daemon crashes.
func testISCSIArguments(n *node, c *client) {
	const iqn = "iqn.2026-01.example:arguments"
	addTarget(n, iqn, nil, "", "")
	c.discover()
	portals := []fields{
		nil, {}, {"target_address": ""}, {"target_address": " "}, {"target_address": "10.0.0.1", "target_port": uint32(65536)},
		{"target_address": "10.0.0.1", "target_port": uint32(1<<32 - 1)}, {"target_address": "10.0.0.1:3260"}, {"target_address": "10.0.0.1\x00"},
		{"target_address": `10.0.0.1' OR TargetPortalAddress LIKE '%`}, {"target_address": `\\10.0.0.1`},
	}
	names := []string{
		"", " ", "target", "iqn.", "IQN", "iqn.2026-01.example:x'", `iqn.2026-01.example:x" OR NodeAddress LIKE "%`, "iqn.2026-01.example:\x00",
		"iqn.2026-01.example:a b", "eui.0123456789abcde", "naa.x", "nqn.2026-01.example:x",
	}
	methods := c.service().Methods()
	tested := 0
	for i := range methods.Len() {
		m := methods.Get(i)
		if m.Input().Fields().ByName("target_portal") == nil {
			continue
		}
		request := fields{"target_portal": portal}
		hasName := m.Input().Fields().ByName("iqn") != nil
		if hasName {
			request["iqn"] = iqn
		}
		for _, p := range portals {
			bent := request.with("target_portal", p)
			if p == nil {
				bent = request.without("target_portal")
			}
			c.fail(codes.InvalidArgument, string(m.Name()), bent)
		}
		c.fail(codes.InvalidArgument, string(m.Name()), nil)
		if !hasName {
			continue
		}
		tested++
		for _, name := range names {
			c.fail(codes.InvalidArgument, string(m.Name()), request.with("iqn", name))
		}
	}
	if tested != 3 {
		c.t.Errorf("%d methods have the name of a target, want 3", tested)
	}
}
