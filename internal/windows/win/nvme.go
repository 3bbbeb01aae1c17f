// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"bytes"
	"fmt"
)

// NVMeNamespace is the part of NVME_IDENTIFY_NAMESPACE_DATA that names a namespace of an NVMe
// controller. Both ids are zero if the controller gives none.
//
// Source: https://learn.microsoft.com/windows/win32/api/nvme/ns-nvme-nvme_identify_namespace_data
type NVMeNamespace struct {
	NGUID [16]byte
	EUI64 [8]byte
}

// Sizes and values of the queries for NVMe data.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/working-with-nvme-devices
const (
	protocolQueryHeader = 8  // PropertyId and QueryType of STORAGE_PROPERTY_QUERY; Version and Size of the answer
	protocolDataSize    = 40 // STORAGE_PROTOCOL_SPECIFIC_DATA
	namespaceDataSize   = 4096
	nguidOffset         = 104
	eui64Offset         = 120

	protocolTypeNVMe    = 3 // ProtocolTypeNvme
	nvmeDataIdentify    = 1 // NVMeDataTypeIdentify
	nvmeCNSOneNamespace = 0 // NVME_IDENTIFY_CNS_SPECIFIC_NAMESPACE
	protocolDescriptor  = protocolQueryHeader + protocolDataSize
)

// NVMeNamespaceSize is the size in bytes of the answer to an identify query, and of its buffer.
const NVMeNamespaceSize = protocolDescriptor + namespaceDataSize

// EncodeNVMeNamespaceQuery returns the STORAGE_PROPERTY_QUERY with which IoctlStorageQueryProperty
// asks an NVMe disk for the namespace with an id, as a property of the device
// (PropertyProtocolSpecific). The buffer has room for the answer, as the documentation recommends.
//
// Windows tells the id of a disk's namespace only in its SCSI form: the namespace n is the LUN n-1,
// and if the controller gives neither EUI-64 nor NGUID, the serial number ends in the id.
//
// Undocumented: whether each Windows answers for the device. Public code asks the adapter, or the
// device, both through the handle of the disk. Drivers of virtual machines may lack the query, and
// callers must cope with an error.
func EncodeNVMeNamespaceQuery(id uint32) []byte {
	b := make([]byte, NVMeNamespaceSize)
	le.PutUint32(b[0:], uint32(PropertyProtocolSpecific))
	putProtocolData(b[protocolQueryHeader:], id)
	return b
}

func putProtocolData(b []byte, namespace uint32) {
	le.PutUint32(b[0:], protocolTypeNVMe)
	le.PutUint32(b[4:], nvmeDataIdentify)
	le.PutUint32(b[8:], nvmeCNSOneNamespace)
	le.PutUint32(b[12:], namespace)
	le.PutUint32(b[16:], protocolDataSize)
	le.PutUint32(b[20:], namespaceDataSize)
}

// DecodeNVMeNamespaceQuery reads the input of IoctlStorageQueryProperty for
// PropertyProtocolSpecific. A query for anything but a namespace is an error.
func DecodeNVMeNamespaceQuery(b []byte) (id uint32, err error) {
	const what = "STORAGE_PROTOCOL_SPECIFIC_DATA"
	if err := need(what, b, protocolDescriptor); err != nil {
		return 0, err
	}
	p := b[protocolQueryHeader:]
	if le.Uint32(p) != protocolTypeNVMe || le.Uint32(p[4:]) != nvmeDataIdentify ||
		le.Uint32(p[8:]) != nvmeCNSOneNamespace ||
		le.Uint32(p[16:]) < protocolDataSize || le.Uint32(p[20:]) < namespaceDataSize {
		return 0, fmt.Errorf("%s: it doesn't ask for an NVMe namespace", what)
	}
	return le.Uint32(p[12:]), nil
}

// EncodeNVMeNamespace returns a STORAGE_PROTOCOL_DATA_DESCRIPTOR with the identify data of the
// namespace with an id.
func EncodeNVMeNamespace(id uint32, n NVMeNamespace) []byte {
	b := make([]byte, NVMeNamespaceSize)
	le.PutUint32(b[0:], protocolDescriptor)
	le.PutUint32(b[4:], protocolDescriptor)
	putProtocolData(b[protocolQueryHeader:], id)
	copy(b[protocolDescriptor+nguidOffset:], n.NGUID[:])
	copy(b[protocolDescriptor+eui64Offset:], n.EUI64[:])
	return b
}

// DecodeNVMeNamespace reads the answer to EncodeNVMeNamespaceQuery. The descriptor's Size excludes
// the data.
func DecodeNVMeNamespace(b []byte) (NVMeNamespace, error) {
	const what = "STORAGE_PROTOCOL_DATA_DESCRIPTOR"
	if err := need(what, b, protocolDescriptor); err != nil {
		return NVMeNamespace{}, err
	}
	p := b[protocolQueryHeader:]
	offset, length := int64(le.Uint32(p[16:])), int64(le.Uint32(p[20:]))
	if le.Uint32(p) != protocolTypeNVMe || le.Uint32(p[4:]) != nvmeDataIdentify {
		return NVMeNamespace{}, fmt.Errorf("%s: it isn't NVMe identify data", what)
	}
	var n NVMeNamespace
	if offset < protocolDataSize || length < eui64Offset+int64(len(n.EUI64)) || offset+length > int64(len(p)) {
		return NVMeNamespace{}, fmt.Errorf("%s: %d bytes at %d don't fit into %d", what, length, offset, len(p))
	}
	data := p[offset : offset+length]
	copy(n.NGUID[:], data[nguidOffset:])
	copy(n.EUI64[:], data[eui64Offset:])
	return n, nil
}

// NVMeSerial returns the serial number of a namespace's disk in the property PropertyDevice: VPD
// page 80 as NVM Express translates the page for SCSI. The serial number is the NGUID or else the
// EUI-64 in groups of four hexadecimal digits, joined by "_". If the controller gives neither, like
// AWS's, the serial number is the controller's, followed by "_" and the namespace's id with eight
// digits. All forms end with ".".
//
// Source: NVM Express: SCSI Translation Reference, section 6.1.3
func NVMeSerial(controller string, id uint32, n NVMeNamespace) string {
	unique := n.NGUID[:]
	if n.NGUID == [16]byte{} {
		unique = n.EUI64[:]
	}
	if n == (NVMeNamespace{}) {
		return fmt.Sprintf("%s_%08X.", controller, id)
	}
	var groups [][]byte
	for i := 0; i < len(unique); i += 2 {
		groups = append(groups, fmt.Appendf(nil, "%02X%02X", unique[i], unique[i+1]))
	}
	return string(bytes.Join(groups, []byte("_"))) + "."
}
