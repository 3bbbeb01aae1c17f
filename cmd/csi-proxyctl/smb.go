// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
)

// secretHelp goes into the help of commands that need a secret.
const secretHelp = `A secret is read from a file, or from standard input if the file is "-". A line break at its end
doesn't count. There is no flag for the secret itself: other users of the machine can see a
command's flags, and shells record them.`

func (p *program) smb() *cobra.Command {
	var credentials func() (csiproxy.SMBCredentials, error)
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
			if errors.Is(err, csiproxy.ErrUnauthenticated) {
				err = fmt.Errorf("user %s: %w", as.Username, err)
			}
			return line(nil, "the share is mapped. If it was mapped before and works, it keeps the user and password of then: "+
				"remove the links to it and call csi-proxyctl smb unmap first, to change them"), err
		})
	mapShare.Long = `Map a share for the whole node, and make LOCAL a directory link to it. REMOTE is
\\server\share or a directory on the share. A mapping that works is kept with the credentials
that it has. To give it others, remove the links to it, then run csi-proxyctl smb unmap.

` + secretHelp
	mapShare.Example = `  csi-proxyctl smb map '\\files\data' --username USER --password-file -`
	credentials = credentialFlags(mapShare)

	return p.group("smb", `Manage the node's mappings of SMB shares, by \\server\share`,
		p.method("list", "List the shares that are mapped or staged", (*client.Storage).ListVolumes,
			func(list csiproxy.VolumeList) reply {
				list.Mounts = slices.DeleteFunc(list.Mounts,
					func(m csiproxy.Mount) bool {
						return m.Kind != csiproxy.MountKindShare && m.Kind != csiproxy.MountKindMapping
					})
				return showMounts(list)
			}),
		mapShare,
		p.call("unmap NAME", "Remove a mapping by its remote path or drive letter, or let it go with the last link to its share",
			func(ctx context.Context, c *client.Client, args []string) (reply, error) {
				return line(nil, "the mapping is removed, or goes with the last link to the share"),
					c.SMB.RemoveSMBGlobalMapping(ctx, args[0])
			}),
	)
}

// credentialFlags adds the flags for the user of a share to cmd, and returns a function that reads
// them.
func credentialFlags(cmd *cobra.Command) func() (csiproxy.SMBCredentials, error) {
	username := cmd.Flags().String("username", "",
		"`name` of the user on the server; may be DOMAIN\\name or name@domain. Without it and --password-file, "+
			"the share is mapped with the node's own account")
	password := secretFlag(cmd, "password-file", "the user's password")
	cmd.MarkFlagsRequiredTogether("username", "password-file")
	return func() (csiproxy.SMBCredentials, error) {
		if *username == "" && !cmd.Flags().Changed("password-file") {
			return csiproxy.SMBCredentials{}, nil
		}
		text, err := password()
		return csiproxy.SMBCredentials{Username: *username, Password: text}, err
	}
}
