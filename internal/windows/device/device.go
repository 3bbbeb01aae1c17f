// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package device does single operations on open disks and volumes: it builds the
// bytes of a control call, sends it, grows the buffer where Windows asks for
// that, and reads the answer. It holds no state and makes no decisions.
package device

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// VolumePath is the path under which the device of a volume is opened: its name without the
// backslash at the end. With that, Windows would open the root directory of its file system.
func VolumePath(name string) string { return strings.TrimSuffix(name, `\`) }

// PartitionPath is the path of a partition's device. It is there before the
// partition's volume has a name.
func PartitionPath(n csiproxy.DiskNumber, partition uint32) string {
	return fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition%d`, n, partition)
}

// Handle is an open disk or volume. Errors of its methods name the control call
// and wrap the winerr.Errno.
type Handle struct {
	win.Device
	Path string // by which Open opened it
}

// Open opens the device path.
func Open(ctx context.Context, sys win.DeviceOpener, path string, access win.Access) (Handle, error) {
	dev, err := sys.OpenDevice(ctx, path, access)
	if err != nil {
		return Handle{}, err
	}
	return Handle{dev, path}, nil
}

// ExtentsOf returns on which parts of which disks the volume at path lies.
func ExtentsOf(ctx context.Context, sys win.DeviceOpener, path string) ([]win.DiskExtent, error) {
	h, err := Open(ctx, sys, path, win.AccessNone)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.Extents(ctx)
}

func (h Handle) control(ctx context.Context, code win.IoctlCode, in, out []byte) ([]byte, error) {
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

// controlGrowing sends a call with ever larger buffers until its answer fits.
func (h Handle) controlGrowing(ctx context.Context, code win.IoctlCode, in []byte, size int) ([]byte, error) {
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
func (h Handle) send(ctx context.Context, code win.IoctlCode, in []byte) error {
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

// Number returns the numbers of the device: of a disk, or of a volume that lies
// on one partition.
func (h Handle) Number(ctx context.Context) (win.DeviceNumber, error) {
	return decoded(win.DecodeDeviceNumber)(h.control(ctx, win.IoctlStorageGetDeviceNumber, nil, make([]byte, 12)))
}

// answers are buffers for the answers to queries of properties. They are used again because they were
// half of what a list of disks allocated. That is safe: a decoded answer has no bytes of its buffer.
var answers = sync.Pool{New: func() any { return new([1024]byte) }}

// property reads a whole storage property, however long.
func property[T any](ctx context.Context, h Handle, id win.PropertyID, decode func([]byte) (T, error)) (T, error) {
	pooled := answers.Get().(*[1024]byte) // large enough for all answers but those with many identifiers
	defer answers.Put(pooled)
	query, buffer := win.EncodePropertyQuery(id), pooled[:]
	for {
		out, err := h.control(ctx, win.IoctlStorageQueryProperty, query, buffer)
		if err != nil {
			return decoded(decode)(nil, fmt.Errorf("property %d: %w", id, err))
		}
		// The driver cuts an answer that is too long and says in its header how
		// long it is.
		full, err := win.DescriptorSize(out)
		if err != nil || int64(full) <= int64(len(buffer)) || full > maximumOutput {
			return decoded(decode)(out, err)
		}
		buffer = make([]byte, full)
	}
}

// Identifiers returns the designators of VPD page 0x83.
func (h Handle) Identifiers(ctx context.Context) ([]win.Identifier, error) {
	return property(ctx, h, win.PropertyDeviceID, win.DecodeDeviceIDs)
}

// NVMeNamespace returns the identifiers of the NVMe namespace that a disk is. Windows may
// refuse the query.
func (h Handle) NVMeNamespace(ctx context.Context, namespace uint32) (win.NVMeNamespace, error) {
	query, out := win.EncodeNVMeNamespaceQuery(namespace), make([]byte, win.NVMeNamespaceSize)
	out, err := h.control(ctx, win.IoctlStorageQueryProperty, query, out)
	if err != nil {
		return win.NVMeNamespace{}, fmt.Errorf("property %d: %w", win.PropertyProtocolSpecific, err)
	}
	return win.DecodeNVMeNamespace(out)
}

// Descriptor returns the device's descriptor: bus, vendor, serial number.
func (h Handle) Descriptor(ctx context.Context) (win.DeviceDescriptor, error) {
	return property(ctx, h, win.PropertyDevice, win.DecodeDeviceDescriptor)
}

// Location returns where the device is attached.
func (h Handle) Location(ctx context.Context) (win.DeviceLocation, error) {
	return property(ctx, h, win.PropertyDeviceLocation, win.DecodeDeviceLocation)
}

// SCSIAddress returns the SCSI address of a disk whose bus has such addresses.
func (h Handle) SCSIAddress(ctx context.Context) (win.SCSIAddress, error) {
	return decoded(win.DecodeSCSIAddress)(h.control(ctx, win.IoctlScsiGetAddress, nil, make([]byte, 8)))
}

// Geometry returns sector size and capacity, as the disk driver last read them.
func (h Handle) Geometry(ctx context.Context) (win.DiskGeometryEx, error) {
	return decoded(win.DecodeDiskGeometryEx)(h.controlGrowing(ctx, win.IoctlDiskGetDriveGeometryEx, nil, 256))
}

// State is whether a disk is offline, and whether it is read-only. Either keeps it from being used.
type State struct{ Offline, ReadOnly bool }

// State returns a disk's state.
func (h Handle) State(ctx context.Context) (State, error) {
	a, err := decoded(win.DecodeGetDiskAttributes)(h.control(ctx, win.IoctlDiskGetDiskAttributes, nil, make([]byte, 16)))
	return State{Offline: a&win.DiskOffline != 0, ReadOnly: a&win.DiskReadOnly != 0}, err
}

// Writable returns nil for a disk or volume that can be written to. Else the error is winerr.ErrorWriteProtect.
func (h Handle) Writable(ctx context.Context) error {
	return h.send(ctx, win.IoctlDiskIsWritable, nil)
}

// AwaitVolumesReady waits until all volumes of a disk are ready for use. Other calls on the handle wait, too. The handle needs
// GenericRead.
func (h Handle) AwaitVolumesReady(ctx context.Context) error {
	return h.send(ctx, win.IoctlDiskAreVolumesReady, nil)
}

// SetState changes a disk's state from one to another, in one call to Windows. What is the same in both stays as it is. The
// state persists over a restart of the node.
func (h Handle) SetState(ctx context.Context, from, to State) error {
	set := win.SetDiskAttributes{Persist: true, Attributes: to.attributes(), Mask: from.attributes() ^ to.attributes()}
	set.Attributes &= set.Mask
	return h.send(ctx, win.IoctlDiskSetDiskAttributes, set.Encode())
}

func (s State) attributes() (a win.DiskAttributes) {
	if s.Offline {
		a |= win.DiskOffline
	}
	if s.ReadOnly {
		a |= win.DiskReadOnly
	}
	return a
}

// Layout returns the partition table of a disk.
func (h Handle) Layout(ctx context.Context) (*win.DriveLayout, error) {
	return decoded(win.DecodeDriveLayout)(h.controlGrowing(ctx, win.IoctlDiskGetDriveLayoutEx, nil, 4096))
}

// SetLayout replaces the whole partition table: a partition left out is removed.
func (h Handle) SetLayout(ctx context.Context, l *win.DriveLayout) error {
	return h.send(ctx, win.IoctlDiskSetDriveLayoutEx, l.Encode())
}

// CreateDisk writes an empty partition table.
func (h Handle) CreateDisk(ctx context.Context, c win.CreateDisk) error {
	return h.send(ctx, win.IoctlDiskCreateDisk, c.Encode())
}

// UpdateProperties makes the partition manager read the partition table again.
func (h Handle) UpdateProperties(ctx context.Context) error {
	return h.send(ctx, win.IoctlDiskUpdateProperties, nil)
}

// UpdateDriveSize makes the disk driver read the capacity again.
func (h Handle) UpdateDriveSize(ctx context.Context) error {
	_, err := h.control(ctx, win.IoctlDiskUpdateDriveSize, nil, make([]byte, win.DiskGeometrySize))
	return err
}

// GrowPartition makes a partition larger.
func (h Handle) GrowPartition(ctx context.Context, g win.GrowPartition) error {
	return h.send(ctx, win.IoctlDiskGrowPartition, g.Encode())
}

// Extents returns on which parts of which disks a volume lies.
func (h Handle) Extents(ctx context.Context) ([]win.DiskExtent, error) {
	return decoded(win.DecodeDiskExtents)(h.controlGrowing(ctx, win.IoctlVolumeGetVolumeDiskExtents, nil, 256))
}

// OnlineVolume brings a volume online. The handle needs GenericRead and GenericWrite.
func (h Handle) OnlineVolume(ctx context.Context) error {
	return h.send(ctx, win.IoctlVolumeOnline, nil)
}

// OfflineVolume takes a volume offline. The handle needs GenericRead and GenericWrite.
func (h Handle) OfflineVolume(ctx context.Context) error {
	return h.send(ctx, win.IoctlVolumeOffline, nil)
}

// FileSystemData returns the size of the volume's file system, whose name is as
// GetVolumeInformationW gives it: NTFS or ReFS.
func (h Handle) FileSystemData(ctx context.Context, fileSystem string) (win.FileSystemData, error) {
	switch fileSystem {
	case "NTFS":
		return decoded(win.DecodeNTFSVolumeData)(h.control(ctx, win.FsctlGetNtfsVolumeData, nil, make([]byte, 128)))
	case "ReFS":
		return decoded(win.DecodeREFSVolumeData)(h.control(ctx, win.FsctlGetRefsVolumeData, nil, make([]byte, 256)))
	}
	return win.FileSystemData{}, fmt.Errorf("size of a %s file system: %w", fileSystem, winerr.ErrorNotSupported)
}

// ExtendFileSystem grows the file system to the given number of sectors.
func (h Handle) ExtendFileSystem(ctx context.Context, sectors int64) error {
	return h.send(ctx, win.FsctlExtendVolume, win.EncodeInt64(sectors))
}

// LockVolume locks the volume for this handle until the handle is closed. If somebody has
// something open on the volume, the error is winerr.ErrorAccessDenied. The handle needs
// GenericRead.
func (h Handle) LockVolume(ctx context.Context) error {
	return h.send(ctx, win.FsctlLockVolume, nil)
}

// DismountVolume dismounts the file system of the volume until the handle is closed. A handle that
// has locked the volume keeps the lock. The handle needs GenericRead.
func (h Handle) DismountVolume(ctx context.Context) error {
	return h.send(ctx, win.FsctlDismountVolume, nil)
}

// IsDirty reports whether Windows wants to check the volume's file system. The handle needs
// GenericRead.
func (h Handle) IsDirty(ctx context.Context) (bool, error) {
	return decoded(win.DecodeVolumeIsDirty)(h.control(ctx, win.FsctlIsVolumeDirty, nil, make([]byte, 4)))
}
