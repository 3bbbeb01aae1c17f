// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// VolumePath is the path for opening the device of a volume: the volume's name without the
// backslash at the end. With the backslash, Windows would open the root directory of the file
// system.
func VolumePath(name string) string { return strings.TrimSuffix(name, `\`) }

// PartitionPath is the path of a partition's device. The path exists before the partition's volume
// has a name.
func PartitionPath(n csiproxy.DiskNumber, partition uint32) string {
	return fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition%d`, n, partition)
}

// DeviceHandle is an open disk or volume. Each method makes one control call, and grows the buffer
// if Windows asks for more. Errors of the methods name the control call and wrap the winerr.Errno.
type DeviceHandle struct {
	Device
	Path string // by which OpenDevice opened it
}

// OpenDevice opens the device path.
func OpenDevice(ctx context.Context, sys DeviceOpener, path string, access Access) (DeviceHandle, error) {
	dev, err := sys.OpenDevice(ctx, path, access)
	if err != nil {
		return DeviceHandle{}, err
	}
	return DeviceHandle{dev, path}, nil
}

// ExtentsOf returns the disks, and the ranges on them, of the volume at path.
func ExtentsOf(ctx context.Context, sys DeviceOpener, path string) ([]DiskExtent, error) {
	h, err := OpenDevice(ctx, sys, path, AccessNone)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.Extents(ctx)
}

func (h DeviceHandle) control(ctx context.Context, code IoctlCode, in, out []byte) ([]byte, error) {
	n, err := h.Control(ctx, code, in, out)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", code, err)
	}
	if n < 0 || n > len(out) {
		return nil, fmt.Errorf("%v: %d bytes were returned into a buffer of %d", code, n, len(out))
	}
	return out[:n], nil
}

// maximumOutput bounds the buffers of growing calls: a partition table of 128
// entries takes 18 KiB.
const maximumOutput = 1 << 20

// maximumProperty bounds the answers to queries of properties, which are kept for each disk. Real
// answers take a few hundred bytes.
const maximumProperty = 8 << 10

// controlGrowing sends a call with ever larger buffers until its answer fits.
func (h DeviceHandle) controlGrowing(ctx context.Context, code IoctlCode, in []byte, size int) ([]byte, error) {
	for {
		out, err := h.control(ctx, code, in, make([]byte, size))
		small := errors.Is(err, winerr.ErrorInsufficientBuffer) || errors.Is(err, winerr.ErrorMoreData)
		if !small || size >= maximumOutput {
			return out, err
		}
		size *= 4
	}
}

// send sends a call that has no answer.
func (h DeviceHandle) send(ctx context.Context, code IoctlCode, in []byte) error {
	_, err := h.control(ctx, code, in, nil)
	return err
}

// decoded returns a function that decodes the answer to a call, or returns the call's error.
func decoded[T any](decode func([]byte) (T, error)) func(answer []byte, err error) (T, error) {
	return func(answer []byte, err error) (value T, _ error) {
		if err != nil {
			return value, err
		}
		return decode(answer)
	}
}

// Number returns the numbers of the device: a disk, or a volume on a single partition.
func (h DeviceHandle) Number(ctx context.Context) (DeviceNumber, error) {
	return decoded(DecodeDeviceNumber)(h.control(ctx, IoctlStorageGetDeviceNumber, nil, make([]byte, 12)))
}

// answers are buffers for the answers to queries of properties. They are reused, because they were
// half of the allocations of a list of disks. Reuse is safe: a decoded answer has no bytes of its
// buffer.
var answers = sync.Pool{New: func() any { return new([1024]byte) }}

// property reads and decodes a storage property.
func property[T any](ctx context.Context, h DeviceHandle, id PropertyID, decode func([]byte) (T, error)) (T, error) {
	pooled := answers.Get().(*[1024]byte) // large enough for all answers but those with many identifiers
	defer answers.Put(pooled)
	return decoded(decode)(h.property(ctx, id, pooled[:]))
}

// property reads a whole storage property. The buffer is used if the property fits into it.
func (h DeviceHandle) property(ctx context.Context, id PropertyID, buffer []byte) ([]byte, error) {
	query := EncodePropertyQuery(id)
	for {
		out, err := h.control(ctx, IoctlStorageQueryProperty, query, buffer)
		if err != nil {
			return nil, fmt.Errorf("property %d: %w", id, err)
		}
		// The driver cuts an answer that is too long and gives the full length in its header.
		full, err := DescriptorSize(out)
		if err != nil || int64(full) <= int64(len(buffer)) || full > maximumProperty {
			return out, err
		}
		buffer = make([]byte, full)
	}
}

// Identifiers returns the designators of VPD page 0x83.
func (h DeviceHandle) Identifiers(ctx context.Context) ([]Identifier, error) {
	return property(ctx, h, PropertyDeviceID, DecodeDeviceIDs)
}

// NVMeNamespace returns the identifiers of a disk's NVMe namespace. Windows may refuse the query.
func (h DeviceHandle) NVMeNamespace(ctx context.Context, namespace uint32) (NVMeNamespace, error) {
	query, out := EncodeNVMeNamespaceQuery(namespace), make([]byte, NVMeNamespaceSize)
	out, err := h.control(ctx, IoctlStorageQueryProperty, query, out)
	if err != nil {
		return NVMeNamespace{}, fmt.Errorf("property %d: %w", PropertyProtocolSpecific, err)
	}
	return DecodeNVMeNamespace(out)
}

// Descriptor returns the device's descriptor: bus, vendor, serial number.
func (h DeviceHandle) Descriptor(ctx context.Context) (DeviceDescriptor, error) {
	return property(ctx, h, PropertyDevice, DecodeDeviceDescriptor)
}

// Location returns the device's location.
func (h DeviceHandle) Location(ctx context.Context) (DeviceLocation, error) {
	return property(ctx, h, PropertyDeviceLocation, DecodeDeviceLocation)
}

// SCSIAddress returns the SCSI address of a disk on a bus with SCSI addresses.
func (h DeviceHandle) SCSIAddress(ctx context.Context) (SCSIAddress, error) {
	return decoded(DecodeSCSIAddress)(h.control(ctx, IoctlScsiGetAddress, nil, make([]byte, 8)))
}

// Geometry returns sector size and capacity, as the disk driver last read them.
func (h DeviceHandle) Geometry(ctx context.Context) (DiskGeometryEx, error) {
	return decoded(DecodeDiskGeometryEx)(h.controlGrowing(ctx, IoctlDiskGetDriveGeometryEx, nil, 256))
}

// DiskState holds the offline and read-only attributes of a disk. Either makes the disk unusable.
type DiskState struct{ Offline, ReadOnly bool }

// State returns a disk's state.
func (h DeviceHandle) State(ctx context.Context) (DiskState, error) {
	a, err := decoded(DecodeGetDiskAttributes)(h.control(ctx, IoctlDiskGetDiskAttributes, nil, make([]byte, 16)))
	return DiskState{Offline: a&DiskOffline != 0, ReadOnly: a&DiskReadOnly != 0}, err
}

// Writable returns nil for a writable disk or volume. Else the error is winerr.ErrorWriteProtect.
func (h DeviceHandle) Writable(ctx context.Context) error {
	return h.send(ctx, IoctlDiskIsWritable, nil)
}

// AwaitVolumesReady waits until all volumes of a disk are ready for use. Meanwhile, other calls on
// the handle wait too. The handle needs GenericRead.
func (h DeviceHandle) AwaitVolumesReady(ctx context.Context) error {
	return h.send(ctx, IoctlDiskAreVolumesReady, nil)
}

// SetState changes a disk's state from one to another, in one call to Windows. Attributes equal in
// both stay unchanged. The state persists over a restart of the node.
func (h DeviceHandle) SetState(ctx context.Context, from, to DiskState) error {
	set := SetDiskAttributes{Persist: true, Attributes: to.attributes(), Mask: from.attributes() ^ to.attributes()}
	set.Attributes &= set.Mask
	return h.send(ctx, IoctlDiskSetDiskAttributes, set.Encode())
}

func (s DiskState) attributes() (a DiskAttributes) {
	if s.Offline {
		a |= DiskOffline
	}
	if s.ReadOnly {
		a |= DiskReadOnly
	}
	return a
}

// Layout returns the partition table of a disk.
func (h DeviceHandle) Layout(ctx context.Context) (*DriveLayout, error) {
	return decoded(DecodeDriveLayout)(h.controlGrowing(ctx, IoctlDiskGetDriveLayoutEx, nil, 4096))
}

// SetLayout replaces the whole partition table: a partition left out is removed.
func (h DeviceHandle) SetLayout(ctx context.Context, l *DriveLayout) error {
	return h.send(ctx, IoctlDiskSetDriveLayoutEx, l.Encode())
}

// CreateDisk writes an empty partition table.
func (h DeviceHandle) CreateDisk(ctx context.Context, c CreateDisk) error {
	return h.send(ctx, IoctlDiskCreateDisk, c.Encode())
}

// UpdateProperties makes the partition manager read the partition table again.
func (h DeviceHandle) UpdateProperties(ctx context.Context) error {
	return h.send(ctx, IoctlDiskUpdateProperties, nil)
}

// UpdateDriveSize makes the disk driver read the capacity again.
func (h DeviceHandle) UpdateDriveSize(ctx context.Context) error {
	_, err := h.control(ctx, IoctlDiskUpdateDriveSize, nil, make([]byte, DiskGeometrySize))
	return err
}

// GrowPartition makes a partition larger.
func (h DeviceHandle) GrowPartition(ctx context.Context, g GrowPartition) error {
	return h.send(ctx, IoctlDiskGrowPartition, g.Encode())
}

// Extents returns the disks, and the ranges on them, of a volume.
func (h DeviceHandle) Extents(ctx context.Context) ([]DiskExtent, error) {
	return decoded(DecodeDiskExtents)(h.controlGrowing(ctx, IoctlVolumeGetVolumeDiskExtents, nil, 256))
}

// OnlineVolume brings a volume online. The handle needs GenericRead and GenericWrite.
func (h DeviceHandle) OnlineVolume(ctx context.Context) error {
	return h.send(ctx, IoctlVolumeOnline, nil)
}

// OfflineVolume takes a volume offline. The handle needs GenericRead and GenericWrite.
func (h DeviceHandle) OfflineVolume(ctx context.Context) error {
	return h.send(ctx, IoctlVolumeOffline, nil)
}

// FileSystemData returns the size of the volume's file system. fileSystem is the name from
// GetVolumeInformationW: NTFS or ReFS.
func (h DeviceHandle) FileSystemData(ctx context.Context, fileSystem string) (FileSystemData, error) {
	switch fileSystem {
	case "NTFS":
		return decoded(DecodeNTFSVolumeData)(h.control(ctx, FsctlGetNtfsVolumeData, nil, make([]byte, 128)))
	case "ReFS":
		return decoded(DecodeREFSVolumeData)(h.control(ctx, FsctlGetRefsVolumeData, nil, make([]byte, 256)))
	}
	return FileSystemData{}, fmt.Errorf("size of a %s file system: %w", fileSystem, winerr.ErrorNotSupported)
}

// ExtendFileSystem grows the file system to the given number of sectors.
func (h DeviceHandle) ExtendFileSystem(ctx context.Context, sectors int64) error {
	return h.send(ctx, FsctlExtendVolume, EncodeInt64(sectors))
}

// LockVolume locks the volume for this handle until the handle is closed. If anything is open on
// the volume, the error is winerr.ErrorAccessDenied. The handle needs GenericRead.
func (h DeviceHandle) LockVolume(ctx context.Context) error {
	return h.send(ctx, FsctlLockVolume, nil)
}

// DismountVolume dismounts the file system of the volume until the handle is closed. A lock of the
// volume by this handle stays. The handle needs GenericRead.
func (h DeviceHandle) DismountVolume(ctx context.Context) error {
	return h.send(ctx, FsctlDismountVolume, nil)
}

// IsDirty reports whether Windows wants to check the volume's file system. The handle needs
// GenericRead.
func (h DeviceHandle) IsDirty(ctx context.Context) (bool, error) {
	return decoded(DecodeVolumeIsDirty)(h.control(ctx, FsctlIsVolumeDirty, nil, make([]byte, 4)))
}
