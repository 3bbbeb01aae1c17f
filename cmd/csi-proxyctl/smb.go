// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
)

// secretHelp goes into the help of commands that need a secret.
const secretHelp = `A secret is read from a file, or from standard input if the file is "-". The line break at its
end isn't part of it. A secret is never an argument, since all users of a machine can see the
arguments of its processes, and shells record them.`

func (p *program) smb() *cobra.Command {
	var credentials func() (smb.Credentials, error)
	mapShare := p.call("map REMOTE [LOCAL]", "Map a share for the whole node",
		func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			as, err := credentials()
			if err != nil {
				return reply{}, err
			}
			local := ""
			if len(args) > 1 {
				local = args[1]
			}
			err = c.SMB.NewSMBGlobalMapping(ctx, args[0], local, as)
			return line(nil, "the share is mapped. If it was mapped before and works, it keeps the user and password of then: "+
				"csi-proxyctl smb unmap first, to change them"), err
		})
	mapShare.Long = `Map a share for the whole node, and make LOCAL a directory link to it. REMOTE is
\\server\share or a directory on the share. A mapping that works is kept with the credentials
that it has; to give it others, remove it first with csi-proxyctl smb unmap.

` + secretHelp
	mapShare.Example = `  csi-proxyctl smb map '\\server\share' 'C:\var\lib\kubelet\plugins\share' --username USER --password-file -`
	credentials = credentialFlags(mapShare)

	forget := p.call("forget", "Forget refused log-ons, so that the next ones are made at once",
		func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
			refused, err := c.Storage.ListRefusedLogOns(ctx, true)
			return refusedLogOns(refused), err
		})
	forget.Long = `Forget which log-ons to SMB servers were refused, and list them. The same user and password
are tried again only after a while, at most two minutes, so that the account isn't locked by the
retries of pods. After the account was mended at the server, this command has the next log-on made
at once.`

	return p.group("smb", `Work on the node's mappings of SMB shares, identified by \\server\share`,
		mapShare,
		forget,
		p.method("unmap REMOTE", "Remove the mapping of a share, or let it go with the last of several links to the share",
			(*client.SMB).RemoveSMBGlobalMapping, nil),
	)
}

// credentialFlags adds the flags for the user of a share to cmd, and returns a function that reads
// them.
func credentialFlags(cmd *cobra.Command) func() (smb.Credentials, error) {
	username := cmd.Flags().String("username", "",
		"`name` of the user on the server; may be DOMAIN\\name or name@domain")
	password := secretFlag(cmd, "password-file", "the user's password")
	require(cmd, "username")
	require(cmd, "password-file")
	return func() (smb.Credentials, error) {
		text, err := password()
		return smb.Credentials{Username: *username, Password: text}, err
	}
}

func refusedLogOns(all []storage.RefusedLogOn) reply {
	r := reply{json: list(all), header: []string{"SHARE", "WINDOWS ERROR", "REFUSED FOR", "WAS HELD BACK FOR"}}
	for _, one := range all {
		r.rows = append(r.rows, []string{
			one.RemotePath, fmt.Sprint(one.WindowsError), one.RefusedFor.Round(time.Second).String(),
			one.HeldBackFor.Round(time.Second).String(),
		})
	}
	return r
}
