// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagewire

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// text returns a text of a response. Texts may come from hardware: invalid UTF-8 is replaced,
// because a single invalid byte would fail the whole response.
func text[T ~string](s T) string { return wire.ValidText(string(s)) }

// EncodeDisks returns the response for disks.
func EncodeDisks(disks []csiproxy.Disk) *storagev1alpha1.ListDisksResponse {
	return &storagev1alpha1.ListDisksResponse{Disks: each(disks, encodeDisk)}
}

// DecodeDisks returns the disks in a response.
func DecodeDisks(m *storagev1alpha1.ListDisksResponse) ([]csiproxy.Disk, error) {
	return decode(m.Disks, (*decoder).disks)
}

func encodeDisk(disk csiproxy.Disk) *storagev1alpha1.Disk {
	m := &storagev1alpha1.Disk{
		Number:         uint32(disk.Number),
		SizeBytes:      disk.SizeBytes,
		SerialNumber:   text(disk.SerialNumber),
		Identifiers:    each(disk.Identifiers, encodeIdentifier),
		Vendor:         text(disk.Vendor),
		Product:        text(disk.Product),
		Bus:            text(disk.Bus),
		Location:       text(disk.Location.Text),
		NvmeNamespace:  disk.Location.NVMeNamespace,
		Online:         disk.Online,
		ReadOnly:       disk.ReadOnly,
		OfflineReason:  text(disk.OfflineReason),
		PartitionStyle: text(disk.Style),
		DiskId:         text(disk.DiskID),
		SystemReason:   text(disk.SystemReason),
		Partitions:     each(disk.Partitions, encodePartition),
		Error:          text(disk.Error),
		Driver:         text(disk.Driver),
	}
	if address := disk.Location.SCSI; address != nil {
		m.ScsiAddress = &storagev1alpha1.SCSIAddress{Adapter: uint32(address.Adapter), Port: uint32(address.Port),
			Target: uint32(address.Target), Lun: uint32(address.LUN)}
	}
	if disk.ISCSI != nil {
		m.Iscsi = &storagev1alpha1.ISCSILUN{Iqn: text(disk.ISCSI.IQN), Lun: disk.ISCSI.LUN}
	}
	return m
}

func (d *decoder) disks(all []*storagev1alpha1.Disk) []csiproxy.Disk { return each(all, d.disk) }

func (d *decoder) disk(m *storagev1alpha1.Disk) csiproxy.Disk {
	described := csiproxy.Disk{
		Number:        csiproxy.DiskNumber(m.GetNumber()),
		SizeBytes:     m.GetSizeBytes(),
		SerialNumber:  m.GetSerialNumber(),
		Identifiers:   each(m.GetIdentifiers(), decodeIdentifier),
		Vendor:        m.GetVendor(),
		Product:       m.GetProduct(),
		Bus:           csiproxy.Bus(m.GetBus()),
		Location:      csiproxy.Location{Text: m.GetLocation(), NVMeNamespace: m.GetNvmeNamespace()},
		Online:        m.GetOnline(),
		ReadOnly:      m.GetReadOnly(),
		OfflineReason: m.GetOfflineReason(),
		Style:         csiproxy.PartitionStyle(m.GetPartitionStyle()),
		DiskID:        m.GetDiskId(),
		SystemReason:  m.GetSystemReason(),
		Partitions:    each(m.GetPartitions(), decodePartition),
		Error:         m.GetError(),
		Driver:        m.GetDriver(),
	}
	if address := m.GetScsiAddress(); address != nil {
		described.SCSI = &csiproxy.SCSIAddress{Adapter: fit[uint8](d, "adapter", address.Adapter),
			Port: fit[uint8](d, "port", address.Port), Target: fit[uint8](d, "target", address.Target), LUN: fit[uint8](d, "lun", address.Lun)}
	}
	if lun := m.GetIscsi(); lun != nil {
		described.ISCSI = &csiproxy.ISCSILUN{IQN: csiproxy.IQN(lun.Iqn), LUN: lun.Lun}
	}
	return described
}

func encodeIdentifier(i csiproxy.Identifier) *storagev1alpha1.Identifier {
	return &storagev1alpha1.Identifier{Kind: text(i.Kind), Text: text(i.Text)}
}

func decodeIdentifier(m *storagev1alpha1.Identifier) csiproxy.Identifier {
	return csiproxy.Identifier{Kind: csiproxy.IdentifierKind(m.GetKind()), Text: m.GetText()}
}

func encodePartition(p csiproxy.Partition) *storagev1alpha1.Partition {
	return &storagev1alpha1.Partition{
		Number:      p.Number,
		OffsetBytes: p.OffsetBytes,
		SizeBytes:   p.SizeBytes,
		Data:        p.Data,
		VolumeId:    text(p.VolumeID),
		FileSystem:  text(p.FileSystem),
		Label:       text(p.Label),
		Paths:       each(p.Paths, text[string]),
		Error:       text(p.Error),
	}
}

func decodePartition(m *storagev1alpha1.Partition) csiproxy.Partition {
	return csiproxy.Partition{
		Number:      m.GetNumber(),
		OffsetBytes: m.GetOffsetBytes(),
		SizeBytes:   m.GetSizeBytes(),
		Data:        m.GetData(),
		VolumeID:    csiproxy.VolumeID(m.GetVolumeId()),
		FileSystem:  m.GetFileSystem(),
		Label:       m.GetLabel(),
		Paths:       m.GetPaths(),
		Error:       m.GetError(),
	}
}

// EncodeDiskChanges returns the response for changes.
func EncodeDiskChanges(c csiproxy.DiskChanges) *storagev1alpha1.WatchDisksResponse {
	return &storagev1alpha1.WatchDisksResponse{
		Removed: each(c.Removed, encodeDisk),
		Added:   each(c.Added, encodeDisk),
		Changed: each(c.Changed, encodeDisk),
	}
}

// DecodeDiskChanges returns the changes in a response.
func DecodeDiskChanges(m *storagev1alpha1.WatchDisksResponse) (csiproxy.DiskChanges, error) {
	return decode(m, func(d *decoder, m *storagev1alpha1.WatchDisksResponse) csiproxy.DiskChanges {
		return csiproxy.DiskChanges{Removed: d.disks(m.Removed), Added: d.disks(m.Added), Changed: d.disks(m.Changed)}
	})
}

// EncodeStagedVolume returns the response for a staged volume.
func EncodeStagedVolume(v csiproxy.StagedVolume) *storagev1alpha1.StageVolumeResponse {
	return &storagev1alpha1.StageVolumeResponse{
		DiskNumber:  uint32(v.Disk),
		VolumeId:    text(v.VolumeID),
		FileSystem:  text(v.FileSystem),
		SizeBytes:   v.SizeBytes,
		Partitioned: v.Partitioned,
		Formatted:   v.Formatted,
		Grown:       v.Grown,
	}
}

// DecodeStagedVolume returns the staged volume in a response.
func DecodeStagedVolume(m *storagev1alpha1.StageVolumeResponse) csiproxy.StagedVolume {
	return csiproxy.StagedVolume{
		Disk:        csiproxy.DiskNumber(m.DiskNumber),
		VolumeID:    csiproxy.VolumeID(m.VolumeId),
		FileSystem:  m.FileSystem,
		SizeBytes:   m.SizeBytes,
		Partitioned: m.Partitioned,
		Formatted:   m.Formatted,
		Grown:       m.Grown,
	}
}

// EncodeUnstagedVolume returns the response for an unstaged volume.
func EncodeUnstagedVolume(v csiproxy.UnstagedVolume) *storagev1alpha1.UnstageVolumeResponse {
	return &storagev1alpha1.UnstageVolumeResponse{
		Unmounted:   v.Unmounted,
		DiskOffline: v.DiskOffline,
		LoggedOut:   v.LoggedOut,
		Unmapped:    v.Unmapped,
	}
}

// DecodeUnstagedVolume returns the unstaged volume in a response.
func DecodeUnstagedVolume(m *storagev1alpha1.UnstageVolumeResponse) csiproxy.UnstagedVolume {
	return csiproxy.UnstagedVolume{
		Unmounted:   m.Unmounted,
		DiskOffline: m.DiskOffline,
		LoggedOut:   m.LoggedOut,
		Unmapped:    m.Unmapped,
	}
}

// EncodeExpandedVolume returns the response for an expanded volume.
func EncodeExpandedVolume(v csiproxy.ExpandedVolume) *storagev1alpha1.ExpandVolumeResponse {
	return &storagev1alpha1.ExpandVolumeResponse{SizeBytes: v.SizeBytes, DiskSizeBytes: v.DiskSizeBytes, Grown: v.Grown}
}

// DecodeExpandedVolume returns the expanded volume in a response.
func DecodeExpandedVolume(m *storagev1alpha1.ExpandVolumeResponse) csiproxy.ExpandedVolume {
	return csiproxy.ExpandedVolume{SizeBytes: m.SizeBytes, DiskSizeBytes: m.DiskSizeBytes, Grown: m.Grown}
}

// EncodeVolume returns the message for a volume.
func EncodeVolume(v csiproxy.Volume) *storagev1alpha1.Volume {
	return &storagev1alpha1.Volume{
		VolumeId:            text(v.VolumeID),
		Share:               text(v.Share),
		DiskNumber:          (*uint32)(v.Disk),
		SerialNumber:        text(v.SerialNumber),
		DiskId:              text(v.DiskID),
		FileSystem:          text(v.FileSystem),
		Label:               text(v.Label),
		SizeBytes:           v.SizeBytes,
		UsedBytes:           v.UsedBytes,
		FreeBytes:           v.FreeBytes,
		AllocationUnitBytes: v.AllocationUnitBytes,
		ReadOnly:            v.ReadOnly,
		Conditions:          each(v.Conditions, encodeCondition),
		Driver:              text(v.Driver),
		Unencrypted:         v.Unencrypted,
	}
}

// DecodeVolume returns the volume in a message.
func DecodeVolume(m *storagev1alpha1.Volume) csiproxy.Volume {
	if m == nil {
		return csiproxy.Volume{}
	}
	return csiproxy.Volume{
		VolumeID:            csiproxy.VolumeID(m.VolumeId),
		Share:               m.Share,
		Disk:                (*csiproxy.DiskNumber)(m.DiskNumber),
		SerialNumber:        m.SerialNumber,
		DiskID:              m.DiskId,
		FileSystem:          m.FileSystem,
		Label:               m.Label,
		SizeBytes:           m.SizeBytes,
		UsedBytes:           m.UsedBytes,
		FreeBytes:           m.FreeBytes,
		AllocationUnitBytes: m.AllocationUnitBytes,
		ReadOnly:            m.ReadOnly,
		Conditions:          each(m.Conditions, decodeCondition),
		Driver:              m.GetDriver(),
		Unencrypted:         m.Unencrypted,
	}
}

func encodeCondition(c csiproxy.Condition) *storagev1alpha1.Condition {
	return &storagev1alpha1.Condition{Reason: text(c.Reason), Inaccessible: c.Inaccessible, Message: text(c.Message)}
}

func decodeCondition(m *storagev1alpha1.Condition) csiproxy.Condition {
	return csiproxy.Condition{Reason: csiproxy.Reason(m.GetReason()), Inaccessible: m.GetInaccessible(),
		Message: m.GetMessage()}
}

// EncodeVolumeList returns the response for a list.
func EncodeVolumeList(l csiproxy.VolumeList) *storagev1alpha1.ListVolumesResponse {
	return &storagev1alpha1.ListVolumesResponse{
		Mounts:           each(l.Mounts, encodeMount),
		IncompleteReason: text(l.IncompleteReason),
	}
}

// DecodeVolumeList returns the list in a response.
func DecodeVolumeList(m *storagev1alpha1.ListVolumesResponse) csiproxy.VolumeList {
	return csiproxy.VolumeList{
		Mounts:           each(m.Mounts, decodeMount),
		IncompleteReason: m.IncompleteReason,
	}
}

func encodeMount(mount csiproxy.Mount) *storagev1alpha1.Mount {
	return &storagev1alpha1.Mount{
		Kind:           text(mount.Kind),
		Path:           text(mount.Path),
		Target:         text(mount.Target),
		Volume:         EncodeVolume(mount.Volume),
		LeftoverReason: text(mount.LeftoverReason),
		ForgottenPod:   text(mount.ForgottenPod),
	}
}

func decodeMount(m *storagev1alpha1.Mount) csiproxy.Mount {
	return csiproxy.Mount{
		Kind:           csiproxy.MountKind(m.GetKind()),
		Path:           m.GetPath(),
		Target:         m.GetTarget(),
		Volume:         DecodeVolume(m.GetVolume()),
		LeftoverReason: m.GetLeftoverReason(),
		ForgottenPod:   m.GetForgottenPod(),
	}
}

// EncodeLeftovers returns the response for leftovers.
func EncodeLeftovers(l csiproxy.Leftovers) *storagev1alpha1.CleanUpResponse {
	return &storagev1alpha1.CleanUpResponse{
		Leftovers:        each(l.Mounts, encodeLeftover),
		IncompleteReason: text(l.IncompleteReason),
	}
}

// DecodeLeftovers returns the leftovers in a response.
func DecodeLeftovers(m *storagev1alpha1.CleanUpResponse) csiproxy.Leftovers {
	return csiproxy.Leftovers{
		Mounts:           each(m.Leftovers, decodeLeftover),
		IncompleteReason: m.IncompleteReason,
	}
}

func encodeLeftover(l csiproxy.Leftover) *storagev1alpha1.Leftover {
	return &storagev1alpha1.Leftover{
		Kind:           text(l.Kind),
		Path:           text(l.Path),
		Target:         text(l.Target),
		Volume:         EncodeVolume(l.Volume),
		LeftoverReason: text(l.LeftoverReason),
		Removed:        l.Removed,
		Error:          text(l.Error),
		ForgottenPod:   text(l.ForgottenPod),
	}
}

func decodeLeftover(m *storagev1alpha1.Leftover) csiproxy.Leftover {
	return csiproxy.Leftover{
		Mount: csiproxy.Mount{
			Kind:           csiproxy.MountKind(m.GetKind()),
			Path:           m.GetPath(),
			Target:         m.GetTarget(),
			Volume:         DecodeVolume(m.GetVolume()),
			LeftoverReason: m.GetLeftoverReason(),
			ForgottenPod:   m.GetForgottenPod(),
		},
		Removed: m.GetRemoved(),
		Error:   m.GetError(),
	}
}

// EncodeUnstagedShare returns the response for an unstaged share.
func EncodeUnstagedShare(v csiproxy.UnstagedShare) *storagev1alpha1.UnstageShareResponse {
	return &storagev1alpha1.UnstageShareResponse{Unlinked: v.Unlinked, Unmapped: v.Unmapped}
}

// DecodeUnstagedShare returns the unstaged share in a response.
func DecodeUnstagedShare(m *storagev1alpha1.UnstageShareResponse) csiproxy.UnstagedShare {
	return csiproxy.UnstagedShare{Unlinked: m.Unlinked, Unmapped: m.Unmapped}
}

// EncodeCheckedVolume returns the response for a checked volume.
func EncodeCheckedVolume(v csiproxy.CheckedVolume) *storagev1alpha1.CheckVolumeResponse {
	return &storagev1alpha1.CheckVolumeResponse{
		ErrorsFound:          v.ErrorsFound,
		Fixed:                v.Fixed,
		DurationMilliseconds: milliseconds(v.Duration),
		Conditions:           each(v.Conditions, encodeCondition),
	}
}

// DecodeCheckedVolume returns the checked volume in a response.
func DecodeCheckedVolume(m *storagev1alpha1.CheckVolumeResponse) (csiproxy.CheckedVolume, error) {
	return decode(m, func(d *decoder, m *storagev1alpha1.CheckVolumeResponse) csiproxy.CheckedVolume {
		return csiproxy.CheckedVolume{
			ErrorsFound: m.ErrorsFound,
			Fixed:       m.Fixed,
			Duration:    d.duration("duration_milliseconds", m.DurationMilliseconds),
			Conditions:  each(m.Conditions, decodeCondition),
		}
	})
}
