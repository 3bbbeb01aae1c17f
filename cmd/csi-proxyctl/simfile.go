// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"

	"github.com/spf13/cobra"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

func (p *program) simFile() *cobra.Command {
	var text string
	write := p.simLeaf("write PATH", "Write a file", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		_, err := sim.WriteFile(ctx, &simv1.WriteFileRequest{Path: args[0], Data: []byte(text)})
		return done, err
	})
	write.Flags().StringVar(&text, "text", "", "contents of the file")
	require(write, "text")

	var toFile bool
	symlink := p.simLeaf("symlink SOURCE TARGET", "Make the symbolic link TARGET, which leads to SOURCE", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		_, err := sim.CreateSymlink(ctx, &simv1.CreateSymlinkRequest{SourcePath: args[0], TargetPath: args[1], File: toFile})
		return done, err
	})
	symlink.Flags().BoolVar(&toFile, "file", false, "SOURCE is a file: Windows distinguishes links to files and to directories")

	return p.group("file", "Play a pod: use files by their paths on the node",
		write,
		p.simLeaf("read PATH", "Print the contents of a file, unchanged in both output formats", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
			response, err := sim.ReadFile(ctx, &simv1.ReadFileRequest{Path: args[0]})
			return reply{raw: append([]byte{}, response.GetData()...)}, err
		}),
		p.simLeaf("ls PATH", "List a directory", listSimDirectory),
		p.simLeaf("mkdir PATH", "Make a directory and the missing ones above it", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
			_, err := sim.MakeDirectory(ctx, &simv1.MakeDirectoryRequest{Path: args[0]})
			return done, err
		}),
		p.simLeaf("rm PATH", "Delete a file, an empty directory, or a link but not its target", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
			_, err := sim.Remove(ctx, &simv1.RemoveRequest{Path: args[0]})
			return done, err
		}),
		symlink,
		p.simLeaf("readlink PATH", "Show the target of a link or mount point", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
			response, err := sim.ReadLink(ctx, &simv1.ReadLinkRequest{Path: args[0]})
			return line(map[string]string{"target": response.GetTarget()}, response.GetTarget()), err
		}),
	)
}

func listSimDirectory(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
	type entryJSON struct {
		Name      string `json:"name"`
		Directory bool   `json:"directory"`
		Reparse   bool   `json:"reparse"` // a link or mount point
		ReadOnly  bool   `json:"read_only"`
	}
	response, err := sim.ListDirectory(ctx, &simv1.ListDirectoryRequest{Path: args[0]})
	r := reply{header: []string{"NAME", "KIND"}}
	list := []entryJSON{}
	for _, e := range response.GetEntries() {
		list = append(list, entryJSON{e.Name, e.Directory, e.Reparse, e.ReadOnly})
		kind := "file"
		if e.Directory {
			kind = "directory"
		}
		if e.Reparse {
			kind += " link"
		}
		r.rows = append(r.rows, []string{e.Name, kind})
	}
	r.json = list
	return r, err
}
