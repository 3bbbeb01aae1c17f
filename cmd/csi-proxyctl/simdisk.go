// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

func (p *program) simDisk() *cobra.Command {
	numbered := func(use, short string, do func(context.Context, simv1.SimClient, uint32, []string) (reply, error)) *cobra.Command {
		cmd := p.simLeaf(use, short, func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
			n, err := parseDisk(args[0])
			if err != nil {
				return reply{}, err
			}
			return do(ctx, sim, uint32(n), args[1:])
		})
		cmd.ValidArgsFunction = p.completeDisks
		return cmd
	}

	var newSize sizeFlag
	grow := numbered("grow DISK", "Give a disk more capacity", func(ctx context.Context, sim simv1.SimClient, n uint32, _ []string) (reply, error) {
		_, err := sim.GrowDisk(ctx, &simv1.GrowDiskRequest{DiskNumber: n, SizeBytes: int64(newSize)})
		return done, err
	})
	grow.Flags().Var(&newSize, "size", "new `size`")
	require(grow, "size")

	return p.group("disk", "Play the cloud: attach, grow, detach and delete disks",
		p.simDiskAttach(),
		grow,
		numbered("detach DISK", "Detach a disk without warning; its data are kept until it is attached again by its serial number", func(ctx context.Context, sim simv1.SimClient, n uint32, _ []string) (reply, error) {
			_, err := sim.DetachDisk(ctx, &simv1.DetachDiskRequest{DiskNumber: n})
			return done, err
		}),
		p.simLeaf("delete SERIAL", "Delete a detached disk and its data", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
			_, err := sim.DeleteDisk(ctx, &simv1.DeleteDiskRequest{SerialNumber: args[0]})
			return done, err
		}),
		p.simLeaf("list", "List all disks, including detached ones", listSimDisks),
		numbered("export DISK FILE", "Write a disk as a sparse raw image to a new file of this machine", func(ctx context.Context, sim simv1.SimClient, n uint32, args []string) (reply, error) {
			file, err := filepath.Abs(args[0])
			if err != nil {
				return reply{}, err
			}
			_, err = sim.ExportDisk(ctx, &simv1.ExportDiskRequest{DiskNumber: n, File: file})
			return done, err
		}),
	)
}

func (p *program) simDiskAttach() *cobra.Command {
	request := &simv1.AttachDiskRequest{}
	var diskSize sizeFlag
	var adapter, bus, target, lun uint8
	var cmd *cobra.Command
	cmd = p.simLeaf("attach", "Attach a new disk, or a detached one by its serial number", func(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
		request.SizeBytes = int64(diskSize)
		for _, part := range []string{"adapter", "bus", "target", "lun"} {
			if cmd.Flags().Changed(part) {
				request.Address = &simv1.ScsiAddress{Adapter: uint32(adapter), Bus: uint32(bus), Target: uint32(target), Lun: uint32(lun)}
			}
		}
		response, err := sim.AttachDisk(ctx, request)
		if err != nil {
			return reply{}, err
		}
		return line(map[string]*uint32{"disk_number": response.DiskNumber}, decimal(response.GetDiskNumber())), nil
	})
	flags := cmd.Flags()
	flags.Var(&diskSize, "size", "`size` of the disk; not needed for a detached disk")
	flags.Uint32Var(&request.SectorSize, "sector-size", 512, "size of a logical sector in `bytes`: 512 or 4096")
	flags.StringVar(&request.SerialNumber, "serial", "", "serial number; generated if empty")
	flags.StringVar(&request.Page83, "page83", "", "identifier of vital product data page 0x83; generated if empty")
	flags.Uint8Var(&adapter, "adapter", 1, "`number` of the adapter; if no part of the address is given, the next free address is used")
	flags.Uint8Var(&bus, "bus", 0, "`number` of the SCSI bus")
	flags.Uint8Var(&target, "target", 0, "`number` of the SCSI target")
	flags.Uint8Var(&lun, "lun", 0, "`number` of the SCSI logical unit")
	flags.BoolVar(&request.Offline, "offline", false, "the disk arrives offline, as shared disks do")
	flags.BoolVar(&request.ReadOnly, "read-only", false, "the disk arrives read-only")
	flags.BoolVar(&request.NeedsRescan, "needs-rescan", false, "Windows sees the disk, under the number that is printed, only after a rescan")
	cmd.MarkFlagsOneRequired("size", "serial")
	return cmd
}

// simDiskJSON is a disk of the hardware. It has no number if Windows doesn't see it.
type simDiskJSON struct {
	Number       *uint32 `json:"number"`
	State        string  `json:"state"`
	SizeBytes    int64   `json:"size_bytes"`
	SeenBytes    int64   `json:"seen_bytes"`
	SectorSize   uint32  `json:"sector_size"`
	Online       bool    `json:"online"`
	ReadOnly     bool    `json:"read_only"`
	System       bool    `json:"system"`
	Adapter      uint32  `json:"adapter"`
	Bus          uint32  `json:"bus"`
	Target       uint32  `json:"target"`
	LUN          uint32  `json:"lun"`
	SerialNumber string  `json:"serial_number"`
}

func listSimDisks(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	response, err := sim.ListDisks(ctx, &simv1.ListDisksRequest{})
	r := reply{header: []string{"DISK", "STATE", "SIZE", "SEEN", "ONLINE", "WRITABLE", "ADAPTER", "BUS", "TARGET", "LUN", "SERIAL NUMBER"}}
	list := []simDiskJSON{}
	for _, d := range response.GetDisks() {
		state := strings.ToLower(strings.TrimPrefix(d.State.String(), "DISK_STATE_"))
		a := d.GetAddress()
		list = append(list, simDiskJSON{
			Number: d.DiskNumber, State: state, SizeBytes: d.SizeBytes, SeenBytes: d.SeenBytes, SectorSize: d.SectorSize,
			Online: !d.Offline, ReadOnly: d.ReadOnly, System: d.System,
			Adapter: a.GetAdapter(), Bus: a.GetBus(), Target: a.GetTarget(), LUN: a.GetLun(), SerialNumber: d.SerialNumber,
		})
		number := ""
		if d.DiskNumber != nil {
			number = decimal(*d.DiskNumber)
		}
		r.rows = append(r.rows, []string{
			number, state, size(d.SizeBytes), size(d.SeenBytes), yesNo(!d.Offline), yesNo(!d.ReadOnly),
			decimal(a.GetAdapter()), decimal(a.GetBus()), decimal(a.GetTarget()), decimal(a.GetLun()), d.SerialNumber,
		})
	}
	r.json = list
	return r, err
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
