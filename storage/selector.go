// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/iscsi"
)

// Selector says which disk is meant. A disk must match all fields that are set. The zero
// value matches every disk. docs/find-disk.md says which fields suit which cloud.
type Selector struct {
	// Number is Windows' number of the disk. Whatever disk has it when the operation begins
	// is the one that is meant.
	Number *disk.Number
	// SerialNumber is the disk's serial number. Case, blanks around it and hyphens don't
	// count. Windows gives an NVMe disk's serial number with the namespace behind it, as in
	// vol0123_00000001., which doesn't count either. A disk that has room for 20 characters
	// of a longer one, as virtio has, matches with these 20.
	SerialNumber string
	// Identifier is one of the identifiers of page 83, or of an NVMe namespace. Case and
	// hyphens don't count, nor does the vendor's name before an identifier of type T10.
	Identifier string
	// LUN is the SCSI logical unit number. It is no selector by itself, since each adapter
	// has a LUN 0: Vendor or Product must be set, too. Of an NVMe disk that Azure attaches,
	// it is the LUN that Azure gave it.
	LUN *uint32
	// Vendor and Product are those of the SCSI inquiry, without regard to case and blanks
	// around them. Windows keeps 8 characters of a vendor and 16 of a product, and no more
	// of them count.
	Vendor, Product string
	// NVMeNamespace is the id of an NVMe namespace; 0 stands for any. It is no selector by
	// itself, since each NVMe controller has a namespace 1: one of the other fields must be
	// set, too.
	NVMeNamespace uint32
	// ISCSI is the iSCSI logical unit that the disk is. StageVolume logs in to its target if
	// the node isn't connected; ListDisks doesn't.
	ISCSI *ISCSISelector
}

// ISCSISelector is a logical unit of an iSCSI target, and where the target is offered.
type ISCSISelector struct {
	Portal iscsi.Portal
	IQN    iscsi.IQN
	LUN    uint32
}

// IsZero reports whether the selector matches every disk.
func (s Selector) IsZero() bool { return s == Selector{} }

// maxText bounds the texts of a selector, in bytes: no identifier of page 83 is longer.
const maxText = 255

// Validate returns csiproxy.ErrInvalidArgument, with the reason, for a selector that can't
// mean one disk.
func (s Selector) Validate() error {
	for name, text := range map[string]string{
		"serial number": s.SerialNumber, "identifier": s.Identifier, "vendor": s.Vendor, "product": s.Product,
	} {
		switch {
		case text == "":
		case len(text) > maxText:
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the %s is longer than %d bytes", name, maxText)
		case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the %s isn't valid UTF-8 or has control characters", name)
		case fold(text) == "":
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the %s is blank", name)
		}
	}
	if s.LUN != nil && s.Vendor == "" && s.Product == "" {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument,
			"a LUN alone means a disk of each adapter: name the vendor or the product, too, such as Msft and Virtual Disk")
	}
	if s.NVMeNamespace != 0 && s.Vendor == "" && s.Product == "" && s.SerialNumber == "" && s.Identifier == "" {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument,
			"an NVMe namespace alone means a disk of each controller: name the product or the serial number, too")
	}
	if s.ISCSI != nil {
		return s.ISCSI.validate()
	}
	return nil
}

func (s ISCSISelector) validate() error {
	if s.Portal.Address == "" {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the address of the iSCSI portal is empty")
	}
	return s.IQN.Validate()
}

// Matches reports whether a disk is meant.
func (s Selector) Matches(d Disk) bool {
	return (s.Number == nil || *s.Number == d.Number) &&
		(s.SerialNumber == "" || sameSerial(s.SerialNumber, d)) &&
		(s.Identifier == "" || hasIdentifier(s.Identifier, d)) &&
		(s.LUN == nil || hasLUN(*s.LUN, d)) &&
		(s.Vendor == "" || sameInquiry(s.Vendor, d.Vendor, 8)) &&
		(s.Product == "" || sameInquiry(s.Product, d.Product, 16)) &&
		(s.NVMeNamespace == 0 || s.NVMeNamespace == d.Location.NVMeNamespace) &&
		(s.ISCSI == nil || d.ISCSI != nil && d.ISCSI.IQN.Equal(s.ISCSI.IQN) && d.ISCSI.LUN == s.ISCSI.LUN)
}

// fold returns a text without what doesn't count in serial numbers and identifiers.
func fold(s string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "-", "")
}

// virtioSerial is how many characters of a serial number virtio has room for.
//
// Source: https://docs.oasis-open.org/virtio/virtio/v1.2/virtio-v1.2.html (5.2.6.1, VIRTIO_BLK_T_GET_ID)
const virtioSerial = 20

func sameSerial(wanted string, d Disk) bool {
	has, want := fold(d.SerialNumber), fold(wanted)
	switch {
	case has == "":
		return false
	case has == want, d.Bus == BusNVMe && withoutNamespace(has) == want:
		return true
	}
	trimmed := strings.ToLower(strings.TrimSpace(d.SerialNumber))
	return len(trimmed) == virtioSerial && strings.HasPrefix(strings.ToLower(strings.TrimSpace(wanted)), trimmed)
}

// withoutNamespace takes off what Windows' NVMe driver puts behind a serial number: the
// namespace's id, as in "_00000001.".
func withoutNamespace(serial string) string {
	const suffix = "_00000001."
	at := len(serial) - len(suffix)
	if at <= 0 || serial[at] != '_' || serial[len(serial)-1] != '.' {
		return serial
	}
	if _, err := strconv.ParseUint(serial[at+1:len(serial)-1], 16, 32); err != nil {
		return serial
	}
	return serial[:at]
}

// vendorLength is how long the vendor's name is in an identifier of type T10.
//
// Source: SPC-4, 7.8.6.4 (T10 vendor ID based designator format)
const vendorLength = 8

func hasIdentifier(wanted string, d Disk) bool {
	want := fold(wanted)
	for _, id := range d.Identifiers {
		if fold(id.Text) == want || id.Kind == T10 && len(id.Text) > vendorLength && fold(id.Text[vendorLength:]) == want {
			return true
		}
	}
	return false
}

// sameInquiry compares a vendor or product of the SCSI inquiry, which has room for so many
// characters.
func sameInquiry(wanted, has string, room int) bool {
	cut := func(s string) string {
		s = strings.TrimSpace(s)
		return strings.TrimSpace(s[:min(len(s), room)])
	}
	return strings.EqualFold(cut(wanted), cut(has))
}

// azureRemoteDisk is the product through which Azure attaches its disks by NVMe, as far as
// an inquiry has room for it. The disk with Azure's LUN n is the namespace n+2.
//
// Source: https://github.com/Azure/azure-vm-utils (disk identification)
const azureRemoteDisk = "MSFT NVMe Accelerator v1.0"

func hasLUN(lun uint32, d Disk) bool {
	if d.Location.NVMeNamespace != 0 && sameInquiry(azureRemoteDisk, d.Product, 16) {
		return d.Location.NVMeNamespace == lun+2
	}
	return d.Location.SCSI != nil && uint32(d.Location.SCSI.LUN) == lun
}

// String describes the selector in errors, in words that complete "no disk has …".
func (s Selector) String() string {
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	if s.Number != nil {
		add("the number %d", *s.Number)
	}
	if s.SerialNumber != "" {
		add("the serial number %q", s.SerialNumber)
	}
	if s.Identifier != "" {
		add("the identifier %q", s.Identifier)
	}
	if s.LUN != nil {
		add("the LUN %d", *s.LUN)
	}
	if s.NVMeNamespace != 0 {
		add("the NVMe namespace %d", s.NVMeNamespace)
	}
	if s.Vendor != "" {
		add("the vendor %q", s.Vendor)
	}
	if s.Product != "" {
		add("the product %q", s.Product)
	}
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
