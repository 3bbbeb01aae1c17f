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
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
)

func (p *program) iscsi() *cobra.Command {
	// The argument of commands of atPortal is a portal; those of atTarget are a portal and a target.
	atPortal := func(name, short string,
		do func(context.Context, *client.ISCSI, iscsi.Portal) (reply, error)) *cobra.Command {
		return p.call(name+" PORTAL", short, func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			portal, err := parsePortal(args[0])
			if err != nil {
				return reply{}, err
			}
			return do(ctx, c.ISCSI, portal)
		})
	}
	atTarget := func(name, short string,
		do func(context.Context, *client.ISCSI, iscsi.Portal, iscsi.IQN) (reply, error)) *cobra.Command {
		return p.call(name+" PORTAL IQN", short,
			func(ctx context.Context, c *client.Client, args []string) (reply, error) {
				portal, err := parsePortal(args[0])
				if err != nil {
					return reply{}, err
				}
				return do(ctx, c.ISCSI, portal, iscsi.IQN(args[1]))
			})
	}

	var login *loginFlags
	connect := atTarget("connect", "Log in to a target",
		func(ctx context.Context, initiator *client.ISCSI, portal iscsi.Portal, iqn iscsi.IQN) (reply, error) {
			authentication, err := login.authentication()
			if err != nil {
				return reply{}, err
			}
			return done, initiator.ConnectTarget(ctx, portal, iqn, authentication)
		})
	connect.Long = `Log in to a target of a known portal. See iscsi portal add.

` + secretHelp
	login = newLoginFlags(connect)

	var mutualSecret func() (secret.Text, error)
	mutual := p.call("mutual-chap-secret", "Set the secret with which targets prove their identity",
		func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
			s, err := mutualSecret()
			if err != nil {
				return reply{}, err
			}
			return done, c.ISCSI.SetMutualCHAPSecret(ctx, s)
		})
	mutual.Long = `Set the secret, of 12 to 16 bytes, with which targets prove their identity to this node when
it logs in with --mutual-chap. The node has only one such secret.

` + secretHelp
	mutualSecret = secretFlag(mutual, "secret-file", "the secret")
	require(mutual, "secret-file")

	group := p.group("iscsi", "Work on the node's iSCSI initiator",
		p.group("portal", "Work on the portals that the initiator knows",
			atPortal("add", "Make a portal known",
				func(ctx context.Context, initiator *client.ISCSI, portal iscsi.Portal) (reply, error) {
					return done, initiator.AddTargetPortal(ctx, portal)
				}),
			p.call("list", "List the known portals", listPortals),
			atPortal("remove", "Forget a portal",
				func(ctx context.Context, initiator *client.ISCSI, portal iscsi.Portal) (reply, error) {
					return done, initiator.RemoveTargetPortal(ctx, portal)
				}),
			atPortal("discover", "Ask a known portal for its targets",
				func(ctx context.Context, initiator *client.ISCSI, portal iscsi.Portal) (reply, error) {
					targets, err := initiator.DiscoverTargetPortal(ctx, portal)
					return column("TARGET", "iqn", targets), err
				}),
		),
		connect,
		atTarget("disconnect", "Log out of a target",
			func(ctx context.Context, initiator *client.ISCSI, portal iscsi.Portal, iqn iscsi.IQN) (reply, error) {
				return done, initiator.DisconnectTarget(ctx, portal, iqn)
			}),
		atTarget("disks", "List the disks that a target provides",
			func(ctx context.Context, initiator *client.ISCSI, portal iscsi.Portal, iqn iscsi.IQN) (reply, error) {
				disks, err := initiator.GetTargetDisks(ctx, portal, iqn)
				return column("DISK", "number", disks), err
			}),
		mutual,
	)
	group.Long = fmt.Sprintf(`Work on the node's iSCSI initiator. A PORTAL is ADDRESS or ADDRESS:PORT, where %d is the
usual port; an IPv6 address with a port is in brackets. An IQN is the name of a target. The
initiator's service, MSiSCSI, is started if it doesn't run.`, iscsi.DefaultPort)
	return group
}

// parsePortal reads a portal in the form that the help describes. The daemon checks
// the address.
func parsePortal(s string) (iscsi.Portal, error) {
	_, err := netip.ParseAddr(s)
	if err == nil || !strings.Contains(s, ":") {
		return iscsi.Portal{Address: s, Port: iscsi.DefaultPort}, nil
	}
	withPort := s
	if strings.HasSuffix(s, "]") {
		withPort += fmt.Sprintf(":%d", iscsi.DefaultPort)
	}
	address, portText, err := net.SplitHostPort(withPort)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil || port == 0 {
		return iscsi.Portal{}, &csiproxy.Error{
			Object: "portal " + strconv.Quote(s), Kind: csiproxy.ErrInvalidArgument, Detail: "must be ADDRESS or ADDRESS:PORT",
		}
	}
	return iscsi.Portal{Address: address, Port: uint16(port)}, nil
}

// loginFlags say how to log in to a target.
type loginFlags struct {
	cmd        *cobra.Command
	username   *string // nil for no CHAP
	secret     func() (secret.Text, error)
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
func (l *loginFlags) authentication() (iscsi.Authentication, error) {
	switch {
	case l.username != nil: // even an empty name, which mustn't become a login without CHAP
		s, err := l.secret()
		a := iscsi.Authentication{Type: iscsi.OneWayCHAP, Username: *l.username, Secret: s}
		if l.mutualCHAP {
			a.Type = iscsi.MutualCHAP
		}
		return a, err
	case l.mutualCHAP:
		return iscsi.Authentication{}, usageError{errors.New("--mutual-chap needs --chap-username")}
	}
	return iscsi.Authentication{}, nil
}

func listPortals(ctx context.Context, c *client.Client, _ []string) (reply, error) {
	portals, err := c.ISCSI.ListTargetPortals(ctx)
	r := reply{json: list(portals), header: []string{"ADDRESS", "PORT"}}
	for _, portal := range portals {
		r.rows = append(r.rows, []string{portal.Address, strconv.Itoa(int(portal.Port))})
	}
	return r, err
}
