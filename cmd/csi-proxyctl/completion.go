// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// completionTimeout limits the wait after the tab key is pressed.
const completionTimeout = 3 * time.Second

// require makes a flag mandatory, and says so in its help.
func require(cmd *cobra.Command, flag string) {
	if err := cmd.MarkFlagRequired(flag); err != nil {
		panic(err) // there is no such flag: a mistake of this program
	}
	cmd.Flag(flag).Usage += " (required)"
}

// complete sets how a flag's value is completed.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // there is no such flag: a mistake of this program
	}
}

// completeFiles completes a flag's value with file names.
func completeFiles(cmd *cobra.Command, flag string) {
	complete(cmd, flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	})
}

// completions are what list finds in time.
func completions(cmd *cobra.Command,
	list func(ctx context.Context) ([]cobra.Completion, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	found, err := list(ctx)
	if err != nil {
		cobra.CompErrorln(err.Error()) // only for debugging: the shell doesn't show it
		return nil, cobra.ShellCompDirectiveError
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeDisks offers the disk numbers for the first argument.
func (p *program) completeDisks(cmd *cobra.Command, args []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return completions(cmd, func(ctx context.Context) (found []cobra.Completion, err error) {
		c := p.client(ctx)
		defer func() { err = errors.Join(err, c.Close()) }()
		ids, err := c.Disk.ListDiskIDs(ctx)
		for _, n := range slices.Sorted(maps.Keys(ids)) {
			found = append(found, cobra.CompletionWithDesc(n.String(), quote.Terminal(ids[n].SerialNumber)))
		}
		return found, err
	})
}

// completeVolumes offers the ids of all data volumes for the first argument.
func (p *program) completeVolumes(cmd *cobra.Command, args []string,
	_ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completions(cmd, func(ctx context.Context) (found []cobra.Completion, err error) {
		c := p.client(ctx)
		defer func() { err = errors.Join(err, c.Close()) }()
		all, err := c.Disk.ListDiskIDs(ctx)
		if err != nil {
			return nil, err
		}
		for _, n := range slices.Sorted(maps.Keys(all)) {
			ids, err := c.Volume.ListVolumesOnDisk(ctx, n, 0)
			if err != nil {
				continue // the disk has none, or is gone
			}
			for _, id := range ids {
				found = append(found, cobra.CompletionWithDesc(string(id), "disk "+n.String()))
			}
		}
		return found, nil
	})
}
