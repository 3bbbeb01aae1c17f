// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/published"
)

func (p *program) disk() *cobra.Command {
	setState := func(online bool) func(*client.Disk, context.Context, csiproxy.DiskNumber) error {
		return func(disks *client.Disk, ctx context.Context, n csiproxy.DiskNumber) error {
			return disks.SetDiskState(ctx, n, online)
		}
	}
	return p.group("disk", "Manage disks by their Windows disk numbers",
		p.call("list", "List all disks with their properties, and where they are mounted",
			func(ctx context.Context, c *client.Client, _ []string) (reply, error) {
				served, err := storageIsServed(ctx, c)
				switch {
				case err != nil:
					return reply{}, err
				case served:
					return describeDisks(ctx, c.Storage, csiproxy.Selector{})
				}
				return listDisks(ctx, c.Disk)
			}),
		p.watchDisks(),
		p.method("ids", "List the identities of all disks", (*client.Disk).ListDiskIDs, showDiskIDs),
		p.method("locations", "List where the disks are attached", (*client.Disk).ListDiskLocations, showDiskLocations),
		p.method("partition DISK", "Make sure that a disk has a data partition", (*client.Disk).PartitionDisk, nil),
		p.method("rescan", "Make Windows look for new, removed and grown disks", (*client.Disk).Rescan, nil),
		p.method("stats DISK", "Show the size of a disk", (*client.Disk).GetDiskStats,
			func(stats published.DiskStats) reply { return line(stats, exactSize(stats.SizeBytes)) }),
		p.method("online DISK", "Take a disk online", setState(true), nil),
		p.method("offline DISK", "Take a disk offline", setState(false), nil),
		p.method("state DISK", "Show whether a disk is online", (*client.Disk).GetDiskState,
			answer("online", onlineOffline)),
	)
}

// diskJSON is a disk in the output of disk list, where the daemon doesn't serve the storage
// group. What isn't known is null.
type diskJSON struct {
	Number    csiproxy.DiskNumber     `json:"number"`
	SizeBytes *int64                  `json:"size_bytes"`
	Online    *bool                   `json:"online"`
	Location  *published.DiskLocation `json:"location"`
	published.DiskIDs
}

// listDisks merges what the calls of the group return about disks. If a disk, or the
// version in use, can't answer one of them, its part is left out and the others are
// shown.
func listDisks(ctx context.Context, disks *client.Disk) (reply, error) {
	ids, err := disks.ListDiskIDs(ctx)
	if err != nil && !isMissing(err) {
		return reply{}, err
	}
	locations, err := disks.ListDiskLocations(ctx)
	if err != nil {
		return reply{}, err
	}
	all := make(map[csiproxy.DiskNumber]bool)
	for n := range ids {
		all[n] = true
	}
	for n := range locations {
		all[n] = true
	}

	r := reply{header: []string{"DISK", "SIZE", "STATE", "ADAPTER", "BUS", "TARGET", "LUN", "SERIAL NUMBER", "PAGE 83"}}
	list := []diskJSON{}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		described := diskJSON{Number: n, DiskIDs: ids[n]}
		sizeText, state := unknown, unknown
		if stats, err := disks.GetDiskStats(ctx, n); err == nil {
			described.SizeBytes, sizeText = &stats.SizeBytes, size(stats.SizeBytes)
		} else if err := r.tolerate(err); err != nil {
			return reply{}, err
		}
		if online, err := disks.GetDiskState(ctx, n); err == nil {
			described.Online, state = &online, onlineOffline(online)
		} else if err := r.tolerate(err); err != nil {
			return reply{}, err
		}
		l, located := locations[n]
		if located {
			described.Location = &l
		}
		list = append(list, described)
		r.rows = append(r.rows, []string{n.String(), sizeText, state, l.Adapter, l.Bus, l.Target, l.LUNID, described.SerialNumber,
			described.Page83})
	}
	r.json = list
	return r, nil
}

// isMissing reports whether the version in use doesn't have an operation.
func isMissing(err error) bool { return errors.Is(err, csiproxy.ErrUnimplemented) }

// tolerate turns an error that is about one disk into a warning. It returns an error
// that is about all disks.
func (r *reply) tolerate(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	if !isMissing(err) {
		r.warnings = append(r.warnings, err.Error())
	}
	return nil
}

func showDiskIDs(all map[csiproxy.DiskNumber]published.DiskIDs) reply {
	type numbered struct {
		Number csiproxy.DiskNumber `json:"number"`
		published.DiskIDs
	}
	r := reply{header: []string{"DISK", "SERIAL NUMBER", "PAGE 83"}}
	list := []numbered{}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		list = append(list, numbered{n, all[n]})
		r.rows = append(r.rows, []string{n.String(), all[n].SerialNumber, all[n].Page83})
	}
	r.json = list
	return r
}

func showDiskLocations(all map[csiproxy.DiskNumber]published.DiskLocation) reply {
	type numbered struct {
		Number csiproxy.DiskNumber `json:"number"`
		published.DiskLocation
	}
	r := reply{header: []string{"DISK", "ADAPTER", "BUS", "TARGET", "LUN"}}
	list := []numbered{}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		l := all[n]
		list = append(list, numbered{n, l})
		r.rows = append(r.rows, []string{n.String(), l.Adapter, l.Bus, l.Target, l.LUNID})
	}
	r.json = list
	return r
}

// parseDisk reads a disk number from the command line.
func parseDisk(arg string) (csiproxy.DiskNumber, error) {
	n, err := csiproxy.ParseDiskNumber(arg)
	if err != nil {
		return 0, &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Err: err}
	}
	return n, nil
}
