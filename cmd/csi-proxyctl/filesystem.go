// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/client"
)

func (p *program) filesystem() *cobra.Command {
	var force bool
	rm := p.action("rm PATH", "Remove an empty directory, or a link but not its target",
		func(ctx context.Context, c *client.Client, args []string) error {
			return c.Filesystem.Rmdir(ctx, args[0], force)
		})
	rm.Flags().BoolVar(&force, "force", false, "also remove all contents of the directory; a missing path is no error")

	return p.group("fs", "Manage paths in the node's allowed directories",
		p.method("exists PATH", "Show whether a path exists", (*client.Filesystem).PathExists, answer("exists", yesNo)),
		p.method("mkdir PATH", "Make a directory and the missing ones above it", (*client.Filesystem).Mkdir, nil),
		rm,
		p.method("rm-contents PATH", "Remove all contents of a directory", (*client.Filesystem).RmdirContents, nil),
		p.method("link SOURCE TARGET", "Make the symbolic link TARGET, which leads to SOURCE",
			(*client.Filesystem).CreateSymlink, nil),
		p.method("is-link PATH", "Show whether a path is a link or mount point whose target exists",
			(*client.Filesystem).IsSymlink, answer("is_link", yesNo)),
	)
}
