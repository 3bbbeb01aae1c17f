// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

const defaultPort = 3260

var iscsiChecks = []Check{
	{
		Name: "iscsi.list-portals", Group: "iscsi", Methods: []string{"ListTargetPortals"},
		Promise: "ListTargetPortals gives the portals that the node knows, with their ports.",
		run: func(t *trial) {
			if t.Portal != "" {
				t.addPortal(t.portal())
				t.want(len(t.portals()) > 0, "there is no portal after AddTargetPortal")
			}
			for _, p := range t.portals() {
				t.want(p.address != "" && 0 < p.port && p.port < 1<<16, "portal %+v", p)
			}
		},
	},
	{
		Name: "iscsi.portal", Group: "iscsi", Methods: []string{"AddTargetPortal", "ListTargetPortals", "RemoveTargetPortal"},
		Promise: "AddTargetPortal makes a portal known, and may be repeated; RemoveTargetPortal makes it unknown.",
		run: func(t *trial) {
			p := t.portal()
			for range 2 {
				t.addPortal(p)
				t.want(slices.Contains(t.portals(), p), "%+v isn't among the portals after AddTargetPortal", p)
			}
			t.do("RemoveTargetPortal", fields{"portal": p.fields()})
			t.want(!slices.Contains(t.portals(), p), "%+v is among the portals after RemoveTargetPortal", p)
		},
	},
	{
		Name: "iscsi.default-port", Group: "iscsi", Methods: []string{"AddTargetPortal", "ListTargetPortals"},
		Promise: "Port 0 stands for 3260.",
		run: func(t *trial) {
			p := t.portal()
			if p.port != defaultPort {
				t.notApplicable("the portal's port isn't %d", defaultPort)
			}
			t.addPortal(portal{p.address, 0})
			t.want(slices.Contains(t.portals(), p), "%+v isn't among the portals", p)
		},
	},
	{
		Name: "iscsi.discover", Group: "iscsi", Methods: []string{"AddTargetPortal", "DiscoverTargetPortal"},
		Promise: "DiscoverTargetPortal gives the names of the portal's targets.",
		run: func(t *trial) {
			p := t.portal()
			t.addPortal(p)
			iqns := t.do("DiscoverTargetPortal", fields{"portal": p.fields()}).texts("iqns")
			t.want(len(iqns) > 0, "the portal has no targets")
			t.want(t.Target == "" || slices.Contains(iqns, t.Target), "the portal has the targets %q, not %s", iqns, t.Target)
		},
	},
	{
		Name: "iscsi.connect", Group: "iscsi", Methods: []string{"ConnectTarget", "DisconnectTarget", "GetTargetDisks"},
		Promise: "ConnectTarget and DisconnectTarget may be repeated; GetTargetDisks gives the disks of the target, " +
			"which are none while it isn't connected.",
		run: func(t *trial) {
			login := t.login()
			for range 2 {
				t.do("ConnectTarget", login)
				for _, number := range t.targetDisks() {
					_, err := strconv.ParseUint(number, 10, 32)
					t.want(err == nil, "the target has the disk %q", number)
				}
				t.want(len(t.targetDisks()) > 0, "the target has no disks while it is connected")
			}
			for range 2 {
				t.do("DisconnectTarget", t.target())
				t.want(len(t.targetDisks()) == 0, "the target has disks while it isn't connected")
			}
		},
	},
	{
		Name: "iscsi.wrong-secret", Group: "iscsi", Methods: []string{"ConnectTarget"},
		Promise: "A target that wants CHAP isn't connected with a wrong secret.",
		run: func(t *trial) {
			login := t.login()
			if t.CHAPUsername == "" {
				t.notApplicable("it needs a target with CHAP: see --iscsi-chap-username")
			}
			t.refused(codes.Unauthenticated, "ConnectTarget", login.With("chap_secret", csiproxy.NewSecret("not the secret")))
			t.want(len(t.targetDisks()) == 0, "the target has disks after a failed login")
		},
	},
	{
		Name: "iscsi.mutual-secret", Group: "iscsi", Methods: []string{"SetMutualChapSecret", "ConnectTarget"},
		Promise: "SetMutualChapSecret sets the secret with which targets prove themselves to the node.",
		run: func(t *trial) {
			login := t.login()
			if t.CHAPUsername == "" || t.MutualCHAPSecret == (csiproxy.Secret{}) {
				t.notApplicable("it needs a target with mutual CHAP: see --iscsi-mutual-secret-file")
			}
			for range 2 {
				t.do("SetMutualChapSecret", fields{"secret": t.MutualCHAPSecret})
			}
			t.do("ConnectTarget", login.With("auth_type", 2))
			t.want(len(t.targetDisks()) > 0, "the target has no disks while it is connected")
		},
	},
	{
		Name: "iscsi.bad-mutual-secret", Group: "iscsi", Methods: []string{"SetMutualChapSecret"}, Better: true,
		Promise: "A mutual CHAP secret that hasn't 12 to 16 bytes is refused.",
		run: func(t *trial) {
			for _, s := range []string{"", "eleven byte", "seventeen bytes.."} {
				t.refused(codes.InvalidArgument, "SetMutualChapSecret", fields{"secret": csiproxy.NewSecret(s)})
			}
		},
	},
	{
		Name: "iscsi.bad-port", Group: "iscsi", Methods: []string{"GetTargetDisks"}, Better: true,
		Promise: "A port beyond 65535 is refused, in each call.",
		run: func(t *trial) {
			for _, port := range []any{65536, 65536 + defaultPort, uint32(1<<32 - 1)} {
				t.refusedPortal(fields{"portal": fields{"address": "192.0.2.1", "port": port}})
			}
		},
	},
	{
		Name: "iscsi.no-portal", Group: "iscsi", Methods: []string{"GetTargetDisks"}, Better: true, Crashes: true,
		Promise: "A request without target_portal is refused, in each call. It ends the published daemon, with every " +
			"driver's connection.",
		run: func(t *trial) {
			t.refusedPortal(fields{})
			t.portals() // it still answers
		},
	},
}

// refusedPortal calls all methods that take a portal, with one that isn't any.
func (t *trial) refusedPortal(request fields) {
	methods := t.service().Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		if fieldOf(m.Input(), "portal") == nil {
			continue
		}
		r := request
		if fieldOf(m.Input(), "iqn") != nil {
			r = r.With("iqn", unknownTarget)
		}
		t.refused(codes.InvalidArgument, string(m.Name()), r)
	}
}

// portal is an iSCSI portal.
type portal struct {
	address string
	port    int64
}

func (p portal) fields() fields { return fields{"address": p.address, "port": p.port} }

// portals lists the portals that the node knows.
func (t *trial) portals() (all []portal) {
	list := t.do("ListTargetPortals", nil).get("portals").List()
	for i := range list.Len() {
		p := answer{list.Get(i).Message()}
		all = append(all, portal{p.text("address"), p.number("port")})
	}
	return all
}

// portal returns the caller's portal.
func (t *trial) portal() portal {
	if t.Portal == "" {
		t.notApplicable("it needs an iSCSI portal: name one with --iscsi-portal")
	}
	address, port, err := net.SplitHostPort(t.Portal)
	if err != nil {
		return portal{t.Portal, defaultPort} // no port
	}
	number, err := strconv.ParseUint(port, 10, 16)
	t.want(err == nil, "the portal %q has no port: %v", t.Portal, err)
	return portal{address, int64(number)}
}

// addPortal adds a portal. The clean-up removes it unless it was known before the trial.
func (t *trial) addPortal(p portal) {
	known := t.portal()
	if slices.Contains(t.portals(), known) {
		t.later(func() { t.do("AddTargetPortal", fields{"portal": known.fields()}) })
	} else {
		t.later(func() {
			if slices.Contains(t.portals(), known) {
				t.do("RemoveTargetPortal", fields{"portal": known.fields()})
			}
		})
	}
	t.do("AddTargetPortal", fields{"portal": p.fields()})
}

// target is the request for the caller's target.
func (t *trial) target() fields {
	p := t.portal()
	if t.Target == "" {
		t.notApplicable("it needs an iSCSI target: name one with --iscsi-target")
	}
	return fields{"portal": p.fields(), "iqn": t.Target}
}

// login makes the target's portal known until the end of the trial, and returns the
// request to connect the target, which the clean-up disconnects.
func (t *trial) login() fields {
	target := t.target()
	if len(t.targetDisks()) > 0 {
		t.notApplicable("the target is connected already: name one that this node doesn't use")
	}
	t.addPortal(t.portal())
	t.later(func() { t.do("DisconnectTarget", target) })
	return t.loginRequest()
}

// loginRequest is the request that connects the target.
func (t *trial) loginRequest() fields {
	if t.CHAPUsername == "" {
		return t.target()
	}
	return t.target().With("auth_type", 1).With("chap_username", t.CHAPUsername).With("chap_secret", t.CHAPSecret)
}

func (t *trial) targetDisks() []string { return t.do("GetTargetDisks", t.target()).texts("disks") }
