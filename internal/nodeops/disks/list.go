// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/disk"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// ListDiskIDs implements [disk.Operations].
func (d *Disks) ListDiskIDs(ctx context.Context) (map[disk.Number]disk.IDs, error) {
	return operation.Get(ctx, d.options.Runner, "ListDiskIDs", "",
		func(ctx context.Context) (map[disk.Number]disk.IDs, error) {
			return d.listIDs(ctx)
		})
}

func (d *Disks) listIDs(ctx context.Context) (map[disk.Number]disk.IDs, error) {
	all, err := eachDisk(ctx, d, "ids", d.visits.patience, nil,
		func(ctx context.Context, _ string, n disk.Number, h device.Handle) (disk.IDs, error) {
			page83, err := page83(ctx, h)
			if err := d.tolerate(n, "page 83", err); err != nil {
				return disk.IDs{}, err
			}
			descriptor, err := h.Descriptor(ctx)
			if err := d.tolerate(n, "serial number", err); err != nil {
				return disk.IDs{}, err
			}
			return disk.IDs{Page83: page83, SerialNumber: strings.Trim(descriptor.SerialNumber, " ")}, nil
		})
	ids := make(map[disk.Number]disk.IDs, len(all))
	for _, a := range all {
		// The number of a disk that doesn't answer is remembered: another disk may have it by now.
		if _, answered := ids[a.number]; a.err == nil || !answered {
			ids[a.number] = a.value
		}
	}
	return ids, err
}

// FindDiskByPage83 implements [disk.Operations].
func (d *Disks) FindDiskByPage83(ctx context.Context, page83 string) (disk.Number, error) {
	return operation.Get(ctx, d.options.Runner, "FindDiskByPage83", strconv.Quote(page83),
		func(ctx context.Context) (disk.Number, error) {
			if page83 == "" {
				return 0, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the identifier is empty")
			}
			all, err := d.listIDs(ctx)
			if err != nil {
				return 0, err
			}
			for _, n := range slices.Sorted(maps.Keys(all)) {
				if all[n].Page83 == page83 {
					return n, nil
				}
			}
			return 0, csiproxy.Errorf(csiproxy.ErrNotFound, "no disk has this page 83 identifier")
		})
}

// ListDiskLocations implements [disk.Operations].
func (d *Disks) ListDiskLocations(ctx context.Context) (map[disk.Number]disk.Location, error) {
	return operation.Get(ctx, d.options.Runner, "ListDiskLocations", "",
		func(ctx context.Context) (map[disk.Number]disk.Location, error) {
			windows, err := d.options.SystemDisks.All(ctx)
			if err != nil {
				return nil, err
			}
			protected, err := d.options.Owner.ProtectedDisks(ctx)
			if err != nil {
				return nil, err
			}
			all, err := eachDisk(ctx, d, "location", d.visits.patience, nil, d.location)
			locations := make(map[disk.Number]disk.Location)
			for _, a := range all {
				if _, runsWindows := windows[a.number]; a.value != nil && !runsWindows && !protected[a.number] {
					locations[a.number] = *a.value
				}
			}
			return locations, err
		})
}

// page83 returns the first device-associated identifier with a code set that
// drivers can compare. Type isn't looked at: drivers have compared this very
// choice since the first version of the API.
func page83(ctx context.Context, h device.Handle) (string, error) {
	ids, err := h.Identifiers(ctx)
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		if id.Association != win.AssociationDevice {
			continue
		}
		switch id.CodeSet {
		case win.CodeSetASCII:
			return string(id.ID), nil
		case win.CodeSetBinary:
			return hex.EncodeToString(id.ID), nil
		}
	}
	return "", nil
}

// location asks for the text that Windows shows for a disk and, where there is
// none, for the SCSI address. It is nil if the disk has neither, or has no LUN.
func (d *Disks) location(ctx context.Context, _ string, n disk.Number, h device.Handle) (*disk.Location, error) {
	descriptor, err := h.Descriptor(ctx)
	if err := d.tolerate(n, "bus", err); err != nil {
		return nil, err
	}
	if descriptor.BusType == win.BusTypeNVMe {
		return d.namespaceLocation(ctx, n, h, descriptor)
	}
	described, err := h.Location(ctx)
	if err := d.tolerate(n, "location", err); err != nil {
		return nil, err
	}
	if location, ok := parseLocation(described.Text); ok {
		return &location, nil
	}
	if described.Text != "" || !hasLUNs(descriptor.BusType) {
		return nil, nil
	}
	address, err := h.SCSIAddress(ctx)
	if err != nil {
		return nil, d.tolerate(n, "SCSI address", err)
	}
	return &disk.Location{
		Adapter: decimal(address.PortNumber),
		Target:  decimal(address.TargetID),
		LUNID:   decimal(address.LUN),
		// Bus is the PCI bus in a location text, which an address doesn't have.
	}, nil
}

// hasLUNs reports whether the LUN in a disk's SCSI address means anything. Windows also has such
// an address, with a LUN that a volume's disk may have, for
//   - a file that is attached as a disk. Windows Server 2019 shows the scratch space of each
//     container so.
//   - an IDE disk, as Azure's temporary disk on machines of generation 1 is
//
// A driver that looks at the LUN alone, as that of Azure Disk does, would take these for a volume's
// disk. Their location texts, a path or one that ends with "Channel 1 : Device 0", have no LUN, and
// the published daemon tells none either.
//
// Source: https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/3038
func hasLUNs(bus win.BusType) bool {
	switch bus {
	case win.BusTypeFileBackedVirtual, win.BusTypeATAPI, win.BusTypeATA:
		return false
	}
	return true
}

// namespaceLocation is the location of an NVMe disk. An NVMe namespace has no SCSI
// address, and the location text has none. Only one cloud's driver looks disks up by
// their locations: that of Azure, by LUNID alone. Windows' NVMe driver presents namespace
// m as SCSI LUN m-1. Other NVMe disks have no location.
func (d *Disks) namespaceLocation(ctx context.Context, n disk.Number, h device.Handle,
	descriptor win.DeviceDescriptor) (*disk.Location, error) {
	address, err := h.SCSIAddress(ctx)
	if err != nil {
		return nil, d.tolerate(n, "SCSI address", err)
	}
	lun, ok := storage.Disk{
		Vendor: descriptor.VendorID, Product: descriptor.ProductID,
		Location: storage.Location{NVMeNamespace: uint32(address.LUN) + 1},
	}.AzureLUN()
	if !ok {
		return nil, nil
	}
	return &disk.Location{
		Adapter: decimal(address.PortNumber),
		Target:  decimal(address.TargetID),
		LUNID:   strconv.FormatUint(uint64(lun), 10),
	}, nil
}

func decimal(b byte) string { return strconv.Itoa(int(b)) }

// parseLocation reads a text such as
// "Integrated : Bus 0 : Device 63667 : Function 30747 : Adapter 1 : Port 0 : Target 0 : LUN 1".
// A text without a LUN, such as the path of a virtual disk's file or the PCI place of a
// controller, tells no location.
func parseLocation(text string) (_ disk.Location, ok bool) {
	parts := strings.Split(text, ":")
	var l disk.Location
	fields := map[string]*string{"Adapter": &l.Adapter, "Bus": &l.Bus, "Target": &l.Target, "LUN": &l.LUNID}
	for _, part := range parts {
		words := strings.Fields(part)
		if len(words) != 2 {
			continue // "Integrated", "PCI Slot 3"
		}
		if field, known := fields[words[0]]; known {
			*field = words[1]
		}
	}
	return l, len(parts) >= 5 && l.LUNID != ""
}
