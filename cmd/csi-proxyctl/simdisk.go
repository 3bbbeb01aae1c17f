// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
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

	return p.group("disk", "Play the cloud: attach, clone, grow, detach and delete disks",
		p.simDiskAttach(),
		p.simDiskClone(),
		grow,
		p.simDiskSet(),
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
	var h hardwareFlags
	cmd := p.simLeaf("attach", "Attach a new disk, or a detached one by its serial number", func(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
		response, err := sim.AttachDisk(ctx, h.request())
		return attached(response.GetDiskNumber()), err
	})
	h.add(cmd)
	cmd.Long = `Attach a new disk, or a detached one by its serial number. Of a detached disk only --size, which may
be greater, the address, --location, --number, --late and --needs-rescan count. The number of the
disk is printed.`
	cmd.MarkFlagsOneRequired("size", "serial")
	return cmd
}

func (p *program) simDiskClone() *cobra.Command {
	var h hardwareFlags
	cmd := p.simLeaf("clone DISK", "Attach a new disk with the contents of another one, as from a snapshot", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		n, err := parseDisk(args[0])
		if err != nil {
			return reply{}, err
		}
		response, err := sim.CloneDisk(ctx, &simv1.CloneDiskRequest{DiskNumber: uint32(n), Disk: h.request()})
		return attached(response.GetDiskNumber()), err
	})
	h.add(cmd)
	cmd.Long = `Attach a new disk with the contents that another one has now, and so with its ids, as a disk made
from a snapshot has them. Windows keeps it offline while the other one is online. Its size is at
least that of the other disk, and its sector size the same. The number of the new disk is printed.`
	cmd.ValidArgsFunction = p.completeDisks
	return cmd
}

func attached(number uint32) reply {
	return line(map[string]uint32{"disk_number": number}, decimal(number))
}

// hardwareFlags are the flags that say what a disk is.
type hardwareFlags struct {
	cmd         *cobra.Command
	disk        simv1.AttachDiskRequest
	nvme        simv1.NvmeNamespace
	isNVMe      bool
	size        sizeFlag
	number      uint32
	late        time.Duration
	address     [4]uint8
	designators designatorsFlag
}

// addressFlags are the flags of the parts of an address.
var addressFlags = [4]string{"adapter", "bus", "target", "lun"}

func (h *hardwareFlags) add(cmd *cobra.Command) {
	h.cmd = cmd
	flags := cmd.Flags()
	flags.Var(&h.size, "size", "`size` of the disk; not needed for a detached disk")
	flags.Uint32Var(&h.disk.SectorSize, "sector-size", 512, "size of a logical sector in `bytes`: 512 or 4096")
	flags.StringVar(&h.disk.SerialNumber, "serial", "", "serial number; generated if empty")
	flags.StringVar(&h.disk.Page83, "page83", "", "identifier of vital product data page 0x83; generated if empty")
	flags.Var(&h.designators, "designator", "a designator of page 0x83, in the place of --page83; may be given several times: naa, eui64 or md5 with hexadecimal digits, t10, vendor or name with a text, relative-port or port-group with a number; port: or target: before it says that it isn't of the disk itself")
	flags.StringVar(&h.disk.Vendor, "vendor", "", "vendor; if empty, Msft or NVMe")
	flags.StringVar(&h.disk.Product, "product", "", "product; if empty, Virtual Disk or Simulated Disk")
	flags.StringVar(&h.disk.Revision, "revision", "", "revision of the product; if empty, 1.0")
	flags.StringVar(&h.disk.Location, "location", "", "Windows' `text` for where the disk is; generated if empty")
	flags.Uint8Var(&h.address[0], "adapter", 1, "`number` of the adapter; if no part of the address is given, the next free address is used")
	flags.Uint8Var(&h.address[1], "bus", 0, "`number` of the SCSI bus")
	flags.Uint8Var(&h.address[2], "target", 0, "`number` of the SCSI target")
	flags.Uint8Var(&h.address[3], "lun", 0, "`number` of the SCSI logical unit")
	flags.BoolVar(&h.isNVMe, "nvme", false, "the disk is a namespace of an NVMe controller; so it is with any of the following flags")
	flags.Uint32Var(&h.nvme.NamespaceId, "nvme-namespace", 1, "`id` of the namespace")
	flags.StringVar(&h.nvme.ControllerSerialNumber, "nvme-controller", "", "`serial` number of the controller; if empty, that of the disk")
	flags.BytesHexVar(&h.nvme.Eui64, "nvme-eui64", nil, "EUI-64 of the namespace, 16 `digits`; without, the controller gives none")
	flags.BytesHexVar(&h.nvme.Nguid, "nvme-nguid", nil, "NGUID of the namespace, 32 `digits`; without, the controller gives none")
	flags.BoolVar(&h.disk.Offline, "offline", false, "the disk arrives offline, as shared disks do")
	flags.BoolVar(&h.disk.ReadOnly, "read-only", false, "the disk arrives read-only")
	flags.BoolVar(&h.disk.NeedsRescan, "needs-rescan", false, "Windows sees the disk, under the number that is printed, only after a rescan")
	flags.Uint32Var(&h.number, "number", 0, "disk `number` that Windows gives to the disk, if it is free; without, the lowest one that is")
	flags.DurationVar(&h.late, "late", 0, "how much later than others the disk arrives")
	cmd.Example = `  csi-proxyctl sim disk attach --size 10GiB --designator naa=600224801234 --designator "t10=Google  PersistentDisk  data"
  csi-proxyctl sim disk attach --size 10GiB --designator eui64=0025385b71b016aa --designator name=eui.0025385b71b016aa
  csi-proxyctl sim disk attach --size 10GiB --designator target:name=iqn.2026-01.com.example:disk --designator port:relative-port=1
  csi-proxyctl sim disk attach --size 10GiB --serial vol0abc --nvme --product "Amazon Elastic B"
  csi-proxyctl sim disk attach --size 10GiB --nvme-controller azure --nvme-namespace 3 --product "MSFT NVMe Accele"`
}

// request is the hardware that the flags tell.
func (h *hardwareFlags) request() *simv1.AttachDiskRequest {
	h.disk.SizeBytes, h.disk.LateNs, h.disk.Designators = int64(h.size), int64(h.late), h.designators
	changed := h.cmd.Flags().Changed
	if slices.ContainsFunc(addressFlags[:], changed) {
		a := h.address
		h.disk.Address = &simv1.ScsiAddress{Adapter: uint32(a[0]), Bus: uint32(a[1]), Target: uint32(a[2]), Lun: uint32(a[3])}
	}
	if changed("number") {
		h.disk.DiskNumber = &h.number
	}
	if h.isNVMe || slices.ContainsFunc([]string{"nvme-namespace", "nvme-controller", "nvme-eui64", "nvme-nguid"}, changed) {
		h.disk.Nvme = &h.nvme
	}
	return &h.disk
}

// designatorsFlag are designators, each as [port:|target:]KIND=VALUE.
type designatorsFlag []*simv1.Designator

// String, Set and Type are pflag.Value.
func (f *designatorsFlag) String() string { return "" }

func (f *designatorsFlag) Type() string { return "kind=value" }

// designatorKinds are the types of designators, in the order of SPC's numbers.
var designatorKinds = []string{"vendor", "t10", "eui64", "naa", "relative-port", "port-group", "unit-group", "md5", "name"}

func (f *designatorsFlag) Set(s string) error {
	kind, value, ok := strings.Cut(s, "=")
	d := &simv1.Designator{}
	for association, prefix := range map[uint32]string{1: "port:", 2: "target:"} {
		if rest, found := strings.CutPrefix(kind, prefix); found {
			kind, d.Association = rest, association
		}
	}
	number := slices.Index(designatorKinds, kind)
	if !ok || number < 0 {
		return fmt.Errorf("must be KIND=VALUE, where KIND is %s; with port: or target: before it if it isn't of the disk itself", strings.Join(designatorKinds, ", "))
	}
	const binary, ascii, utf8 = 1, 2, 3
	d.Type, d.CodeSet = uint32(number), binary
	switch kind {
	case "vendor", "t10":
		d.CodeSet, d.Id = ascii, []byte(value)
	case "name":
		d.CodeSet, d.Id = utf8, []byte(value)
	case "eui64", "naa", "md5":
		var err error
		if d.Id, err = hex.DecodeString(value); err != nil || len(d.Id) == 0 {
			return fmt.Errorf("the value of %s must be hexadecimal digits, two for each byte", kind)
		}
	default: // a number of two bytes, behind two that are reserved
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return fmt.Errorf("the value of %s must be a number below 65536", kind)
		}
		d.Id = []byte{0, 0, byte(n >> 8), byte(n)}
	}
	*f = append(*f, d)
	return nil
}

// offlineReasons are the reasons for which Windows takes a disk offline, in the order of
// MSFT_Disk's numbers.
var offlineReasons = []string{"", "policy", "redundant-path", "snapshot", "collision", "resource-exhaustion", "write-failures", "integrity-scan"}

// offlineReason names a reason.
func offlineReason(number uint32) string {
	if int(number) < len(offlineReasons) {
		return offlineReasons[number]
	}
	return decimal(number)
}

func (p *program) simDiskSet() *cobra.Command {
	var offline, readOnly, persist bool
	var reason string
	var cmd *cobra.Command
	cmd = p.simLeaf("set DISK", "Take a disk offline or online, or make it read-only or writable", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		n, err := parseDisk(args[0])
		if err != nil {
			return reply{}, err
		}
		request := &simv1.SetDiskAttributesRequest{DiskNumber: uint32(n), Persist: persist}
		if cmd.Flags().Changed("offline") {
			request.Offline = &offline
		}
		if cmd.Flags().Changed("read-only") {
			request.ReadOnly = &readOnly
		}
		if reason != "" {
			number := slices.Index(offlineReasons, reason)
			if number < 0 {
				return reply{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "--reason must be one of %s", strings.Join(offlineReasons[1:], ", "))
			}
			request.OfflineReason = uint32(number)
		}
		_, err = sim.SetDiskAttributes(ctx, request)
		return done, err
	})
	flags := cmd.Flags()
	flags.BoolVar(&offline, "offline", false, "take the disk offline; =false brings it online")
	flags.BoolVar(&readOnly, "read-only", false, "make the disk read-only; =false makes it writable")
	flags.BoolVar(&persist, "persist", false, "the change outlasts a restart of the node")
	flags.StringVar(&reason, "reason", "", "with --offline: Windows does it by itself, because of `this`: "+strings.Join(offlineReasons[1:], ", "))
	cmd.MarkFlagsOneRequired("offline", "read-only")
	complete(cmd, "reason", cobra.FixedCompletions(offlineReasons[1:], cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = p.completeDisks
	return cmd
}

// simDiskJSON is a disk of the hardware. It has no number while it is detached.
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

	WhyOffline string       `json:"why_offline,omitempty"`
	NVMe       *simNVMeJSON `json:"nvme,omitempty"`
}

// simNVMeJSON is a namespace of an NVMe controller.
type simNVMeJSON struct {
	Controller string `json:"controller_serial_number"`
	Namespace  uint32 `json:"namespace_id"`
	EUI64      string `json:"eui64,omitempty"`
	NGUID      string `json:"nguid,omitempty"`
}

func listSimDisks(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	response, err := sim.ListDisks(ctx, &simv1.ListDisksRequest{})
	r := reply{header: []string{"DISK", "STATE", "SIZE", "SEEN", "ONLINE", "WRITABLE", "ADAPTER", "BUS", "TARGET", "LUN", "SERIAL NUMBER"}}
	list := []simDiskJSON{}
	for _, d := range response.GetDisks() {
		state := strings.ToLower(strings.TrimPrefix(d.State.String(), "DISK_STATE_"))
		a := d.GetAddress()
		disk := simDiskJSON{
			Number: d.DiskNumber, State: state, SizeBytes: d.SizeBytes, SeenBytes: d.SeenBytes, SectorSize: d.SectorSize,
			Online: !d.Offline, ReadOnly: d.ReadOnly, System: d.System,
			Adapter: a.GetAdapter(), Bus: a.GetBus(), Target: a.GetTarget(), LUN: a.GetLun(), SerialNumber: d.SerialNumber,
			WhyOffline: offlineReason(d.OfflineReason),
		}
		if n := d.Nvme; n != nil {
			disk.NVMe = &simNVMeJSON{n.ControllerSerialNumber, n.NamespaceId, hex.EncodeToString(n.Eui64), hex.EncodeToString(n.Nguid)}
		}
		list = append(list, disk)
		number := ""
		if d.DiskNumber != nil {
			number = decimal(*d.DiskNumber)
		}
		r.rows = append(r.rows, []string{
			number, state, size(d.SizeBytes), size(d.SeenBytes), onlineText(d), yesNo(!d.ReadOnly),
			decimal(a.GetAdapter()), decimal(a.GetBus()), decimal(a.GetTarget()), decimal(a.GetLun()), d.SerialNumber,
		})
	}
	r.json = list
	return r, err
}

// onlineText tells whether a disk is online, and if not, why.
func onlineText(d *simv1.Disk) string {
	text := yesNo(!d.Offline)
	if reason := offlineReason(d.OfflineReason); reason != "" {
		text += " (" + reason + ")"
	}
	return text
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
