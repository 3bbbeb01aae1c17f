// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"encoding/binary"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

var le = binary.LittleEndian

// PartitionStyle is PARTITION_STYLE. Windows Management Instrumentation numbers
// the styles differently (0 RAW, 1 MBR, 2 GPT).
type PartitionStyle uint32

// Partition styles.
const (
	StyleMBR PartitionStyle = 0
	StyleGPT PartitionStyle = 1
	StyleRAW PartitionStyle = 2 // no partition table that Windows knows
)

// GPT partition attributes.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-partition_information_gpt
const (
	GPTAttributeReadOnly      uint64 = 1 << 60 // the volume is mounted read-only
	GPTAttributeHidden        uint64 = 1 << 62 // the volume isn't announced
	GPTAttributeNoDriveLetter uint64 = 1 << 63 // Windows assigns no letter by itself
)

// Sizes in bytes: DRIVE_LAYOUT_INFORMATION_EX without its partitions, and
// PARTITION_INFORMATION_EX.
const (
	layoutHeaderSize = 48
	partitionSize    = 144
	partitionNameLen = 36 // UTF-16 units
)

// DriveLayout is DRIVE_LAYOUT_INFORMATION_EX: the partition table of a disk.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-drive_layout_information_ex
type DriveLayout struct {
	Style PartitionStyle

	// The GPT header; zero for other styles.
	DiskID               winid.GUID
	StartingUsableOffset int64 // bytes
	UsableLength         int64 // bytes
	MaxPartitionCount    uint32

	// The MBR header; zero for other styles.
	Signature uint32

	Partitions []Partition
}

// HasVolumeInMBR reports whether Windows makes a volume for partitions of a type in a master boot
// record: the types of FAT, NTFS and exFAT.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/disk-partition-types, and IsRecognizedPartition of winioctl.h
func HasVolumeInMBR(kind byte) bool {
	switch kind {
	case 0x01, 0x04, 0x06, 0x07, 0x0B, 0x0C, 0x0E:
		return true
	}
	return false
}

// Partition is PARTITION_INFORMATION_EX.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-partition_information_ex
type Partition struct {
	Style            PartitionStyle
	StartingOffset   int64  // bytes from the start of the disk
	Length           int64  // bytes
	Number           uint32 // from 1; 0 lets the driver choose
	RewritePartition bool   // on setting: this entry is to be written

	// GPT.
	Type       winid.GUID
	ID         winid.GUID
	Attributes uint64
	Name       string // at most 36 UTF-16 units

	// MBR.
	MBRType       byte
	BootIndicator bool
}

// End is the first byte after the partition.
func (p Partition) End() int64 { return p.StartingOffset + p.Length }

// Encode returns the bytes of the structure.
func (l *DriveLayout) Encode() []byte {
	b := make([]byte, layoutHeaderSize+partitionSize*len(l.Partitions))
	le.PutUint32(b[0:], uint32(l.Style))
	le.PutUint32(b[4:], uint32(len(l.Partitions)))
	switch l.Style {
	case StyleGPT:
		copy(b[8:], l.DiskID[:])
		le.PutUint64(b[24:], uint64(l.StartingUsableOffset))
		le.PutUint64(b[32:], uint64(l.UsableLength))
		le.PutUint32(b[40:], l.MaxPartitionCount)
	case StyleMBR:
		le.PutUint32(b[8:], l.Signature)
	}
	for i, p := range l.Partitions {
		p.encode(b[layoutHeaderSize+partitionSize*i:])
	}
	return b
}

func (p Partition) encode(b []byte) {
	le.PutUint32(b[0:], uint32(p.Style))
	le.PutUint64(b[8:], uint64(p.StartingOffset))
	le.PutUint64(b[16:], uint64(p.Length))
	le.PutUint32(b[24:], p.Number)
	b[28] = boolByte(p.RewritePartition)
	switch p.Style {
	case StyleGPT:
		copy(b[32:], p.Type[:])
		copy(b[48:], p.ID[:])
		le.PutUint64(b[64:], p.Attributes)
		name := AppendUTF16(nil, p.Name)
		for i, u := range name[:min(len(name), partitionNameLen)] {
			le.PutUint16(b[72+2*i:], u)
		}
	case StyleMBR:
		b[32] = p.MBRType
		b[33] = boolByte(p.BootIndicator)
		copy(b[40:], p.ID[:])
	}
}

// DecodeDriveLayout reads what IoctlDiskGetDriveLayoutEx returned.
func DecodeDriveLayout(b []byte) (*DriveLayout, error) {
	if err := need("DRIVE_LAYOUT_INFORMATION_EX", b, layoutHeaderSize); err != nil {
		return nil, err
	}
	l := &DriveLayout{Style: PartitionStyle(le.Uint32(b))}
	count := int64(le.Uint32(b[4:]))
	switch l.Style {
	case StyleGPT:
		l.DiskID = winid.GUID(b[8:24])
		l.StartingUsableOffset = int64(le.Uint64(b[24:]))
		l.UsableLength = int64(le.Uint64(b[32:]))
		l.MaxPartitionCount = le.Uint32(b[40:])
	case StyleMBR:
		l.Signature = le.Uint32(b[8:])
	case StyleRAW:
		return l, nil
	default:
		return nil, fmt.Errorf("DRIVE_LAYOUT_INFORMATION_EX: unknown partition style %d", l.Style)
	}
	if have := int64(len(b) - layoutHeaderSize); count > have/partitionSize {
		return nil, fmt.Errorf("DRIVE_LAYOUT_INFORMATION_EX: %d partitions don't fit into %d bytes", count, len(b))
	}
	for i := range int(count) {
		l.Partitions = append(l.Partitions, decodePartition(b[layoutHeaderSize+partitionSize*i:]))
	}
	return l, nil
}

func decodePartition(b []byte) Partition {
	p := Partition{
		Style:            PartitionStyle(le.Uint32(b)),
		StartingOffset:   int64(le.Uint64(b[8:])),
		Length:           int64(le.Uint64(b[16:])),
		Number:           le.Uint32(b[24:]),
		RewritePartition: b[28] != 0,
	}
	switch p.Style {
	case StyleGPT:
		p.Type = winid.GUID(b[32:48])
		p.ID = winid.GUID(b[48:64])
		p.Attributes = le.Uint64(b[64:])
		p.Name = utf16String(b[72 : 72+2*partitionNameLen])
	case StyleMBR:
		p.MBRType = b[32]
		p.BootIndicator = b[33] != 0
		p.ID = winid.GUID(b[40:56])
	}
	return p
}

// CreateDisk is CREATE_DISK for a GPT disk: 24 bytes.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-create_disk
type CreateDisk struct {
	Style             PartitionStyle
	DiskID            winid.GUID
	MaxPartitionCount uint32
}

// Encode returns the bytes of the structure.
func (c CreateDisk) Encode() []byte {
	b := make([]byte, 24)
	le.PutUint32(b[0:], uint32(c.Style))
	copy(b[4:], c.DiskID[:])
	le.PutUint32(b[20:], c.MaxPartitionCount)
	return b
}

// DecodeCreateDisk reads the input of IoctlDiskCreateDisk.
func DecodeCreateDisk(b []byte) (CreateDisk, error) {
	if err := need("CREATE_DISK", b, 24); err != nil {
		return CreateDisk{}, err
	}
	return CreateDisk{PartitionStyle(le.Uint32(b)), winid.GUID(b[4:20]), le.Uint32(b[20:])}, nil
}

// GrowPartition is DISK_GROW_PARTITION: 16 bytes.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-disk_grow_partition
type GrowPartition struct {
	PartitionNumber uint32
	BytesToGrow     int64 // the growth, a multiple of the sector size
}

// Encode returns the bytes of the structure.
func (g GrowPartition) Encode() []byte {
	b := make([]byte, 16)
	le.PutUint32(b[0:], g.PartitionNumber)
	le.PutUint64(b[8:], uint64(g.BytesToGrow))
	return b
}

// DecodeGrowPartition reads the input of IoctlDiskGrowPartition.
func DecodeGrowPartition(b []byte) (GrowPartition, error) {
	if err := need("DISK_GROW_PARTITION", b, 16); err != nil {
		return GrowPartition{}, err
	}
	return GrowPartition{le.Uint32(b), int64(le.Uint64(b[8:]))}, nil
}

func need(what string, b []byte, n int) error {
	if len(b) < n {
		return fmt.Errorf("%s: %d bytes, at least %d are needed", what, len(b), n)
	}
	return nil
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// utf16String reads UTF-16 up to a NUL or the end of b.
func utf16String(b []byte) string {
	u := make([]uint16, 0, len(b)/2)
	for ; len(b) >= 2; b = b[2:] {
		c := le.Uint16(b)
		if c == 0 {
			break
		}
		u = append(u, c)
	}
	return StringFromUTF16(u)
}

func appendUTF16(b []byte, s string) []byte {
	for _, u := range AppendUTF16(nil, s) {
		b = le.AppendUint16(b, u)
	}
	return b
}
