// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"context"
	"strconv"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/place"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Names that Hyper-V's disks have: those on SCSI, and those on IDE of machines of generation 1.
const (
	hyperVVendor  = "Msft"
	hyperVProduct = "Virtual Disk"
	hyperVIDE     = "Virtual HD"
)

// LocationText returns the text in which Windows says where a disk is attached, "" if the disk doesn't know
// the query. Of a disk of Hyper-V, which may be Azure's temporary disk, any other error is returned.
func (d *Disk) LocationText(ctx context.Context) (string, error) {
	location, err := d.Location(ctx)
	if err == nil || winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported, winerr.ErrorInvalidParameter,
		winerr.ErrorNotFound) {
		return location.Text, nil
	}
	if err := answered(err); err != nil {
		return "", err
	}
	descriptor := d.Hardware.Descriptor
	if isNamed(descriptor.VendorID, hyperVVendor) || isNamed(descriptor.ProductID, hyperVIDE) ||
		d.Hardware.DescriptorErr != nil {
		return "", &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "where the disk is attached can't be found out, so it may be Azure's temporary disk"}
	}
	return "", nil
}

// IsAzureLocal reports whether a disk is attached as Azure's disk of Windows and its temporary disk are. text
// is its location text. On machines of generation 1 these are on IDE, the temporary disk on its second
// channel.
//
// Source: https://github.com/ansible-collections/community.windows/issues/622 has the text and the product
// of a temporary disk of generation 1. [place.Place] has those of the others.
func IsAzureLocal(descriptor win.DeviceDescriptor, text string) bool {
	location := place.Parse(text)
	return location.IsAzureLocal() ||
		isNamed(descriptor.ProductID, hyperVIDE) && location.Channel == "1" && location.Device == "0"
}

// IsAzureData reports whether a disk is known as a data disk of Azure: on SCSI by its controller or, if the
// location text names none, by an adapter other than that of Windows' disk; on NVMe by the model. at is
// its SCSI address. It may be nil if the disk has none, or if the text has a LUN.
func IsAzureData(descriptor win.DeviceDescriptor, text string, address *win.SCSIAddress) bool {
	if descriptor.BusType == win.BusTypeNVMe {
		if address == nil {
			return false
		}
		_, ok := csiproxy.Disk{Vendor: descriptor.VendorID, Product: descriptor.ProductID,
			Location: csiproxy.Location{NVMeNamespace: uint32(address.LUN) + 1}}.AzureLUN()
		return ok
	}
	if descriptor.BusType == win.BusTypeFileBackedVirtual || place.IsPath(text) ||
		!isNamed(descriptor.VendorID, hyperVVendor) || !isNamed(descriptor.ProductID, hyperVProduct) {
		return false
	}
	location := place.Parse(text)
	adapter := location.Adapter
	if adapter == "" && address != nil {
		adapter = strconv.Itoa(int(address.PortNumber))
	}
	return location.IsAzureData() || location.Device == "" && adapter != "" && adapter != "0"
}

func isNamed(name, wanted string) bool { return strings.EqualFold(strings.TrimSpace(name), wanted) }
