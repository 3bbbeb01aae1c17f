// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/volume"
)

func (p *program) volume() *cobra.Command {
	// leaf and identified are commands of the volume group. The first argument of
	// identified is a volume.
	leaf := func(use, short string, do func(context.Context, *client.Volume, []string) (reply, error)) *cobra.Command {
		return p.leaf(use, short, on(p, func(c *client.Client) *client.Volume { return c.Volume }, do))
	}
	identified := func(use, short string,
		do func(context.Context, *client.Volume, volume.ID, []string) (reply, error)) *cobra.Command {
		cmd := leaf(use, short, func(ctx context.Context, volumes *client.Volume, args []string) (reply, error) {
			return do(ctx, volumes, volume.ID(args[0]), args[1:])
		})
		cmd.ValidArgsFunction = p.completeVolumes
		return cmd
	}

	var partition uint32
	list := p.leaf("list DISK", "List the volumes of a disk, or without one what is mounted where",
		on(p, whole, func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			if len(args) > 0 {
				return listVolumes(ctx, c.Volume, args[0], partition)
			}
			served, err := storageIsServed(ctx, c)
			if err == nil && !served {
				err = usageError{errors.New("the daemon doesn't serve the storage group, so DISK must be given")}
			}
			if err != nil {
				return reply{}, err
			}
			return listMounts(ctx, c.Storage)
		}))
	list.Use = "list [DISK]"
	list.ValidArgsFunction = p.completeDisks
	list.Flags().Uint32Var(&partition, "partition", 0, "`number` of a partition; 0 for all data partitions")

	var newSize sizeFlag
	resize := identified("resize VOLUME", "Grow a volume",
		func(ctx context.Context, volumes *client.Volume, id volume.ID, _ []string) (reply, error) {
			before, err := volumes.GetVolumeStats(ctx, id)
			if err != nil {
				return reply{}, err
			}
			if err := volumes.ResizeVolume(ctx, id, int64(newSize)); err != nil {
				return reply{}, err
			}
			after, err := volumes.GetVolumeStats(ctx, id)
			text := "not changed: it has " + exactSize(after.SizeBytes)
			if after.SizeBytes > before.SizeBytes {
				text = "grown to " + exactSize(after.SizeBytes)
			} else if int64(newSize) > 0 && int64(newSize) < after.SizeBytes {
				text += ", and a volume isn't made smaller"
			}
			return line(after, text), err
		})
	resize.Flags().Var(&newSize, "size", "new `size`; 0 for as large as the disk allows")

	var closest bool
	at := leaf("at PATH", "Show the volume that is mounted at a path",
		func(ctx context.Context, volumes *client.Volume, args []string) (reply, error) {
			find := volumes.GetVolumeIDFromTargetPath
			if closest {
				find = volumes.GetClosestVolumeIDFromTargetPath
			}
			id, err := find(ctx, args[0])
			return line(map[string]volume.ID{"volume_id": id}, string(id)), err
		})
	at.Flags().BoolVar(&closest, "closest", false, "if no volume is mounted there, show the volume that the path lies on")

	return p.group("volume", `Work on volumes, identified by \\?\Volume{guid}\`,
		list,
		identified("mount VOLUME PATH", "Mount a volume at a directory",
			func(ctx context.Context, volumes *client.Volume, id volume.ID, args []string) (reply, error) {
				return done, volumes.MountVolume(ctx, id, args[0])
			}),
		identified("unmount VOLUME PATH", "Unmount a volume from a directory",
			func(ctx context.Context, volumes *client.Volume, id volume.ID, args []string) (reply, error) {
				return done, volumes.UnmountVolume(ctx, id, args[0])
			}),
		identified("formatted VOLUME", "Show whether a volume has a file system",
			func(ctx context.Context, volumes *client.Volume, id volume.ID, _ []string) (reply, error) {
				formatted, err := volumes.IsVolumeFormatted(ctx, id)
				return line(map[string]bool{"formatted": formatted}, yesNo(formatted)), err
			}),
		identified("format VOLUME", "Make an NTFS file system on a volume that has none",
			func(ctx context.Context, volumes *client.Volume, id volume.ID, _ []string) (reply, error) {
				return done, volumes.FormatVolume(ctx, id)
			}),
		resize,
		identified("stats VOLUME", "Show the size and use of a volume", showVolumeStats),
		identified("disk VOLUME", "Show the disk that a volume lies on",
			func(ctx context.Context, volumes *client.Volume, id volume.ID, _ []string) (reply, error) {
				n, err := volumes.GetDiskNumberFromVolumeID(ctx, id)
				return line(map[string]disk.Number{"disk_number": n}, n.String()), err
			}),
		at,
		identified("flush VOLUME", "Write a volume's cache to its disk",
			func(ctx context.Context, volumes *client.Volume, id volume.ID, _ []string) (reply, error) {
				return done, volumes.WriteVolumeCache(ctx, id)
			}),
	)
}

func listVolumes(ctx context.Context, volumes *client.Volume, diskArg string, partition uint32) (reply, error) {
	n, err := parseDisk(diskArg)
	if err != nil {
		return reply{}, err
	}
	ids, err := volumes.ListVolumesOnDisk(ctx, n, partition)
	r := reply{header: []string{"VOLUME"}}
	all := []map[string]volume.ID{}
	for _, id := range ids {
		all = append(all, map[string]volume.ID{"id": id})
		r.rows = append(r.rows, []string{string(id)})
	}
	r.json = all
	return r, err
}

func showVolumeStats(ctx context.Context, volumes *client.Volume, id volume.ID, _ []string) (reply, error) {
	stats, err := volumes.GetVolumeStats(ctx, id)
	return reply{
		json:   stats,
		header: []string{"SIZE", "USED", "FREE"},
		rows:   [][]string{{size(stats.SizeBytes), size(stats.UsedBytes), size(stats.SizeBytes - stats.UsedBytes)}},
	}, err
}
