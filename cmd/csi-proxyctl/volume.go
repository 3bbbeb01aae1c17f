// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/published"
)

func (p *program) volume() *cobra.Command {
	var partition uint32
	list := p.call("list [DISK]", "List the volumes of a disk, or without one what is mounted where",
		func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			if len(args) > 0 {
				n, err := parseDisk(args[0])
				if err != nil {
					return reply{}, err
				}
				ids, err := c.Volume.ListVolumesOnDisk(ctx, n, partition)
				return column("VOLUME", "id", ids), err
			}
			served, err := storageIsServed(ctx, c)
			if err == nil && !served {
				err = usageError{errors.New("the daemon doesn't serve the storage group, so DISK must be given")}
			}
			if err != nil {
				return reply{}, err
			}
			mounts, err := c.Storage.ListVolumes(ctx)
			return showMounts(mounts), err
		})
	list.Flags().Uint32Var(&partition, "partition", 0, "`number` of a partition; 0 for all data partitions")

	var newSize sizeFlag
	resize := p.call("resize VOLUME", "Grow a volume",
		func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			id := csiproxy.VolumeID(args[0])
			before, err := c.Volume.GetVolumeStats(ctx, id)
			if err != nil {
				return reply{}, err
			}
			if err := c.Volume.ResizeVolume(ctx, id, int64(newSize)); err != nil {
				return reply{}, err
			}
			after, err := c.Volume.GetVolumeStats(ctx, id)
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
	byPath := p.call("at PATH", "Show the volume that is mounted at a path",
		func(ctx context.Context, c *client.Client, args []string) (reply, error) {
			find := c.Volume.GetVolumeIDFromTargetPath
			if closest {
				find = c.Volume.GetClosestVolumeIDFromTargetPath
			}
			id, err := find(ctx, args[0])
			return line(map[string]csiproxy.VolumeID{"volume_id": id}, string(id)), err
		})
	byPath.Flags().BoolVar(&closest, "closest", false,
		"if no volume is mounted there, show the volume that the path lies on")

	return p.group("volume", `Manage volumes by their ids, \\?\Volume{guid}\`,
		list,
		p.method("mount VOLUME PATH", "Mount a volume at a directory", (*client.Volume).MountVolume, nil),
		p.method("unmount VOLUME PATH", "Unmount a volume from a directory", (*client.Volume).UnmountVolume, nil),
		p.method("formatted VOLUME", "Show whether a volume has a file system", (*client.Volume).IsVolumeFormatted,
			answer("formatted", yesNo)),
		p.method("format VOLUME", "Make an NTFS file system on a volume that has none", (*client.Volume).FormatVolume, nil),
		resize,
		p.method("stats VOLUME", "Show the size and use of a volume", (*client.Volume).GetVolumeStats, showVolumeStats),
		p.method("disk VOLUME", "Show the disk that a volume lies on", (*client.Volume).GetDiskNumberFromVolumeID,
			answer("disk_number", csiproxy.DiskNumber.String)),
		byPath,
		p.method("flush VOLUME", "Write a volume's cache to its disk", (*client.Volume).WriteVolumeCache, nil),
	)
}

func showVolumeStats(stats published.VolumeStats) reply {
	return reply{
		json:   stats,
		header: []string{"SIZE", "USED", "FREE"},
		rows:   [][]string{{size(stats.SizeBytes), size(stats.UsedBytes), size(stats.SizeBytes - stats.UsedBytes)}},
	}
}
