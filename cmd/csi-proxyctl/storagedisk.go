// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// selectorFlags say which disk is meant.
type selectorFlags struct {
	cmd                              *cobra.Command
	number, lun, iscsiLUN, namespace uint32
	serial, identifier               string
	vendor, product                  string
	portal, iqn                      string
}

func (f *selectorFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.Uint32Var(&f.number, "disk", 0, "Windows' `number` of the disk")
	flags.StringVar(&f.serial, "serial", "", "serial `number`, such as an EBS volume id")
	flags.StringVar(&f.identifier, "identifier", "", "`identifier` of page 83, such as vSphere's disk UUID or a GCE disk's name")
	flags.Uint32Var(&f.lun, "lun", 0, "SCSI LUN; only with --vendor or --product")
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
		s.Number = new(disk.Number(f.number))
	}
	if f.cmd.Flags().Changed("lun") {
		s.LUN = new(f.lun)
	}
	if f.iqn != "" {
		portal, err := parsePortal(f.portal)
		if err != nil {
			return s, err
		}
		s.ISCSI = &storage.ISCSISelector{Portal: portal, IQN: iscsi.IQN(f.iqn), LUN: f.iscsiLUN}
	}
	return s, nil
}

type identifierJSON struct {
	Kind storage.IdentifierKind `json:"kind"`
	Text string                 `json:"text"`
}

type scsiAddressJSON struct {
	Port   uint8 `json:"port"`
	Path   uint8 `json:"path"`
	Target uint8 `json:"target"`
	LUN    uint8 `json:"lun"`
}

type targetJSON struct {
	IQN iscsi.IQN `json:"iqn"`
	LUN uint32    `json:"lun"`
}

type partitionJSON struct {
	Number      uint32    `json:"number"`
	OffsetBytes int64     `json:"offset_bytes"`
	SizeBytes   int64     `json:"size_bytes"`
	Data        bool      `json:"data"`
	VolumeID    volume.ID `json:"volume_id,omitempty"`
	FileSystem  string    `json:"file_system,omitempty"`
	Label       string    `json:"label,omitempty"`
	Paths       []string  `json:"paths,omitempty"`
	Error       string    `json:"error,omitempty"`
}

// describedJSON is a disk as the storage group describes it.
type describedJSON struct {
	Number         disk.Number            `json:"number"`
	SizeBytes      *int64                 `json:"size_bytes"`
	SerialNumber   string                 `json:"serial_number"`
	Page83         string                 `json:"page83"` // the first of the identifiers
	Identifiers    []identifierJSON       `json:"identifiers"`
	Vendor         string                 `json:"vendor"`
	Product        string                 `json:"product"`
	Bus            storage.Bus            `json:"bus"`
	Location       *locationJSON          `json:"location"`
	LocationText   string                 `json:"location_text"`
	SCSIAddress    *scsiAddressJSON       `json:"scsi_address,omitempty"`
	NVMeNamespace  uint32                 `json:"nvme_namespace,omitempty"`
	ISCSI          *targetJSON            `json:"iscsi,omitempty"`
	Online         *bool                  `json:"online"`
	ReadOnly       bool                   `json:"read_only"`
	OfflineReason  string                 `json:"offline_reason,omitempty"`
	PartitionStyle storage.PartitionStyle `json:"partition_style"`
	DiskID         string                 `json:"disk_id,omitempty"`
	SystemReason   string                 `json:"system_reason,omitempty"`
	Partitions     []partitionJSON        `json:"partitions"`
	Error          string                 `json:"error,omitempty"`
}

func newDescribedJSON(d storage.Disk) describedJSON {
	j := describedJSON{
		Number: d.Number, SerialNumber: d.SerialNumber, Page83: identifierText(d), Identifiers: []identifierJSON{},
		Vendor: d.Vendor, Product: d.Product, Bus: d.Bus, LocationText: d.Location.Text, NVMeNamespace: d.Location.NVMeNamespace,
		ReadOnly: d.ReadOnly, OfflineReason: d.OfflineReason, PartitionStyle: d.Style, DiskID: d.DiskID,
		SystemReason: d.SystemReason, Partitions: []partitionJSON{}, Error: d.Error,
	}
	if d.SizeBytes != 0 { // else it isn't known
		j.SizeBytes = &d.SizeBytes
	}
	if d.Online || d.Error == "" { // else it isn't known
		j.Online = &d.Online
	}
	for _, id := range d.Identifiers {
		j.Identifiers = append(j.Identifiers, identifierJSON(id))
	}
	if d.Location.SCSI != nil {
		j.SCSIAddress = (*scsiAddressJSON)(d.Location.SCSI)
	}
	if d.ISCSI != nil {
		j.ISCSI = (*targetJSON)(d.ISCSI)
	}
	for _, p := range d.Partitions {
		j.Partitions = append(j.Partitions, partitionJSON(p))
	}
	return j
}

func describeDisks(ctx context.Context, c *client.Client, wanted storage.Selector) (reply, error) {
	disks, err := c.Storage.ListDisks(ctx, wanted)
	if err != nil {
		return reply{}, err
	}
	locations, err := c.Disk.ListDiskLocations(ctx)
	if err != nil {
		return reply{}, err
	}
	r := reply{header: []string{"DISK", "SIZE", "STATE", "BUS", "LUN", "SERIAL NUMBER", "IDENTIFIER", "VOLUMES"}}
	list := []describedJSON{}
	for _, d := range disks {
		j := newDescribedJSON(d)
		if l, ok := locations[d.Number]; ok {
			j.Location = &locationJSON{l.Adapter, l.Bus, l.Target, l.LUNID}
		}
		list = append(list, j)
		r.rows = append(r.rows, []string{
			d.Number.String(), knownSize(d.SizeBytes), diskState(d), string(d.Bus), lunText(d), d.SerialNumber, identifierText(d), volumesText(d),
		})
	}
	r.json = list
	return r, nil
}

// knownSize is a size, or nothing if it isn't known.
func knownSize(bytes int64) string {
	if bytes == 0 {
		return ""
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
			text = "not known while it is offline"
		case p.FileSystem == "":
			text = "not known"
		}
		if len(p.Paths) > 0 {
			text += " at " + strings.Join(p.Paths, " and ")
		}
		all = append(all, text)
	}
	if len(all) == 0 && d.Error == "" && d.Style != "" {
		return string(d.Style)
	}
	return strings.Join(all, "; ")
}
