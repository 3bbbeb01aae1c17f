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

// Names of Hyper-V's disks: on SCSI, and on IDE on machines of generation 1.
const (
	hyperVVendor  = "Msft"
	hyperVProduct = "Virtual Disk"
	hyperVIDE     = "Virtual HD"
)

// LocationText returns Windows' text for where a disk is attached, "" if the disk lacks the query.
// For a disk of Hyper-V, possibly Azure's temporary disk, all other errors are returned.
func (d *Disk) LocationText(ctx context.Context) (string, error) {
	location, err := d.Location(ctx)
	if err == nil || winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported, winerr.ErrorInvalidParameter,
		winerr.ErrorNotFound) {
		return location.Text, nil
	}
	if err := ignoreRefusal(err); err != nil {
		return "", err
	}
	descriptor := d.Hardware.Descriptor
	isOfHyperV := isNamed(descriptor.VendorID, hyperVVendor) || isNamed(descriptor.ProductID, hyperVIDE)
	if isOfHyperV || d.Hardware.DescriptorErr != nil {
		return "", &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "Windows doesn't say where the disk is attached, so it may be Azure's temporary disk"}
	}
	return "", nil
}

// IsAzureLocal reports whether a disk is attached in the place of Azure's disk of Windows or
// temporary disk. text is its location text. On machines of generation 1, both disks are on IDE,
// the temporary disk on the second channel.
//
// Source: https://github.com/ansible-collections/community.windows/issues/622 has the text and the
// product of a temporary disk of generation 1. [place.Place] has the others.
func IsAzureLocal(descriptor win.DeviceDescriptor, text string) bool {
	location := place.Parse(text)
	return location.IsAzureLocal() ||
		isNamed(descriptor.ProductID, hyperVIDE) && location.Channel == "1" && location.Device == "0"
}

// IsAzureData reports whether a disk is known as a data disk of Azure: on SCSI by its controller
// or, if the location text names none, by an adapter other than the adapter of Windows' disk; on
// NVMe by the model. address may be nil if the disk has no SCSI address, or if the text has a LUN.
func IsAzureData(descriptor win.DeviceDescriptor, text string, address *win.SCSIAddress) bool {
	if descriptor.BusType == win.BusTypeNVMe {
		if address == nil {
			return false
		}
		_, ok := csiproxy.Disk{Vendor: descriptor.VendorID, Product: descriptor.ProductID,
			Location: csiproxy.Location{NVMeNamespace: uint32(address.LUN) + 1}}.AzureLUN()
		return ok
	}
	isOfHyperV := isNamed(descriptor.VendorID, hyperVVendor) && isNamed(descriptor.ProductID, hyperVProduct)
	isFile := descriptor.BusType == win.BusTypeFileBackedVirtual || place.IsPath(text)
	if isFile || !isOfHyperV {
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
