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
	flags, w := cmd.Flags(), &f.wanted
	flags.Var(optionalNumber[csiproxy.DiskNumber]{&w.Number}, "disk", "Windows' `number` of the disk")
	flags.StringVar(&w.SerialNumber, "serial", "", "serial `number`, such as an EBS volume id")
	flags.StringVar(&w.Identifier, "identifier", "",
		"`identifier` of page 83, such as vSphere's disk UUID or a GCE disk's name")
	flags.Var(optionalNumber[uint32]{&w.Adapter}, "adapter", "`number` of the host bus adapter")
	flags.Var(optionalNumber[uint32]{&w.Port}, "port", "`number` of the adapter's port; only with --adapter")
	flags.Var(optionalNumber[uint32]{&w.LUN}, "lun", "SCSI `LUN`; only with --adapter, --vendor or --product")
	flags.Var(optionalNumber[uint32]{&w.AzureLUN}, "azure-lun",
		"`LUN` with which Azure has attached the disk, by SCSI or by NVMe")
	flags.StringVar(&w.Vendor, "vendor", "", "`vendor` of the SCSI inquiry")
	flags.StringVar(&w.Product, "product", "", "`product` of the SCSI inquiry")
	flags.Uint32Var(&w.NVMeNamespace, "namespace", 0, "`id` of the NVMe namespace; only with another flag")
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
	for _, d := range disks {
		known := func(text string) string {
			if text == "" && d.Error != "" {
				return unknown
			}
			return text
		}
		r.rows = append(r.rows, []string{
			d.Number.String(), knownSize(d.SizeBytes), diskState(d), known(string(d.Bus)), known(lunText(d)),
			known(d.SerialNumber), known(identifierText(d)), volumesText(d),
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
func diskState(d csiproxy.Disk) string {
	state := onlineOffline(d.Online)
	switch {
	case d.Error != "" && !d.Online:
		return "error: " + d.Error
	case d.Error != "":
		state += ", error: " + d.Error
	case d.SystemReason != "":
		state += ", Windows runs from it"
	case !d.Online:
		state += ": " + d.OfflineReason
	}
	if d.ReadOnly {
		state += ", read-only"
	}
	if d.Driver != "" {
		state += ", of driver " + d.Driver
	}
	return state
}

func lunText(d csiproxy.Disk) string {
	switch {
	case d.Location.NVMeNamespace != 0:
		return fmt.Sprintf("namespace %d", d.Location.NVMeNamespace)
	case d.ISCSI != nil:
		return strconv.FormatUint(uint64(d.ISCSI.LUN), 10)
	case d.Location.SCSI != nil:
		return strconv.FormatUint(uint64(d.Location.SCSI.LUN), 10)
	}
	return ""
}

func identifierText(d csiproxy.Disk) string {
	if len(d.Identifiers) == 0 {
		return ""
	}
	return d.Identifiers[0].Text
}

// volumesText says what is on a disk, and where it is mounted.
func volumesText(d csiproxy.Disk) string {
	var all []string
	for _, p := range d.Partitions {
		if !p.Data {
			continue
		}
		text := p.FileSystem
		switch {
		case p.Error != "":
			text = p.Error
		case p.FileSystem == "" && !d.Online:
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
		return cmp.Or(string(d.Style), unknown)
	}
	return strings.Join(all, "; ")
}
