// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
)

// selectorFlags say which disk is meant.
type selectorFlags struct {
	wanted csiproxy.Selector
	target csiproxy.ISCSISelector
	portal string
}

func (f *selectorFlags) add(cmd *cobra.Command) {
	flags, wanted := cmd.Flags(), &f.wanted
	flags.Var(optionalNumber[csiproxy.DiskNumber]{&wanted.Number}, "disk", "Windows' `number` of the disk")
	flags.StringVar(&wanted.SerialNumber, "serial", "", "serial `number`, such as an EBS volume id")
	flags.StringVar(&wanted.Identifier, "identifier", "",
		"`identifier` of page 83, such as vSphere's disk UUID or a GCE disk's name")
	flags.Var(optionalNumber[uint32]{&wanted.Adapter}, "adapter", "`number` of the host bus adapter")
	flags.Var(optionalNumber[uint32]{&wanted.Port}, "port", "`number` of the adapter's port; only with --adapter")
	flags.Var(optionalNumber[uint32]{&wanted.LUN}, "lun", "SCSI `LUN`; only with --adapter, --vendor or --product")
	flags.Var(optionalNumber[uint32]{&wanted.AzureLUN}, "azure-lun",
		"`LUN` with which Azure has attached the disk, by SCSI or by NVMe")
	flags.StringVar(&wanted.Vendor, "vendor", "", "`vendor` of the SCSI inquiry")
	flags.StringVar(&wanted.Product, "product", "", "`product` of the SCSI inquiry")
	flags.Uint32Var(&wanted.NVMeNamespace, "namespace", 0, "`id` of the NVMe namespace; only with another flag")
	flags.StringVar(&f.portal, "portal", "", "`address` or address:port of the iSCSI portal")
	flags.StringVar((*string)(&f.target.IQN), "iqn", "", "`name` of the iSCSI target; with --portal")
	flags.Uint32Var(&f.target.LUN, "iscsi-lun", 0, "`LUN` of the iSCSI target")
	cmd.MarkFlagsRequiredTogether("portal", "iqn")
}

func (f *selectorFlags) selector() (csiproxy.Selector, error) {
	if f.target.IQN == "" {
		return f.wanted, nil
	}
	var err error
	f.target.Portal, err = parsePortal(f.portal)
	f.wanted.ISCSI = &f.target
	return f.wanted, err
}

// optionalNumber is a flag for a number that is nil if the flag isn't given.
type optionalNumber[T ~uint32] struct{ number **T }

// String, Set and Type are pflag.Value.
func (o optionalNumber[T]) String() string { return "0" }

func (o optionalNumber[T]) Type() string { return "uint32" }

func (o optionalNumber[T]) Set(s string) error {
	n, err := strconv.ParseUint(s, 0, 32)
	*o.number = new(T)
	**o.number = T(n)
	return err
}

func describeDisks(ctx context.Context, s *client.Storage, wanted csiproxy.Selector) (reply, error) {
	disks, err := s.ListDisks(ctx, wanted)
	if err != nil {
		return reply{}, err
	}
	r := reply{json: list(disks), header: []string{"DISK", "SIZE", "STATE", "BUS", "LUN", "SERIAL NUMBER", "IDENTIFIER",
		"VOLUMES"}}
	for _, disk := range disks {
		known := func(text string) string {
			if text == "" && disk.Error != "" {
				return unknown
			}
			return text
		}
		r.rows = append(r.rows, []string{
			disk.Number.String(), knownSize(disk.SizeBytes), diskState(disk), known(string(disk.Bus)), known(lunText(disk)),
			known(disk.SerialNumber), known(identifierText(disk)), volumesText(disk),
		})
	}
	return r, nil
}

// knownSize is a size, which isn't known if it is 0.
func knownSize(bytes int64) string {
	if bytes == 0 {
		return unknown
	}
	return size(bytes)
}

// diskState is a disk's state in a few words.
func diskState(disk csiproxy.Disk) string {
	state := onlineOffline(disk.Online)
	switch {
	case disk.Error != "" && !disk.Online:
		return "error: " + disk.Error
	case disk.Error != "":
		state += ", error: " + disk.Error
	case disk.SystemReason != "":
		state += ", Windows runs from it"
	case !disk.Online:
		state += ": " + disk.OfflineReason
	}
	if disk.ReadOnly {
		state += ", read-only"
	}
	if disk.Driver != "" {
		state += ", of driver " + disk.Driver
	}
	return state
}

func lunText(disk csiproxy.Disk) string {
	switch {
	case disk.Location.NVMeNamespace != 0:
		return fmt.Sprintf("namespace %d", disk.Location.NVMeNamespace)
	case disk.ISCSI != nil:
		return strconv.FormatUint(uint64(disk.ISCSI.LUN), 10)
	case disk.Location.SCSI != nil:
		return strconv.FormatUint(uint64(disk.Location.SCSI.LUN), 10)
	}
	return ""
}

func identifierText(disk csiproxy.Disk) string {
	if len(disk.Identifiers) == 0 {
		return ""
	}
	return disk.Identifiers[0].Text
}

// volumesText says what is on a disk, and where it is mounted.
func volumesText(disk csiproxy.Disk) string {
	var all []string
	for _, p := range disk.Partitions {
		if !p.Data {
			continue
		}
		text := p.FileSystem
		switch {
		case p.Error != "":
			text = p.Error
		case p.FileSystem == "" && !disk.Online:
			text = "unknown while the disk is offline"
		case p.FileSystem == "":
			text = unknown
		}
		if len(p.Paths) > 0 {
			text += " at " + strings.Join(p.Paths, " and ")
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return cmp.Or(string(disk.Style), unknown)
	}
	return strings.Join(all, "; ")
}
