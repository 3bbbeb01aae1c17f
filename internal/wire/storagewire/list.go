// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagewire

import (
	"time"

	"google.golang.org/protobuf/proto"

	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/wire"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// FromVolume returns the message for a volume.
func FromVolume(v storage.Volume) *storagev1alpha1.Volume {
	m := &storagev1alpha1.Volume{
		VolumeId: string(v.VolumeID), Share: wire.ValidText(v.Share), SerialNumber: wire.ValidText(v.SerialNumber),
		DiskId:     v.DiskID,
		FileSystem: wire.ValidText(v.FileSystem), Label: wire.ValidText(v.Label),
		SizeBytes: v.SizeBytes, UsedBytes: v.UsedBytes, FreeBytes: v.FreeBytes, AllocationUnitBytes: v.AllocationUnitBytes,
		ReadOnly: v.ReadOnly,
	}
	for _, c := range v.Conditions {
		m.Conditions = append(m.Conditions,
			&storagev1alpha1.Condition{Reason: string(c.Reason), Inaccessible: c.Inaccessible,
				Message: wire.ValidText(c.Message)})
	}
	if v.Disk != nil {
		m.DiskNumber = proto.Uint32(uint32(*v.Disk))
	}
	return m
}

// ToVolume returns the volume in a message, which may be nil.
func ToVolume(m *storagev1alpha1.Volume) storage.Volume {
	v := storage.Volume{
		VolumeID: volume.ID(m.GetVolumeId()), Share: m.GetShare(), SerialNumber: m.GetSerialNumber(), DiskID: m.GetDiskId(),
		FileSystem: m.GetFileSystem(), Label: m.GetLabel(),
		SizeBytes: m.GetSizeBytes(), UsedBytes: m.GetUsedBytes(), FreeBytes: m.GetFreeBytes(),
		AllocationUnitBytes: m.GetAllocationUnitBytes(),
		ReadOnly:            m.GetReadOnly(),
	}
	for _, c := range m.GetConditions() {
		v.Conditions = append(v.Conditions,
			storage.Condition{Reason: storage.Reason(c.Reason), Inaccessible: c.Inaccessible, Message: c.Message})
	}
	if m != nil && m.DiskNumber != nil {
		number := disk.Number(*m.DiskNumber)
		v.Disk = &number
	}
	return v
}

// FromVolumes returns the message for a list.
func FromVolumes(list storage.VolumeList) *storagev1alpha1.ListVolumesResponse {
	m := &storagev1alpha1.ListVolumesResponse{IncompleteReason: wire.ValidText(list.IncompleteReason)}
	for _, one := range list.Mounts {
		m.Mounts = append(m.Mounts, FromMount(one))
	}
	return m
}

// ToVolumes returns the list in a message.
func ToVolumes(m *storagev1alpha1.ListVolumesResponse) storage.VolumeList {
	list := storage.VolumeList{IncompleteReason: m.IncompleteReason}
	for _, one := range m.Mounts {
		list.Mounts = append(list.Mounts, ToMount(one))
	}
	return list
}

// FromMount returns the message for a mount.
func FromMount(v storage.Mount) *storagev1alpha1.Mount {
	return &storagev1alpha1.Mount{
		Kind: string(v.Kind), Path: wire.ValidText(v.Path), Target: wire.ValidText(v.Target),
		Volume: FromVolume(v.Volume), LeftoverReason: wire.ValidText(v.LeftoverReason),
	}
}

// ToMount returns the mount in a message.
func ToMount(m *storagev1alpha1.Mount) storage.Mount {
	return storage.Mount{Kind: storage.MountKind(m.Kind), Path: m.Path, Target: m.Target, Volume: ToVolume(m.Volume),
		LeftoverReason: m.LeftoverReason}
}

// FromStageShare returns the message for a request.
func FromStageShare(r storage.StageShareRequest) *storagev1alpha1.StageShareRequest {
	return &storagev1alpha1.StageShareRequest{
		RemotePath: r.RemotePath, StagingPath: r.StagingPath, Username: r.Credentials.Username,
		Password: r.Credentials.Password.Reveal(),
	}
}

// ToStageShare returns the request in a message.
func ToStageShare(m *storagev1alpha1.StageShareRequest) storage.StageShareRequest {
	return storage.StageShareRequest{
		RemotePath: m.RemotePath, StagingPath: m.StagingPath,
		Credentials: smb.Credentials{Username: m.Username, Password: secret.New(m.Password)},
	}
}

// FromUnstageShare returns the message for a request.
func FromUnstageShare(r storage.UnstageShareRequest) *storagev1alpha1.UnstageShareRequest {
	return &storagev1alpha1.UnstageShareRequest{StagingPath: r.StagingPath, RemotePath: r.RemotePath}
}

// ToUnstageShare returns the request in a message.
func ToUnstageShare(m *storagev1alpha1.UnstageShareRequest) storage.UnstageShareRequest {
	return storage.UnstageShareRequest{StagingPath: m.StagingPath, RemotePath: m.RemotePath}
}

// FromUnstagedShare returns the message for a result of UnstageShare.
func FromUnstagedShare(v storage.UnstagedShare) *storagev1alpha1.UnstageShareResponse {
	return &storagev1alpha1.UnstageShareResponse{Unlinked: v.Unlinked, Unmapped: v.Unmapped}
}

// ToUnstagedShare returns the result in a message.
func ToUnstagedShare(m *storagev1alpha1.UnstageShareResponse) storage.UnstagedShare {
	return storage.UnstagedShare{Unlinked: m.Unlinked, Unmapped: m.Unmapped}
}

// FromLeftovers returns the message for leftovers.
func FromLeftovers(all storage.Leftovers) *storagev1alpha1.CleanUpResponse {
	m := &storagev1alpha1.CleanUpResponse{IncompleteReason: wire.ValidText(all.IncompleteReason)}
	for _, one := range all.Mounts {
		m.Leftovers = append(m.Leftovers,
			&storagev1alpha1.Leftover{Mount: FromMount(one.Mount), Removed: one.Removed, Error: wire.ValidText(one.Error)})
	}
	return m
}

// ToLeftovers returns the leftovers in a message.
func ToLeftovers(m *storagev1alpha1.CleanUpResponse) storage.Leftovers {
	all := storage.Leftovers{IncompleteReason: m.IncompleteReason}
	for _, one := range m.Leftovers {
		cleaned := storage.Leftover{Removed: one.Removed, Error: one.Error}
		if one.Mount != nil {
			cleaned.Mount = ToMount(one.Mount)
		}
		all.Mounts = append(all.Mounts, cleaned)
	}
	return all
}

// FromMovedAside returns the message for a result of MoveAside.
func FromMovedAside(v storage.MovedAside) *storagev1alpha1.MoveAsideResponse {
	m := &storagev1alpha1.MoveAsideResponse{MovedTo: wire.ValidText(v.MovedTo), MoreEntries: v.MoreEntries}
	for _, e := range v.Entries {
		one := &storagev1alpha1.MovedEntry{Name: wire.ValidText(e.Name)}
		if !e.Created.IsZero() {
			one.CreatedMilliseconds = e.Created.UnixMilli()
		}
		m.Entries = append(m.Entries, one)
	}
	return m
}

// ToMovedAside returns the result in a message.
func ToMovedAside(m *storagev1alpha1.MoveAsideResponse) storage.MovedAside {
	v := storage.MovedAside{MovedTo: m.MovedTo, MoreEntries: m.MoreEntries}
	for _, e := range m.Entries {
		one := storage.MovedEntry{Name: e.Name}
		if e.CreatedMilliseconds != 0 {
			one.Created = time.UnixMilli(e.CreatedMilliseconds).UTC()
		}
		v.Entries = append(v.Entries, one)
	}
	return v
}

// FromRefusedLogOns returns the message for refused log-ons.
func FromRefusedLogOns(all []storage.RefusedLogOn) *storagev1alpha1.ListRefusedLogOnsResponse {
	m := new(storagev1alpha1.ListRefusedLogOnsResponse)
	for _, one := range all {
		m.Refused = append(m.Refused, &storagev1alpha1.RefusedLogOn{
			RemotePath: wire.ValidText(one.RemotePath), WindowsError: one.WindowsError,
			RefusedForMilliseconds: one.RefusedFor.Milliseconds(), HeldBackForMilliseconds: one.HeldBackFor.Milliseconds(),
		})
	}
	return m
}

// ToRefusedLogOns returns the refused log-ons in a message.
func ToRefusedLogOns(m *storagev1alpha1.ListRefusedLogOnsResponse) []storage.RefusedLogOn {
	var all []storage.RefusedLogOn
	for _, one := range m.Refused {
		all = append(all, storage.RefusedLogOn{
			RemotePath: one.RemotePath, WindowsError: one.WindowsError,
			RefusedFor:  time.Duration(one.RefusedForMilliseconds) * time.Millisecond,
			HeldBackFor: time.Duration(one.HeldBackForMilliseconds) * time.Millisecond,
		})
	}
	return all
}

// FromChecked returns the message for a result of CheckVolume.
func FromChecked(v storage.CheckedVolume) *storagev1alpha1.CheckVolumeResponse {
	return &storagev1alpha1.CheckVolumeResponse{ErrorsFound: v.ErrorsFound, Fixed: v.Fixed,
		DurationMilliseconds: v.Duration.Milliseconds()}
}

// ToChecked returns the result in a message.
func ToChecked(m *storagev1alpha1.CheckVolumeResponse) storage.CheckedVolume {
	return storage.CheckedVolume{ErrorsFound: m.ErrorsFound, Fixed: m.Fixed,
		Duration: time.Duration(m.DurationMilliseconds) * time.Millisecond}
}
