// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/text/place"
)

// Selector selects disks. A disk must match all fields that are set. The zero value matches every
// disk. docs/storage-api.md says which fields suit which cloud.
type Selector struct {
	// Number is Windows' number of the disk. The selector means the disk with this number at the
	// beginning of the operation.
	Number *DiskNumber
	// SerialNumber is the disk's serial number, ignoring case, surrounding blanks and hyphens.
	// Windows appends the namespace to an NVMe disk's serial number, as in vol0123_00000001.; the
	// namespace is ignored too. A disk with room for only 20 characters of a longer serial number,
	// as with virtio, matches by these 20.
	SerialNumber string
	// Identifier is an identifier of page 83, or of an NVMe namespace, ignoring case, hyphens, and
	// the vendor's name before an identifier of type T10. An EUI-64 or NGUID may be bare digits,
	// begin with eui. as in Linux and page 83, or be in groups as in Windows' serial number. The
	// zeros after the 16 digits of GCE's identifiers are optional.
	Identifier string
	// Adapter and Port are the disk's attachment, as in Disk.Location.SCSI. Windows may renumber
	// adapters when the node starts again. Each adapter has a port 0, so a port needs its adapter.
	Adapter, Port *uint32
	// LUN is the SCSI logical unit number. Each adapter has a LUN 0, so Adapter, Vendor or Product
	// must be set, too. NVMe disks have no LUN. A file attached as a disk matches only together
	// with its adapter.
	LUN *uint32
	// AzureLUN is the LUN with which Azure has attached a data disk, by SCSI or by NVMe. See
	// Disk.AzureLUN for details.
	AzureLUN *uint32
	// Vendor and Product come from the SCSI inquiry, ignoring case and surrounding blanks. Only the
	// first 8 characters of a vendor and 16 of a product count, because Windows keeps no more.
	Vendor, Product string
	// NVMeNamespace is the id of an NVMe namespace; 0 matches any. Each NVMe controller has a
	// namespace 1, so another field must be set, too.
	NVMeNamespace uint32
	// ISCSI is the disk's iSCSI logical unit. If the node isn't connected, StageVolume logs in to
	// the target; ListDisks doesn't.
	ISCSI *ISCSISelector
}

// ISCSISelector is a logical unit of an iSCSI target, and the target's portal.
type ISCSISelector struct {
	Portal ISCSIPortal
	IQN    IQN
	LUN    uint32
}

// IsZero reports whether the selector matches every disk.
func (s Selector) IsZero() bool { return s == Selector{} }

// maxText is the longest text of a selector, in bytes: the maximum of identifiers in page 83.
const maxText = 255

// Validate returns ErrInvalidArgument, with the reason, for a malformed or ambiguous selector.
func (s Selector) Validate() error {
	for name, text := range map[string]string{
		"serial number": s.SerialNumber, "identifier": s.Identifier, "vendor": s.Vendor, "product": s.Product,
	} {
		switch {
		case text == "":
		case len(text) > maxText:
			return Errorf(ErrInvalidArgument, "the %s is longer than %d bytes", name, maxText)
		case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
			return Errorf(ErrInvalidArgument, "the %s isn't valid UTF-8 or has control characters", name)
		case fold(text) == "":
			return Errorf(ErrInvalidArgument, "the %s is blank", name)
		}
	}
	if s.LUN != nil && s.Adapter == nil && s.Vendor == "" && s.Product == "" {
		return Errorf(ErrInvalidArgument,
			"a LUN alone means a disk of each adapter: name the adapter, the vendor or the product, too; "+
				"on Azure, select by Azure's LUN instead")
	}
	if s.Port != nil && s.Adapter == nil {
		return Errorf(ErrInvalidArgument, "a port means one of each adapter: name the adapter, too")
	}
	if s.NVMeNamespace != 0 && s.Adapter == nil && s.Vendor == "" && s.Product == "" && s.SerialNumber == "" &&
		s.Identifier == "" {
		return Errorf(ErrInvalidArgument,
			"an NVMe namespace alone means a disk of each controller: name the adapter, the product or the serial number, too")
	}
	if s.ISCSI != nil {
		return s.ISCSI.validate()
	}
	return nil
}

func (s ISCSISelector) validate() error {
	if s.Portal.Address == "" {
		return Errorf(ErrInvalidArgument, "the address of the iSCSI portal is empty")
	}
	return s.IQN.Validate()
}

// Matches reports whether the selector matches a disk.
func (s Selector) Matches(disk Disk) bool {
	return (s.Number == nil || *s.Number == disk.Number) &&
		(s.SerialNumber == "" || sameSerial(s.SerialNumber, disk)) &&
		(s.Identifier == "" || hasIdentifier(s.Identifier, disk)) &&
		(s.Adapter == nil || disk.Location.SCSI != nil && uint32(disk.Location.SCSI.Adapter) == *s.Adapter) &&
		(s.Port == nil || disk.Location.SCSI != nil && uint32(disk.Location.SCSI.Port) == *s.Port) &&
		(s.LUN == nil || hasLUN(*s.LUN, disk) && (s.Adapter != nil || disk.Bus != BusFile)) &&
		(s.AzureLUN == nil || hasAzureLUN(*s.AzureLUN, disk)) &&
		(s.Vendor == "" || sameInquiry(s.Vendor, disk.Vendor, 8)) &&
		(s.Product == "" || sameInquiry(s.Product, disk.Product, 16)) &&
		(s.NVMeNamespace == 0 || s.NVMeNamespace == disk.Location.NVMeNamespace) &&
		(s.ISCSI == nil || disk.ISCSI != nil && disk.ISCSI.IQN.Equal(s.ISCSI.IQN) && disk.ISCSI.LUN == s.ISCSI.LUN)
}

// fold removes the insignificant parts of serial numbers and identifiers.
func fold(s string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "-", "")
}

// virtioSerial is virtio's room for a serial number, in characters.
//
// Source: https://docs.oasis-open.org/virtio/virtio/v1.2/virtio-v1.2.html (5.2.6.1, VIRTIO_BLK_T_GET_ID)
const virtioSerial = 20

func sameSerial(wanted string, disk Disk) bool {
	has, want := fold(disk.SerialNumber), fold(wanted)
	switch {
	case has == "":
		return false
	case has == want, disk.Bus == BusNVMe && withoutNamespace(has) == want:
		return true
	}
	trimmed := strings.ToLower(strings.TrimSpace(disk.SerialNumber))
	return len(trimmed) == virtioSerial && strings.HasPrefix(strings.ToLower(strings.TrimSpace(wanted)), trimmed)
}

// withoutNamespace removes the suffix added by Windows' NVMe driver to a serial number: the
// namespace's id, as in "_00000001.".
func withoutNamespace(serial string) string {
	const suffix = "_00000001."
	index := len(serial) - len(suffix)
	if index <= 0 || serial[index] != '_' || serial[len(serial)-1] != '.' {
		return serial
	}
	if _, err := strconv.ParseUint(serial[index+1:len(serial)-1], 16, 32); err != nil {
		return serial
	}
	return serial[:index]
}

// vendorLength is the length of the vendor's name in an identifier of type T10.
//
// Source: SPC-4, 7.8.6.4 (T10 vendor ID based designator format)
const vendorLength = 8

func hasIdentifier(wanted string, disk Disk) bool {
	want, wantEUI := fold(wanted), euiDigits(wanted)
	for _, id := range disk.Identifiers {
		if fold(id.Text) == want || wantEUI != "" && euiDigits(id.Text) == wantEUI ||
			id.Kind == IdentifierT10 && len(id.Text) > vendorLength && fold(id.Text[vendorLength:]) == want {
			return true
		}
	}
	// If Windows' driver has no query for identifiers, the serial number still has the namespace's.
	return wantEUI != "" && disk.Bus == BusNVMe && euiDigits(disk.SerialNumber) == wantEUI
}

// euiDigits returns the hexadecimal digits of an EUI-64 or NGUID, without the prefixes and
// separators of Windows, Linux and page 83, and without eight zero bytes after the first eight. For
// any other text, euiDigits returns "".
//
// Source: https://github.com/kubernetes-sigs/gcp-compute-persistent-disk-csi-driver 08a69a91,
// pkg/mount-manager/safe-mounter-v1_windows.go (convertSerialToEUI: 10CC_9636_B6E3_CE3B_0000_0000_0000_0000.),
// https://github.com/canonical/cloud-init/issues/4598 (by-id/nvme-eui.381e69dc168a4101b7c0f7db5a9b0001)
func euiDigits(text string) string {
	digits := strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "nvme-"), "eui.")
	digits = strings.NewReplacer("_", "", "-", "").Replace(strings.TrimSuffix(digits, "."))
	const eui64, nguid = 16, 32
	isDigit := func(r rune) bool { return '0' <= r && r <= '9' || 'a' <= r && r <= 'f' }
	if len(digits) != eui64 && len(digits) != nguid || strings.Trim(digits, "0") == "" ||
		strings.ContainsFunc(digits, func(r rune) bool { return !isDigit(r) }) {
		return ""
	}
	return strings.TrimSuffix(digits, strings.Repeat("0", nguid-eui64))
}

// sameInquiry compares a vendor or product with the SCSI inquiry's, of room characters.
func sameInquiry(wanted, has string, room int) bool {
	cut := func(s string) string {
		s = strings.TrimSpace(s)
		return strings.TrimSpace(s[:min(len(s), room)])
	}
	return strings.EqualFold(cut(wanted), cut(has))
}

func hasLUN(wanted uint32, disk Disk) bool {
	return disk.Location.SCSI != nil && disk.Location.NVMeNamespace == 0 && uint32(disk.Location.SCSI.LUN) == wanted
}

// azureRemoteDisks begin the products of Azure's disks attached by NVMe: the controller's model,
// and Windows' name of the disk ("Virtual_Disk NVME Premium", "… Ultra"). Which of them the inquiry
// has is unverified. Azure's local NVMe disks have a different product.
var azureRemoteDisks = []string{"MSFT NVMe Accele", "Virtual_Disk NVM"}

// AzureLUN returns the LUN with which Azure has attached a data disk. For any other disk, ok is
// false.
//
// By NVMe, the disk with LUN n is the namespace n+2; namespace 1 is the disk of Windows. By SCSI,
// the disk of Windows and the temporary disk are on adapter 0, on a controller of their own named
// in the location text. Data disks are on other adapters. A container's scratch space, a file with
// the same vendor and product but its own LUNs, is on another adapter too.
//
// Source: https://github.com/Azure/azure-vm-utils,
// https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/3632 (NVMe) and
// https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/2671 (SCSI; names of disks)
func (d Disk) AzureLUN() (lun uint32, ok bool) {
	if namespace := d.Location.NVMeNamespace; namespace != 0 {
		return namespace - 2, namespace >= 2 && slices.ContainsFunc(azureRemoteDisks, func(name string) bool {
			return sameInquiry(name, d.Product, len(name)) || sameInquiry(name, d.Vendor, len(name))
		})
	}
	address, location := d.Location.SCSI, place.Parse(d.Location.Text)
	if address == nil || location.IsAzureLocal() || address.Adapter == 0 && !location.IsAzureData() || d.Bus == BusFile ||
		!sameInquiry("Msft", d.Vendor, 8) || !sameInquiry("Virtual Disk", d.Product, 16) {
		return 0, false
	}
	return uint32(address.LUN), true
}

func hasAzureLUN(wanted uint32, disk Disk) bool {
	lun, ok := disk.AzureLUN()
	return ok && lun == wanted
}

// String describes the selector in errors, in words that complete "no disk has …".
func (s Selector) String() string {
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	number := func(format string, n *uint32) {
		if n != nil {
			add(format, *n)
		}
	}
	text := func(what, text string) {
		if text != "" {
			add("the %s %q", what, text)
		}
	}
	number("the number %d", (*uint32)(s.Number))
	text("serial number", s.SerialNumber)
	text("identifier", s.Identifier)
	number("the adapter %d", s.Adapter)
	number("the port %d", s.Port)
	number("the LUN %d", s.LUN)
	number("the LUN %d of Azure", s.AzureLUN)
	if s.NVMeNamespace != 0 {
		add("the NVMe namespace %d", s.NVMeNamespace)
	}
	text("vendor", s.Vendor)
	text("product", s.Product)
	if s.ISCSI != nil {
		add("the iSCSI LUN %d of target %q", s.ISCSI.LUN, s.ISCSI.IQN)
	}
	switch len(parts) {
	case 0:
		return "any property"
	case 1:
		return parts[0]
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
