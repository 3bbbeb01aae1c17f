// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/client"
)

func (p *program) filesystem() *cobra.Command {
	leaf := func(use, short string, do func(context.Context, *client.Filesystem, []string) (reply, error)) *cobra.Command {
		return p.leaf(use, short, on(p, func(c *client.Client) *client.Filesystem { return c.Filesystem }, do))
	}

	var force bool
	rm := leaf("rm PATH", "Remove an empty directory, or a link but not its target",
		func(ctx context.Context, files *client.Filesystem, args []string) (reply, error) {
			return done, files.Rmdir(ctx, args[0], force)
		})
	rm.Flags().BoolVar(&force, "force", false, "also remove all contents of the directory; a missing path is no error")

	return p.group("fs", "Work on paths in the allowed directories of the node",
		leaf("exists PATH", "Show whether a path exists",
			func(ctx context.Context, files *client.Filesystem, args []string) (reply, error) {
				exists, err := files.PathExists(ctx, args[0])
				return line(map[string]bool{"exists": exists}, yesNo(exists)), err
			}),
		leaf("mkdir PATH", "Make a directory and the missing ones above it",
			func(ctx context.Context, files *client.Filesystem, args []string) (reply, error) {
				return done, files.Mkdir(ctx, args[0])
			}),
		rm,
		leaf("rm-contents PATH", "Remove all contents of a directory",
			func(ctx context.Context, files *client.Filesystem, args []string) (reply, error) {
				return done, files.RmdirContents(ctx, args[0])
			}),
		leaf("link SOURCE TARGET", "Make the symbolic link TARGET, which leads to SOURCE",
			func(ctx context.Context, files *client.Filesystem, args []string) (reply, error) {
				return done, files.CreateSymlink(ctx, args[0], args[1])
			}),
		leaf("is-link PATH", "Show whether a path is a link or mount point whose target exists",
			func(ctx context.Context, files *client.Filesystem, args []string) (reply, error) {
				isLink, err := files.IsSymlink(ctx, args[0])
				return line(map[string]bool{"is_link": isLink}, yesNo(isLink)), err
			}),
	)
}
