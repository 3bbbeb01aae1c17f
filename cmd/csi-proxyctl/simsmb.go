// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/secret"
)

func (p *program) simSMB() *cobra.Command {
	return p.group("smb", `Control SMB servers, whose files have the paths \\SERVER\SHARE\…`,
		p.simLeaf("list", "List the servers with their shares and users", listSimSMBServers),
		p.group("share", "Add, grow and remove shares",
			p.simSMBShareAdd(),
			p.simSMBShareGrow(),
			p.simLeaf("remove SERVER SHARE", "Remove a share with its files", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
				_, err := sim.RemoveSmbShare(ctx, &simv1.RemoveSmbShareRequest{Server: args[0], Name: args[1]})
				return done, err
			}),
		),
		p.group("user", "Set and remove users, who have one password for all shares of a server",
			p.simSMBUserSet(),
			p.simLeaf("remove SERVER USER", "Remove a user", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
				_, err := sim.RemoveSmbUser(ctx, &simv1.RemoveSmbUserRequest{Server: args[0], User: args[1]})
				return done, err
			}),
		),
		p.group("server", "Make servers unreachable and reachable again", p.simSMBServerSet()),
	)
}

func (p *program) simSMBShareAdd() *cobra.Command {
	var users []string
	var shareSize sizeFlag
	cmd := p.simLeaf("add SERVER SHARE", "Add an empty share, and its server if there is none", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		share := &simv1.SmbShare{Server: args[0], Name: args[1], Users: users, SizeBytes: int64(shareSize)}
		_, err := sim.AddSmbShare(ctx, &simv1.AddSmbShareRequest{Share: share})
		return done, err
	})
	cmd.Flags().StringSliceVar(&users, "user", nil, "only this `user` may connect; may be given several times")
	cmd.Flags().Var(&shareSize, "size", "`size` of the share; 0 for 1 TiB")
	return cmd
}

func (p *program) simSMBShareGrow() *cobra.Command {
	var newSize sizeFlag
	cmd := p.simLeaf("grow SERVER SHARE", "Make a share larger", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		_, err := sim.GrowSmbShare(ctx, &simv1.GrowSmbShareRequest{Server: args[0], Name: args[1], SizeBytes: int64(newSize)})
		return done, err
	})
	cmd.Flags().Var(&newSize, "size", "new `size`")
	require(cmd, "size")
	return cmd
}

func (p *program) simSMBUserSet() *cobra.Command {
	var password func() (secret.Text, error)
	cmd := p.simLeaf("set SERVER USER", "Add a user, or change the user's password", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		text, err := password()
		if err != nil {
			return reply{}, err
		}
		_, err = sim.SetSmbUser(ctx, &simv1.SetSmbUserRequest{Server: args[0], User: args[1], Password: text.Reveal()})
		return done, err
	})
	cmd.Long = `Add a user to a server, or change the user's password. Mappings with the old password fail at
their next use. USER must be the name that mappings use, with or without a domain.

` + secretHelp
	password = secretFlag(cmd, "password-file", "the user's password")
	require(cmd, "password-file")
	completeFiles(cmd, "password-file")
	return cmd
}

func (p *program) simSMBServerSet() *cobra.Command {
	request := &simv1.SetSmbServerRequest{}
	cmd := p.simLeaf("set SERVER", "Set the state of a server; without flags, it works", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		request.Server = args[0]
		_, err := sim.SetSmbServer(ctx, request)
		return done, err
	})
	cmd.Flags().BoolVar(&request.Unreachable, "unreachable", false, "the server doesn't answer")
	cmd.Flags().BoolVar(&request.NoEncryption, "no-encryption", false, "the server can't encrypt connections")
	return cmd
}

func listSimSMBServers(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	type shareJSON struct {
		Name      string   `json:"name"`
		Users     []string `json:"users"` // empty: all users of the server
		SizeBytes int64    `json:"size_bytes"`
	}
	type serverJSON struct {
		Name       string      `json:"name"`
		Reachable  bool        `json:"reachable"`
		CanEncrypt bool        `json:"can_encrypt"`
		Shares     []shareJSON `json:"shares"`
		Users      []string    `json:"users"`
	}
	response, err := sim.ListSmbServers(ctx, &simv1.ListSmbServersRequest{})
	r := reply{header: []string{"SERVER", "REACHABLE", "CAN ENCRYPT", "SHARES", "USERS"}}
	list := []serverJSON{}
	for _, sv := range response.GetServers() {
		server := serverJSON{sv.Name, !sv.Unreachable, !sv.NoEncryption, []shareJSON{}, append([]string{}, sv.Users...)}
		var shares []string
		for _, sh := range sv.Shares {
			server.Shares = append(server.Shares, shareJSON{sh.Name, append([]string{}, sh.Users...), sh.SizeBytes})
			text := sh.Name
			if len(sh.Users) > 0 {
				text += " (" + strings.Join(sh.Users, ", ") + ")"
			}
			shares = append(shares, text)
		}
		list = append(list, server)
		r.rows = append(r.rows, []string{sv.Name, yesNo(!sv.Unreachable), yesNo(!sv.NoEncryption), strings.Join(shares, ", "), strings.Join(sv.Users, ", ")})
	}
	r.json = list
	return r, err
}
