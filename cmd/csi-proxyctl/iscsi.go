// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
)

func (p *program) iscsi() *cobra.Command {
	var login *loginFlags
	connect := p.action("connect PORTAL IQN", "Log in to a target",
		func(ctx context.Context, c *client.Client, args []string) error {
			portal, err := parsePortal(args[0])
			if err != nil {
				return err
			}
			authentication, err := login.authentication()
			if err != nil {
				return err
			}
			return c.ISCSI.ConnectTarget(ctx, portal, csiproxy.IQN(args[1]), authentication)
		})
	connect.Long = `Log in to a target of a known portal. See iscsi portal add.

` + secretHelp
	login = newLoginFlags(connect)

	var mutualSecret func() (csiproxy.Secret, error)
	mutual := p.action("mutual-chap-secret", "Set the secret with which targets prove their identity",
		func(ctx context.Context, c *client.Client, _ []string) error {
			s, err := mutualSecret()
			if err != nil {
				return err
			}
			return c.ISCSI.SetMutualCHAPSecret(ctx, s)
		})
	mutual.Long = `Set the secret, of 12 to 16 bytes, with which targets prove their identity to this node when
it logs in with --mutual-chap. The node has only one such secret.

` + secretHelp
	mutualSecret = secretFlag(mutual, "secret-file", "the secret")
	require(mutual, "secret-file")

	group := p.group("iscsi", "Manage the node's iSCSI initiator",
		p.group("portal", "Manage the portals that the initiator knows",
			p.method("add PORTAL", "Make a portal known", (*client.ISCSI).AddTargetPortal, nil),
			p.method("list", "List the known portals", (*client.ISCSI).ListTargetPortals, showPortals),
			p.method("remove PORTAL", "Forget a portal", (*client.ISCSI).RemoveTargetPortal, nil),
			p.method("discover PORTAL", "Ask a known portal for its targets", (*client.ISCSI).DiscoverTargetPortal,
				func(targets []csiproxy.IQN) reply { return column("TARGET", "iqn", targets) }),
		),
		connect,
		p.method("disconnect PORTAL IQN", "Log out of a target", (*client.ISCSI).DisconnectTarget, nil),
		p.method("disks PORTAL IQN", "List the disks that a target provides", (*client.ISCSI).GetTargetDisks,
			func(disks []csiproxy.DiskNumber) reply { return column("DISK", "number", disks) }),
		mutual,
	)
	group.Long = fmt.Sprintf(`Manage the node's iSCSI initiator. A PORTAL is ADDRESS or ADDRESS:PORT, where %d is the
usual port; an IPv6 address with a port is in brackets. An IQN is the name of a target. The
initiator's service, MSiSCSI, is started if it doesn't run.`, csiproxy.DefaultISCSIPort)
	return group
}

// parsePortal reads a portal in the form that the help describes. The daemon checks
// the address.
func parsePortal(s string) (csiproxy.ISCSIPortal, error) {
	_, err := netip.ParseAddr(s)
	if err == nil || !strings.Contains(s, ":") {
		return csiproxy.ISCSIPortal{Address: s, Port: csiproxy.DefaultISCSIPort}, nil
	}
	withPort := s
	if strings.HasSuffix(s, "]") {
		withPort += fmt.Sprintf(":%d", csiproxy.DefaultISCSIPort)
	}
	address, portText, err := net.SplitHostPort(withPort)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil || port == 0 {
		return csiproxy.ISCSIPortal{}, &csiproxy.Error{
			Object: "portal " + strconv.Quote(s), Kind: csiproxy.ErrInvalidArgument, Detail: "must be ADDRESS or ADDRESS:PORT",
		}
	}
	return csiproxy.ISCSIPortal{Address: address, Port: uint16(port)}, nil
}

// loginFlags say how to log in to a target.
type loginFlags struct {
	cmd        *cobra.Command
	username   *string // nil for no CHAP
	secret     func() (csiproxy.Secret, error)
	mutualCHAP bool
}

func newLoginFlags(cmd *cobra.Command) *loginFlags {
	l := &loginFlags{cmd: cmd, secret: secretFlag(cmd, "chap-secret-file",
		"the secret of the CHAP user, of 12 to 16 bytes")}
	cmd.Flags().Func("chap-username", "log in with CHAP and this `name`", func(name string) error {
		l.username = &name
		return nil
	})
	cmd.Flags().BoolVar(&l.mutualCHAP, "mutual-chap", false,
		"the target must prove its identity too; see iscsi mutual-chap-secret")
	cmd.MarkFlagsRequiredTogether("chap-username", "chap-secret-file")
	return l
}

// authentication returns the meaning of the flags.
func (l *loginFlags) authentication() (csiproxy.ISCSIAuthentication, error) {
	switch {
	case l.username != nil: // even an empty name, which mustn't become a login without CHAP
		s, err := l.secret()
		a := csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIOneWayCHAP, Username: *l.username, Secret: s}
		if l.mutualCHAP {
			a.Type = csiproxy.ISCSIMutualCHAP
		}
		return a, err
	case l.mutualCHAP:
		return csiproxy.ISCSIAuthentication{}, usageError{errors.New("--mutual-chap needs --chap-username")}
	}
	return csiproxy.ISCSIAuthentication{}, nil
}

func showPortals(portals []csiproxy.ISCSIPortal) reply {
	r := reply{json: list(portals), header: []string{"ADDRESS", "PORT"}}
	for _, portal := range portals {
		r.rows = append(r.rows, []string{portal.Address, strconv.Itoa(int(portal.Port))})
	}
	return r
}
