// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/published"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/text/place"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// ListDiskIDs implements [published.DiskOperations].
func (d *Disks) ListDiskIDs(ctx context.Context) (_ map[csiproxy.DiskNumber]published.DiskIDs, err error) {
	defer d.options.Observer.End("ListDiskIDs", "", time.Now(), &err)
	return d.listIDs(ctx)
}

func (d *Disks) listIDs(ctx context.Context) (map[csiproxy.DiskNumber]published.DiskIDs, error) {
	all, err := d.eachDisk(ctx, &d.queries.ids, nil,
		func(ctx context.Context, h *opendisk.Disk, f *found) error {
			page83, err := page83(ctx, h)
			if err := d.options.Shared.tolerate(h.Number, "page 83", err); err != nil {
				return err
			}
			f.ids = published.DiskIDs{Page83: page83, SerialNumber: strings.Trim(h.Hardware.Descriptor.SerialNumber, " ")}
			return nil
		})
	ids := make(map[csiproxy.DiskNumber]published.DiskIDs, len(all))
	for _, a := range all {
		// A silent disk has its last number, which may belong to another disk by now.
		if _, isListed := ids[a.number]; a.err == nil || !isListed { // a disk that answered replaces a silent disk
			ids[a.number] = a.ids
		}
	}
	return ids, err
}

// FindDiskByPage83 implements [published.DiskOperations].
func (d *Disks) FindDiskByPage83(ctx context.Context, page83 string) (_ csiproxy.DiskNumber, err error) {
	defer d.options.Observer.End("FindDiskByPage83", strconv.Quote(page83), time.Now(), &err)
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
}

// ListDiskLocations implements [published.DiskOperations].
func (d *Disks) ListDiskLocations(ctx context.Context) (_ map[csiproxy.DiskNumber]published.DiskLocation, err error) {
	defer d.options.Observer.End("ListDiskLocations", "", time.Now(), &err)
	systemDisks, err := d.options.Users.SystemDisks(ctx)
	if err != nil {
		return nil, err
	}
	// Ask for missing protected volumes first: ProtectedDisks finds one that arrives afterwards.
	missing, err := d.options.Users.MissingNames(ctx)
	if err != nil {
		return nil, err
	}
	protected, err := d.options.Users.ProtectedDisks(ctx)
	if err != nil {
		return nil, err
	}
	all, err := d.eachDisk(ctx, &d.queries.locations, nil,
		func(ctx context.Context, h *opendisk.Disk, f *found) (err error) {
			f.location, err = d.options.Shared.location(ctx, h)
			return err
		})
	locations := make(map[csiproxy.DiskNumber]published.DiskLocation)
	for _, a := range all {
		_, runsWindows := systemDisks[a.number]
		// While a protected volume is missing, any disk but a known data disk of Azure may be its disk.
		if a.location.at != nil && !runsWindows && !protected[a.number] && (len(missing) == 0 || a.location.azureData) {
			locations[a.number] = *a.location.at
		}
	}
	return locations, err
}

// page83 returns the first device-associated identifier with a code set that drivers can compare.
// It ignores the identifier's type: drivers have compared exactly this choice since the first
// version of the API.
func page83(ctx context.Context, h *opendisk.Disk) (string, error) {
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

// location is where a disk is attached. at is nil if neither the text nor the address gives a
// location with a LUN.
type location struct {
	at        *published.DiskLocation
	azureData bool // the disk is known as a data disk of Azure
}

// location asks Windows for the text of a disk's location. The SCSI address counts only if the text
// is missing or of unknown form: if a text of known form has no LUN, the address has no useful LUN.
func (shared *SharedDisks) location(ctx context.Context, h *opendisk.Disk) (l location, _ error) {
	descriptor := h.Hardware.Descriptor
	if descriptor.BusType == win.BusTypeNVMe {
		namespaceLocation, err := shared.namespaceLocation(ctx, h)
		return location{namespaceLocation, namespaceLocation != nil}, err
	}
	text, err := h.LocationText(ctx)
	if err != nil || place.IsPath(text) || opendisk.IsAzureLocal(descriptor, text) {
		return l, err
	}
	switch p := place.Parse(text); {
	case p.LUN != "":
		l.at = &published.DiskLocation{Adapter: p.Adapter, Bus: p.Bus, Target: p.Target, LUNID: p.LUN}
		l.azureData = opendisk.IsAzureData(descriptor, text, nil)
	case p == place.Place{} && hasLUNs(descriptor.BusType):
		address, _, err := shared.address(ctx, h)
		if err != nil || address == nil {
			return l, err
		}
		// Bus is the PCI bus in a location text; an address has no PCI bus.
		l.at = &published.DiskLocation{Adapter: decimal(address.PortNumber), Target: decimal(address.TargetID),
			LUNID: decimal(address.LUN)}
		l.azureData = opendisk.IsAzureData(descriptor, text, address)
	}
	return l, nil
}

// hasLUNs reports whether the LUN in a disk's SCSI address is meaningful. It is not for these disks,
// whose LUN may equal the LUN of a volume's disk:
//   - a file attached as a disk, such as each container's scratch space on Windows Server 2019
//   - an IDE disk, such as Azure's temporary disk on machines of generation 1
//
// A driver comparing the LUN alone, such as the driver of Azure Disk, would take these disks for a
// volume's disk. Their location texts have no LUN: the text is a path, or ends with "Channel 1 :
// Device 0". The published daemon returns no location for them either.
//
// Source: https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/3038
func hasLUNs(bus win.BusType) bool {
	switch bus {
	case win.BusTypeFileBackedVirtual, win.BusTypeATAPI, win.BusTypeATA:
		return false
	}
	return true
}

// namespaceLocation is the location of an NVMe disk. The location text lacks the namespace. Only
// Azure's driver looks disks up by location, by LUNID alone. NVMe disks elsewhere have no location.
func (shared *SharedDisks) namespaceLocation(ctx context.Context, h *opendisk.Disk) (*published.DiskLocation, error) {
	address, namespace, err := shared.address(ctx, h)
	if err != nil {
		return nil, err
	}
	lun, ok := csiproxy.Disk{
		Vendor: h.Hardware.Descriptor.VendorID, Product: h.Hardware.Descriptor.ProductID,
		Location: csiproxy.Location{NVMeNamespace: namespace},
	}.AzureLUN()
	if !ok {
		return nil, nil
	}
	location := published.DiskLocation{LUNID: strconv.FormatUint(uint64(lun), 10)}
	if address != nil {
		location.Adapter, location.Target = decimal(address.PortNumber), decimal(address.TargetID)
	}
	return &location, nil
}

// address returns a disk's SCSI address, nil for none, and its NVMe namespace, 0 if unknown or if
// the disk isn't NVMe.
//
// Windows' usual NVMe driver presents the namespace n as SCSI LUN n-1. Under the native driver of
// Server 2025, an option for administrators, a disk lacks the SCSI layer. If the disk refuses the
// query, the namespace is unknown.
func (shared *SharedDisks) address(ctx context.Context, h *opendisk.Disk) (_ *win.SCSIAddress, namespace uint32, _ error) {
	address, err := h.SCSIAddress(ctx)
	if err != nil {
		return nil, 0, shared.tolerate(h.Number, "SCSI address", err)
	}
	if h.Hardware.Descriptor.BusType == win.BusTypeNVMe {
		namespace = uint32(address.LUN) + 1
	}
	return &address, namespace, nil
}

func decimal(b byte) string { return strconv.Itoa(int(b)) }
