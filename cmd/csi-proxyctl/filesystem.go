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

	return p.group("fs", "Work on paths in the allowed directories of the node",
		p.call("exists PATH", "Show whether a path exists",
			func(ctx context.Context, c *client.Client, args []string) (reply, error) {
				exists, err := c.Filesystem.PathExists(ctx, args[0])
				return line(map[string]bool{"exists": exists}, yesNo(exists)), err
			}),
		p.action("mkdir PATH", "Make a directory and the missing ones above it",
			func(ctx context.Context, c *client.Client, args []string) error {
				return c.Filesystem.Mkdir(ctx, args[0])
			}),
		rm,
		p.action("rm-contents PATH", "Remove all contents of a directory",
			func(ctx context.Context, c *client.Client, args []string) error {
				return c.Filesystem.RmdirContents(ctx, args[0])
			}),
		p.action("link SOURCE TARGET", "Make the symbolic link TARGET, which leads to SOURCE",
			func(ctx context.Context, c *client.Client, args []string) error {
				return c.Filesystem.CreateSymlink(ctx, args[0], args[1])
			}),
		p.call("is-link PATH", "Show whether a path is a link or mount point whose target exists",
			func(ctx context.Context, c *client.Client, args []string) (reply, error) {
				isLink, err := c.Filesystem.IsSymlink(ctx, args[0])
				return line(map[string]bool{"is_link": isLink}, yesNo(isLink)), err
			}),
	)
}
