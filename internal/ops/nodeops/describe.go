// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Hardware returns the disks that match a selector, ordered by number. Each disk has the hardware
// details that the selector compares, and nothing of the contents. If no disk matches, or the selector
// names an iSCSI target, Hardware returns all disks: the caller compares the targets. The result always
// includes silent disks with a known number, with an Error.
func (d *Disks) Hardware(ctx context.Context, wanted csiproxy.Selector) ([]csiproxy.Disk, error) {
	byTarget := wanted.ISCSI != nil
	wanted.ISCSI = nil // disks don't report their targets
	asked := detailsFor(wanted)
	answers, err := d.eachDisk(ctx, &d.queries.hardware, asked,
		func(ctx context.Context, h *opendisk.Disk, f *found) (err error) {
			f.disk, err = d.options.Shared.hardware(ctx, h, asked)
			return err
		})
	if err != nil {
		return nil, err
	}
	all := described(answers)
	if byTarget { // the caller's errors list all disks
		return all, nil
	}
	return selectMatching(all, wanted), nil
}

// described returns the disks of answers, ordered by number. A silent disk has an Error.
func described(answers []found) (all []csiproxy.Disk) {
	for _, a := range answers {
		if a.err != nil {
			a.disk = csiproxy.Disk{Number: a.number, Error: a.err.Error()}
		}
		a.disk.Driver = a.driver
		all = append(all, a.disk)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Number < all[j].Number })
	return all
}

// selectMatching returns the disks that match a selector, and the disks with an error in place of
// an answer. Without a match, it returns all disks.
func selectMatching(all []csiproxy.Disk, wanted csiproxy.Selector) []csiproxy.Disk {
	if !slices.ContainsFunc(all, wanted.Matches) {
		return all
	}
	return slices.DeleteFunc(all, func(s csiproxy.Disk) bool { return s.Error == "" && !wanted.Matches(s) })
}

// details selects what to ask about a disk's hardware, beyond its descriptor.
type details struct {
	identifiers bool
	address     bool // including the NVMe namespace
	text        bool // the location text
}

var everything = details{true, true, true}

// detailsFor returns the details that a selector compares. Identifiers require the address: the
// query for an NVMe disk's identifiers needs the namespace, a part of the address.
func detailsFor(s csiproxy.Selector) details {
	identifiers := s.Identifier != "" || s.IsZero()
	address := identifiers || s.Adapter != nil || s.LUN != nil || s.AzureLUN != nil || s.NVMeNamespace != 0
	return details{identifiers, address, s.IsZero() || s.AzureLUN != nil}
}

// Describe is Hardware, but fills in everything known about each matching disk, except its iSCSI
// target.
func (d *Disks) Describe(ctx context.Context, wanted csiproxy.Selector) ([]csiproxy.Disk, error) {
	systemDisks, err := d.options.Users.SystemDisks(ctx)
	if err != nil {
		return nil, err
	}
	wanted.ISCSI = nil
	asked := detailsFor(wanted)
	answers, err := d.eachDisk(ctx, &d.queries.descriptions, wanted.String(),
		func(ctx context.Context, h *opendisk.Disk, f *found) (err error) {
			f.disk, err = d.options.Shared.hardware(ctx, h, asked)
			if err != nil || !wanted.Matches(f.disk) {
				return err
			}
			if asked != everything {
				if f.disk, err = d.options.Shared.hardware(ctx, h, everything); err != nil {
					return err
				}
			}
			return d.contents(ctx, &f.disk, h)
		})
	if err != nil {
		return nil, err
	}
	all := selectMatching(described(answers), wanted)
	for i := range all {
		all[i].SystemReason = systemDisks[all[i].Number]
	}
	return all, d.explainOffline(ctx, all, wanted)
}

// HardwareOf is Hardware for an open disk.
func (d *Disks) HardwareOf(ctx context.Context, h *opendisk.Disk, wanted csiproxy.Selector) (csiproxy.Disk, error) {
	return d.options.Shared.hardware(ctx, h, detailsFor(wanted))
}

// hardware describes a disk by its descriptor and by the details in asked.
func (shared *SharedDisks) hardware(ctx context.Context, h *opendisk.Disk, asked details) (csiproxy.Disk, error) {
	s := csiproxy.Disk{Number: h.Number}
	hardware := &h.Hardware
	if asked.identifiers {
		if err := hardware.AskIdentifiers(ctx, h.DeviceHandle); err != nil {
			return s, err
		}
	}
	descriptor := hardware.Descriptor
	if hardware.DescriptorErr == nil {
		s.Bus = opendisk.Bus(descriptor.BusType)
	}
	s.SerialNumber = strings.Trim(descriptor.SerialNumber, " ")
	s.Vendor, s.Product = strings.TrimSpace(descriptor.VendorID), strings.TrimSpace(descriptor.ProductID)
	s.Identifiers = identifiers(descriptor.BusType, hardware.Identifiers)
	if asked.text {
		location, err := h.Location(ctx)
		if err := shared.tolerate(h.Number, "location", err); err != nil {
			return s, err
		}
		s.Location.Text = location.Text
	}
	if !asked.address {
		return s, nil
	}
	address, namespace, err := shared.address(ctx, h)
	if err != nil {
		return s, err
	}
	if address != nil {
		s.Location.SCSI = &csiproxy.SCSIAddress{Adapter: address.PortNumber, Port: address.PathID, Target: address.TargetID, LUN: address.LUN}
	}
	if s.Location.NVMeNamespace = namespace; namespace != 0 {
		return s, shared.addNamespace(ctx, &s, h)
	}
	return s, nil
}

// addNamespace adds the identifiers of an NVMe namespace that are missing from page 83.
func (shared *SharedDisks) addNamespace(ctx context.Context, s *csiproxy.Disk, h *opendisk.Disk) error {
	namespace, err := h.NVMeNamespace(ctx, s.Location.NVMeNamespace)
	if err != nil {
		return shared.tolerate(s.Number, "NVMe namespace", err)
	}
	for _, id := range []struct {
		kind  csiproxy.IdentifierKind
		bytes []byte
	}{{csiproxy.IdentifierEUI64, namespace.EUI64[:]}, {csiproxy.IdentifierNGUID, namespace.NGUID[:]}} {
		text := hex.EncodeToString(id.bytes)
		known := slices.ContainsFunc(s.Identifiers, func(known csiproxy.Identifier) bool { return known.Text == text })
		if strings.Trim(text, "0") != "" && !known { // all zeros mean no identifier
			s.Identifiers = append(s.Identifiers, csiproxy.Identifier{Kind: id.kind, Text: text})
		}
	}
	return nil
}

// identifiers returns the designators of the disk itself.
func identifiers(busType win.BusType, ids []win.Identifier) (all []csiproxy.Identifier) {
	for _, id := range ids {
		if id.Association != win.AssociationDevice {
			continue
		}
		text := hex.EncodeToString(id.ID)
		if id.CodeSet == win.CodeSetASCII || id.CodeSet == win.CodeSetUTF8 {
			text = strings.TrimRight(string(id.ID), "\x00 ")
		}
		all = append(all, csiproxy.Identifier{Kind: kindOf(busType, id), Text: text})
	}
	return all
}

// kindOf names a designator type.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntddstor/ne-ntddstor-_storage_identifier_type
func kindOf(busType win.BusType, id win.Identifier) csiproxy.IdentifierKind {
	switch id.Type {
	case win.IdentifierVendorSpecific:
		return csiproxy.IdentifierVendorSpecific
	case win.IdentifierT10:
		return csiproxy.IdentifierT10
	case win.IdentifierEUI64:
		if busType == win.BusTypeNVMe && len(id.ID) == 16 {
			return csiproxy.IdentifierNGUID
		}
		return csiproxy.IdentifierEUI64
	case win.IdentifierNAA:
		return csiproxy.IdentifierNAA
	case win.IdentifierSCSIName:
		return csiproxy.IdentifierSCSIName
	}
	return csiproxy.IdentifierOther
}

// contents fills in a disk's size, state and partitions. If a sick disk refuses a query, contents
// stores the refusal as the disk's Error.
func (d *Disks) contents(ctx context.Context, s *csiproxy.Disk, h *opendisk.Disk) error {
	geometry, err := h.Geometry(ctx)
	if err := noted(&s.Error, err); err != nil {
		return err
	}
	s.SizeBytes = geometry.DiskSize
	state, err := h.State(ctx)
	if err := noted(&s.Error, err); err != nil {
		return err
	}
	s.Online, s.ReadOnly = err == nil && !state.Offline, state.ReadOnly
	layout, err := h.Layout(ctx)
	if errors.Is(err, winerr.ErrorNotReady) && state.Offline {
		return nil // an offline disk that is present may refuse the query with this error
	}
	if err != nil {
		return noted(&s.Error, err)
	}
	switch layout.Style {
	case win.StyleGPT:
		s.Style, s.DiskID = csiproxy.PartitionStyleGPT, layout.DiskID.String()
	case win.StyleMBR:
		s.Style, s.DiskID = csiproxy.PartitionStyleMBR, fmt.Sprintf("%08x", layout.Signature)
	default:
		s.Style = csiproxy.PartitionStyleRAW
	}
	for _, p := range layout.Partitions {
		if p.Number == 0 || p.Length == 0 { // an unused entry of an MBR
			continue
		}
		described := csiproxy.Partition{Number: p.Number, OffsetBytes: p.StartingOffset, SizeBytes: p.Length,
			Data: opendisk.IsDataPartition(p)}
		if described.Data && s.Online {
			if err := d.describeVolume(ctx, s.Number, &described); err != nil {
				return err
			}
		}
		s.Partitions = append(s.Partitions, described)
	}
	return nil
}

// maxPaths bounds the mount points of a volume in lists of disks, which watchers keep.
const maxPaths = 64

// describeVolume fills in the volume of a partition.
func (d *Disks) describeVolume(ctx context.Context, n csiproxy.DiskNumber, p *csiproxy.Partition) error {
	name, err := opendisk.VolumeOfPartition(ctx, d.options.Lists, n, p.Number)
	if winerr.IsGone(err) {
		p.Error = "its volume has not arrived"
		return nil
	}
	if err != nil {
		return noted(&p.Error, err)
	}
	p.VolumeID = csiproxy.VolumeID(name)
	if p.Paths, err = d.options.Users.MountedAt(ctx, name); err != nil {
		if err := noted(&p.Error, err); err != nil {
			return err
		}
	}
	if len(p.Paths) > maxPaths || slices.Contains(p.Paths, usage.ManyMore) {
		// ManyMore is the last path. The copy lets go of the rest.
		p.Paths, p.Error = slices.Clone(p.Paths[:min(maxPaths, len(p.Paths)-1)]), "it is mounted at "+usage.ManyMore
	}
	info, err := d.options.Lists.VolumeInformation(ctx, name)
	if errors.Is(err, winerr.ErrorUnrecognizedVolume) {
		p.FileSystem = csiproxy.NoFileSystem
		return nil
	}
	p.FileSystem, p.Label = info.FileSystem, info.Label
	return noted(&p.Error, err)
}

// noted stores err in note if Windows refused the query, and returns any other error.
func noted(note *string, err error) error {
	if !winerr.IsAnswer(err) {
		return err
	}
	if *note == "" {
		*note = err.Error()
	}
	return nil
}

// explainOffline fills in the reason why matching disks are offline. An offline disk may be a copy
// of another disk. For a zero selector, the list `all` has the ids of every disk. For another selector,
// explainOffline asks the node's disks for their ids.
func (d *Disks) explainOffline(ctx context.Context, all []csiproxy.Disk, wanted csiproxy.Selector) error {
	for i := range all {
		s := &all[i]
		if s.Online || s.Error != "" || !wanted.Matches(*s) {
			continue
		}
		s.OfflineReason = "reason unknown, often the SAN policy or an administrator"
		original := "" // the original's name in errors
		if wanted.IsZero() {
			for _, other := range all {
				if other.Online && s.DiskID != "" && other.DiskID == s.DiskID && other.Style == s.Style {
					original = diskObject(other.Number)
				}
			}
		} else {
			var err error
			if original, _, err = d.findOriginal(ctx, s.Number, tableIDsOf(*s)); err != nil {
				return err
			}
		}
		if original != "" {
			s.OfflineReason = "it is a copy of " + original + ", which is online"
		}
	}
	return nil
}
