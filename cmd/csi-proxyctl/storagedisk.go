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

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/storage"
)

// selectorFlags say which disk is meant.
type selectorFlags struct {
	cmd                          *cobra.Command
	number, iscsiLUN, namespace  uint32
	adapter, port, lun, azureLUN uint32
	serial, identifier           string
	vendor, product              string
	portal, iqn                  string
}

func (f *selectorFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.Uint32Var(&f.number, "disk", 0, "Windows' `number` of the disk")
	flags.StringVar(&f.serial, "serial", "", "serial `number`, such as an EBS volume id")
	flags.StringVar(&f.identifier, "identifier", "",
		"`identifier` of page 83, such as vSphere's disk UUID or a GCE disk's name")
	flags.Uint32Var(&f.adapter, "adapter", 0, "`number` of the host bus adapter")
	flags.Uint32Var(&f.port, "port", 0, "`number` of the adapter's port; only with --adapter")
	flags.Uint32Var(&f.lun, "lun", 0, "SCSI `LUN`; only with --adapter, --vendor or --product")
	flags.Uint32Var(&f.azureLUN, "azure-lun", 0, "`LUN` with which Azure has attached the disk, by SCSI or by NVMe")
	flags.StringVar(&f.vendor, "vendor", "", "`vendor` of the SCSI inquiry")
	flags.StringVar(&f.product, "product", "", "`product` of the SCSI inquiry")
	flags.Uint32Var(&f.namespace, "namespace", 0, "`id` of the NVMe namespace; only with another flag")
	flags.StringVar(&f.portal, "portal", "", "`address` or address:port of the iSCSI portal")
	flags.StringVar(&f.iqn, "iqn", "", "`name` of the iSCSI target; with --portal")
	flags.Uint32Var(&f.iscsiLUN, "iscsi-lun", 0, "`LUN` of the iSCSI target")
	cmd.MarkFlagsRequiredTogether("portal", "iqn")
}

func (f *selectorFlags) selector() (storage.Selector, error) {
	s := storage.Selector{
		SerialNumber: f.serial, Identifier: f.identifier, Vendor: f.vendor, Product: f.product, NVMeNamespace: f.namespace,
	}
	if f.cmd.Flags().Changed("disk") {
		number := disk.Number(f.number)
		s.Number = &number
	}
	given := func(name string, value *uint32) *uint32 {
		if !f.cmd.Flags().Changed(name) {
			return nil
		}
		return value
	}
	s.Adapter, s.Port = given("adapter", &f.adapter), given("port", &f.port)
	s.LUN, s.AzureLUN = given("lun", &f.lun), given("azure-lun", &f.azureLUN)
	if f.iqn != "" {
		portal, err := parsePortal(f.portal)
		if err != nil {
			return s, err
		}
		s.ISCSI = &storage.ISCSISelector{Portal: portal, IQN: iscsi.IQN(f.iqn), LUN: f.iscsiLUN}
	}
	return s, nil
}

func describeDisks(ctx context.Context, s *client.Storage, wanted storage.Selector) (reply, error) {
	disks, err := s.ListDisks(ctx, wanted)
	if err != nil {
		return reply{}, err
	}
	r := reply{json: list(disks), header: []string{"DISK", "SIZE", "STATE", "BUS", "LUN", "SERIAL NUMBER", "IDENTIFIER",
		"VOLUMES"}}
	for _, d := range disks {
		told := func(text string) string {
			if text == "" && d.Error != "" {
				return unknown
			}
			return text
		}
		r.rows = append(r.rows, []string{
			d.Number.String(), knownSize(d.SizeBytes), diskState(d), told(string(d.Bus)), told(lunText(d)),
			told(d.SerialNumber), told(identifierText(d)), volumesText(d),
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
func diskState(d storage.Disk) string {
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
	return state
}

func lunText(d storage.Disk) string {
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

func identifierText(d storage.Disk) string {
	if len(d.Identifiers) == 0 {
		return ""
	}
	return d.Identifiers[0].Text
}

// volumesText says what is on a disk, and where it is mounted.
func volumesText(d storage.Disk) string {
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
