// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// VolumeInformation is the result of GetVolumeInformationW for a mounted file system.
type VolumeInformation struct {
	FileSystem string // "NTFS", "ReFS", "FAT32", …
	Label      string
	Serial     uint32
	Flags      FileSystemFlags
}

// FileSystemFlags are the file system flags from GetVolumeInformationW.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getvolumeinformationw
type FileSystemFlags uint32

// FileReadOnlyVolume is FILE_READ_ONLY_VOLUME: writes to the volume fail.
const FileReadOnlyVolume FileSystemFlags = 0x00080000

// DiskSpace is the result of GetDiskFreeSpaceExW, in bytes.
type DiskSpace struct {
	Available uint64 // to the caller, under its quota
	Total     uint64 // of the file system
	Free      uint64 // of the file system
}

// FormatOptions are the arguments of a format. A format is always quick.
type FormatOptions struct {
	FileSystem  string // "NTFS" or "ReFS"
	Label       string
	ClusterSize uint32 // bytes; 0 lets Windows choose
	// NoShortNames makes no 8.3 names beside the long ones. Only with NTFS.
	NoShortNames bool
	// IntegrityStreams protects the contents of files by checksums. Only with ReFS, which by
	// default protects only its own structures.
	IntegrityStreams bool
	// UpdateList has storage management rebuild its list of disks and volumes before the format.
	// Because the update may take longer than the format, set UpdateList only after a format has
	// failed.
	UpdateList bool
}

// RepairMode is what MSFT_Volume.Repair does.
type RepairMode int

// Repair modes.
const (
	// RepairScan searches for errors while the volume is in use, and notes on the volume the
	// repairs left for a spot fix (chkdsk /scan).
	RepairScan RepairMode = iota
	// RepairSpotFix makes the repairs noted by a scan. The volume is offline for a moment (chkdsk
	// /spotfix).
	RepairSpotFix
	// RepairOffline takes the volume offline, searches for errors, and repairs them (chkdsk /f).
	RepairOffline
)

// RepairResult is the out parameter Output of MSFT_Volume.Repair. Its values are undocumented.
// Healthy volumes were only seen with RepairNoErrors, for which PowerShell prints NoErrorsFound.
type RepairResult uint32

// RepairNoErrors is the result of a volume without errors. Every other result means errors.
const RepairNoErrors RepairResult = 0

// DiskExtent is DISK_EXTENT: a range of bytes of a disk, used by a volume.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-disk_extent
type DiskExtent struct {
	DiskNumber     csiproxy.DiskNumber
	StartingOffset int64 // bytes
	Length         int64 // bytes
}

const (
	extentsHeader = 8
	extentSize    = 24
)

// EncodeDiskExtents returns a VOLUME_DISK_EXTENTS.
func EncodeDiskExtents(extents []DiskExtent) []byte {
	b := make([]byte, extentsHeader+extentSize*len(extents))
	le.PutUint32(b, uint32(len(extents)))
	for i, e := range extents {
		eb := b[extentsHeader+extentSize*i:]
		le.PutUint32(eb[0:], uint32(e.DiskNumber))
		le.PutUint64(eb[8:], uint64(e.StartingOffset))
		le.PutUint64(eb[16:], uint64(e.Length))
	}
	return b
}

// DecodeDiskExtents reads the output of IoctlVolumeGetVolumeDiskExtents.
func DecodeDiskExtents(b []byte) ([]DiskExtent, error) {
	if err := need("VOLUME_DISK_EXTENTS", b, extentsHeader); err != nil {
		return nil, err
	}
	count := int64(le.Uint32(b))
	if count > int64(len(b)-extentsHeader)/extentSize {
		return nil, fmt.Errorf("VOLUME_DISK_EXTENTS: %d extents don't fit into %d bytes", count, len(b))
	}
	extents := make([]DiskExtent, count)
	for i := range extents {
		eb := b[extentsHeader+extentSize*i:]
		extents[i] = DiskExtent{csiproxy.DiskNumber(le.Uint32(eb)), int64(le.Uint64(eb[8:])), int64(le.Uint64(eb[16:]))}
	}
	return extents, nil
}

// FileSystemData is the size of a file system, as its own control code returns it:
// NTFS_VOLUME_DATA_BUFFER (96 bytes) or REFS_VOLUME_DATA_BUFFER (152 bytes).
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-ntfs_volume_data_buffer
type FileSystemData struct {
	NumberSectors   int64
	TotalClusters   int64
	FreeClusters    int64
	BytesPerSector  uint32
	BytesPerCluster uint32
}

const (
	ntfsDataSize = 96
	refsDataSize = 152
)

// EncodeNTFSVolumeData returns an NTFS_VOLUME_DATA_BUFFER.
func EncodeNTFSVolumeData(data FileSystemData) []byte {
	b := make([]byte, ntfsDataSize)
	le.PutUint64(b[8:], uint64(data.NumberSectors))
	le.PutUint64(b[16:], uint64(data.TotalClusters))
	le.PutUint64(b[24:], uint64(data.FreeClusters))
	le.PutUint32(b[40:], data.BytesPerSector)
	le.PutUint32(b[44:], data.BytesPerCluster)
	return b
}

// DecodeNTFSVolumeData reads the output of FsctlGetNtfsVolumeData.
func DecodeNTFSVolumeData(b []byte) (FileSystemData, error) {
	if err := need("NTFS_VOLUME_DATA_BUFFER", b, ntfsDataSize); err != nil {
		return FileSystemData{}, err
	}
	return FileSystemData{
		NumberSectors: int64(le.Uint64(b[8:])), TotalClusters: int64(le.Uint64(b[16:])),
		FreeClusters:   int64(le.Uint64(b[24:])),
		BytesPerSector: le.Uint32(b[40:]), BytesPerCluster: le.Uint32(b[44:]),
	}, nil
}

// DecodeREFSVolumeData reads the output of FsctlGetRefsVolumeData.
func DecodeREFSVolumeData(b []byte) (FileSystemData, error) {
	if err := need("REFS_VOLUME_DATA_BUFFER", b, refsDataSize); err != nil {
		return FileSystemData{}, err
	}
	return FileSystemData{
		NumberSectors: int64(le.Uint64(b[24:])), TotalClusters: int64(le.Uint64(b[32:])),
		FreeClusters:   int64(le.Uint64(b[40:])),
		BytesPerSector: le.Uint32(b[56:]), BytesPerCluster: le.Uint32(b[60:]),
	}, nil
}

// volumeIsDirty is VOLUME_IS_DIRTY.
const volumeIsDirty = 1

// EncodeVolumeIsDirty returns the answer of FsctlIsVolumeDirty.
func EncodeVolumeIsDirty(dirty bool) []byte {
	return le.AppendUint32(nil, uint32(boolByte(dirty))*volumeIsDirty)
}

// DecodeVolumeIsDirty reads the output of FsctlIsVolumeDirty: a ULONG with flags.
func DecodeVolumeIsDirty(b []byte) (bool, error) {
	if err := need("the flags of a dirty volume", b, 4); err != nil {
		return false, err
	}
	return le.Uint32(b)&volumeIsDirty != 0, nil
}

// EncodeInt64 returns an 8-byte LARGE_INTEGER: the input of FsctlExtendVolume
// (the new number of sectors of the volume) and the output of
// IoctlDiskGetLengthInfo (bytes).
func EncodeInt64(v int64) []byte { return le.AppendUint64(nil, uint64(v)) }

// DecodeInt64 reads an 8-byte LARGE_INTEGER.
func DecodeInt64(b []byte) (int64, error) {
	if err := need("LARGE_INTEGER", b, 8); err != nil {
		return 0, err
	}
	return int64(le.Uint64(b)), nil
}
