// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"encoding/binary"
	"math/bits"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// fsKind is a file system that the node can format and mount.
type fsKind string

const (
	kindNTFS fsKind = "NTFS"
	kindReFS fsKind = "ReFS"
)

// bootSector is the first sector of a formatted volume. The bytes on the disk
// decide what a volume holds, as they do in Windows.
type bootSector struct {
	kind              fsKind
	bytesPerSector    uint32
	sectorsPerCluster uint32
	totalSectors      int64
	serial            uint64
}

func (b bootSector) cluster() int64 { return int64(b.bytesPerSector) * int64(b.sectorsPerCluster) }

// capacity is the size of the file system in bytes: whole clusters.
func (b bootSector) capacity() int64 {
	return b.totalSectors / int64(b.sectorsPerCluster) * b.cluster()
}

const (
	bootSignature  = 0xAA55
	maxClusterSize = 2 << 20
	// bootAreaSize is what formatting overwrites at the start of a volume: NTFS's
	// file $Boot.
	bootAreaSize = 8192
)

// encode returns the sector, for a partition that begins at a sector of its disk.
// Of ReFS only the beginning is documented; the fields behind it are where public
// tools read them, and the checksum is left out.
//
// Source: https://flatcap.github.io/linux-ntfs/ntfs/files/boot.html and
// https://learn.microsoft.com/windows/win32/fileio/file-system-recognition-structure
func (b bootSector) encode(start int64) []byte {
	le := binary.LittleEndian
	s := make([]byte, b.bytesPerSector)
	le.PutUint16(s[510:], bootSignature)
	if b.kind == kindReFS {
		copy(s[3:], "ReFS\x00\x00\x00\x00")
		copy(s[16:], "FSRS")
		le.PutUint16(s[20:], 512) // the length of this structure
		le.PutUint64(s[24:], uint64(b.totalSectors))
		le.PutUint32(s[32:], b.bytesPerSector)
		le.PutUint32(s[36:], b.sectorsPerCluster)
		s[40], s[41] = 3, 4 // version
		le.PutUint64(s[56:], b.serial)
		return s
	}
	copy(s, "\xEB\x52\x90NTFS    ")
	le.PutUint16(s[11:], uint16(b.bytesPerSector))
	s[13] = byte(b.sectorsPerCluster)
	if b.sectorsPerCluster > 128 { // a power of two, as a negative exponent
		s[13] = byte(-int8(bits.TrailingZeros32(b.sectorsPerCluster)))
	}
	s[21] = 0xF8 // media: fixed disk
	le.PutUint16(s[24:], 63)
	le.PutUint16(s[26:], 255)
	le.PutUint32(s[28:], uint32(start))
	le.PutUint32(s[36:], 0x00800080)
	le.PutUint64(s[40:], uint64(b.totalSectors))
	le.PutUint64(s[48:], uint64(min(0xC0000, b.totalSectors/int64(b.sectorsPerCluster)/3))) // $MFT
	le.PutUint64(s[56:], 2)                                                                 // $MFTMirr
	// file records of 1024 bytes, index blocks of a cluster
	s[64], s[68] = 0xF6, 1
	le.PutUint64(s[72:], b.serial)
	return s
}

// decodeBootSector reads a sector; ok tells whether it is one of NTFS or ReFS.
func decodeBootSector(s []byte) (b bootSector, ok bool) {
	le := binary.LittleEndian
	if len(s) < 512 || le.Uint16(s[510:]) != bootSignature {
		return b, false
	}
	switch {
	case string(s[3:11]) == "NTFS    ":
		b = bootSector{
			kind: kindNTFS, bytesPerSector: uint32(le.Uint16(s[11:])), sectorsPerCluster: uint32(s[13]),
			totalSectors: int64(le.Uint64(s[40:])), serial: le.Uint64(s[72:]),
		}
		if s[13] > 128 {
			b.sectorsPerCluster = 1 << min(31, -int8(s[13]))
		}
	case string(s[3:11]) == "ReFS\x00\x00\x00\x00" && string(s[16:20]) == "FSRS":
		b = bootSector{
			kind: kindReFS, bytesPerSector: le.Uint32(s[32:]), sectorsPerCluster: le.Uint32(s[36:]),
			totalSectors: int64(le.Uint64(s[24:])), serial: le.Uint64(s[56:]),
		}
	default:
		return b, false
	}
	ok = b.bytesPerSector >= 512 && b.bytesPerSector <= 4096 && b.sectorsPerCluster > 0 &&
		b.cluster() <= maxClusterSize && b.totalSectors > 0
	return b, ok
}

// defaultCluster is the cluster size that Windows chooses for a volume of size
// bytes.
//
// Source: https://learn.microsoft.com/windows-server/storage/file-server/ntfs-overview
func defaultCluster(kind fsKind, size int64) uint32 {
	const tib = 1 << 40
	cluster := uint32(4096)
	if kind == kindReFS {
		return cluster
	}
	for limit := int64(16 * tib); size > limit && cluster < maxClusterSize; limit *= 2 {
		cluster *= 2
	}
	return cluster
}

// encodeReFSVolumeData returns a REFS_VOLUME_DATA_BUFFER.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-refs_volume_data_buffer
func encodeReFSVolumeData(serial uint64, d win.FileSystemData) []byte {
	le := binary.LittleEndian
	b := make([]byte, 152)
	le.PutUint32(b[0:], uint32(len(b)))
	le.PutUint32(b[4:], 3) // MajorVersion, MinorVersion
	le.PutUint32(b[8:], 4)
	le.PutUint64(b[16:], serial)
	le.PutUint64(b[24:], uint64(d.NumberSectors))
	le.PutUint64(b[32:], uint64(d.TotalClusters))
	le.PutUint64(b[40:], uint64(d.FreeClusters))
	le.PutUint32(b[56:], d.BytesPerSector)
	le.PutUint32(b[60:], d.BytesPerCluster)
	return b
}
