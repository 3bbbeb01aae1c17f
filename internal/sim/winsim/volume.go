// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"fmt"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/refusal"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// FindVolumes is FindFirstVolumeW and its continuation.
func (s *System) FindVolumes(ctx context.Context) ([]string, error) {
	return ask(ctx, s, Call{win.CallFindVolumes, ""}, func() (names []string, err error) {
		for _, v := range s.volumes.All() {
			names = append(names, v.Name())
		}
		return names, nil
	})
}

// VolumeInformation is GetVolumeInformationW of the root of a volume: \\?\Volume{guid}\,
// C:\, or a mount point with a backslash at its end.
func (s *System) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	return ask(ctx, s, Call{win.CallVolumeInformation, root}, func() (win.VolumeInformation, error) {
		return s.paths.Information(root)
	})
}

// DiskFreeSpace is GetDiskFreeSpaceExW of the volume that holds a directory.
func (s *System) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	return ask(ctx, s, Call{win.CallDiskFreeSpace, directory}, func() (win.DiskSpace, error) {
		return s.paths.FreeSpace(directory)
	})
}

// FormatVolume is MSFT_Volume.Format: [volumes.Manager.Format].
func (s *System) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return s.call(ctx, Call{win.CallFormatVolume, volume}, func() error { return s.volumes.Format(volume, o) })
}

// RepairVolume is MSFT_Volume.Repair: [volumes.Manager.Repair].
func (s *System) RepairVolume(ctx context.Context, volume string,
	mode win.RepairMode) (win.RepairResult, error) {
	return ask(ctx, s, Call{win.CallRepairVolume, volume}, func() (win.RepairResult, error) {
		return s.volumes.Repair(volume, mode)
	})
}

// TryStorageProvider is a query for MSFT_Volume.
func (s *System) TryStorageProvider(ctx context.Context) error {
	return s.call(ctx, Call{win.CallStorageProvider, ""}, func() error { return nil })
}

// VolumePathNames is GetVolumePathNamesForVolumeNameW.
func (s *System) VolumePathNames(ctx context.Context, volume string) ([]string, error) {
	return ask(ctx, s, Call{win.CallVolumePathNames, volume}, func() ([]string, error) {
		id, rest, ok := volumes.ParseName(volume)
		switch {
		case !strings.HasSuffix(volume, `\`):
			return nil, winerr.ErrorInvalidName
		case !ok || rest != `\`:
			return nil, winerr.ErrorInvalidParameter
		}
		v, ok := s.volumes.WithID(id)
		if !ok {
			return nil, winerr.ErrorFileNotFound
		}
		return s.volumes.PathsOf(v), nil
	})
}

// VolumeNameForMountPoint is GetVolumeNameForVolumeMountPointW: [paths.Space.VolumeNameAt].
func (s *System) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	return ask(ctx, s, Call{win.CallVolumeNameForMountPoint, mountPoint}, func() (string, error) {
		return s.paths.VolumeNameAt(mountPoint)
	})
}

// SetVolumeMountPoint is SetVolumeMountPointW: [paths.Space.SetMountPoint].
func (s *System) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	return s.call(ctx, Call{win.CallSetVolumeMountPoint, mountPoint + " " + volume}, func() error {
		return s.paths.SetMountPoint(mountPoint, volume)
	})
}

// DeleteVolumeMountPoint is DeleteVolumeMountPointW: [paths.Space.DeleteMountPoint].
func (s *System) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return s.call(ctx, Call{win.CallDeleteVolumeMountPoint, mountPoint}, func() error {
		return s.paths.DeleteMountPoint(mountPoint)
	})
}

// The calls below are what the administrator does to volumes, and what can be told of them.
// A path of a volume is its name, with a backslash at its end or without, a drive, or a mount
// point.

// SetVolumeLocked locks a volume with BitLocker or unlocks it.
func (s *System) SetVolumeLocked(path string, locked bool) error {
	return s.controlVolume(path, func(v *volumes.Volume) error { s.volumes.SetLocked(v, locked); return nil })
}

// SetVolumeDirty lets Windows want to check the file system of a volume, or not.
func (s *System) SetVolumeDirty(path string, dirty bool) error {
	return s.controlVolume(path, func(v *volumes.Volume) error { return v.SetDirty(dirty) })
}

// SetVolumeDamage damages the file system of a volume, or heals it.
func (s *System) SetVolumeDamage(path string, d volumes.Damage) error {
	return s.controlVolume(path, func(v *volumes.Volume) error { return v.SetDamage(d) })
}

// SetVolumeReadOnly makes a volume read-only or writable: [volumes.Manager.SetReadOnly].
func (s *System) SetVolumeReadOnly(path string, readOnly bool) error {
	return s.controlVolume(path, func(v *volumes.Volume) error { return s.volumes.SetReadOnly(v, readOnly) })
}

// SetVolumeLetter gives a volume a drive letter, such as D or D:, in the place of the one that it has;
// "" takes that away. C: stays that of the volume with Windows.
func (s *System) SetVolumeLetter(path, letter string) error {
	return s.controlVolume(path, func(v *volumes.Volume) error {
		letter := strings.ToUpper(strings.TrimSuffix(letter, ":"))
		other, taken := s.volumes.WithLetter(letter)
		switch {
		case letter != "" && (len(letter) != 1 || letter[0] < 'A' || letter[0] > 'Z'):
			return refusal.New(winerr.ErrorInvalidParameter, "%q is no drive letter", letter)
		case v.Disk.System:
			return refusal.New(winerr.ErrorAccessDenied, "Windows runs from it")
		case taken && other != v:
			return refusal.New(winerr.ErrorAlreadyExists, "another volume has %s:", letter)
		}
		s.volumes.SetLetter(v, letter)
		return nil
	})
}

// controlVolume runs a control call on a present volume.
func (s *System) controlVolume(path string, f func(*volumes.Volume) error) error {
	return s.control(func() error {
		name, err := s.paths.VolumeNameAt(strings.TrimSuffix(path, `\`) + `\`)
		if err != nil {
			return refusal.NotFound("volume", fmt.Sprintf("at %s (%v)", path, err))
		}
		id, _, _ := volumes.ParseName(name)
		v, ok := s.volumes.WithID(id)
		if !ok {
			return refusal.NotFound("volume", name)
		}
		if err := f(v); err != nil {
			return fmt.Errorf("volume %s: %w", name, err)
		}
		return nil
	})
}

// Volumes lists the volumes that are present, in the order of their arrival.
func (s *System) Volumes() []volumes.Info { return look(s, s.volumes.Info) }

// VolumesOfDisk lists the names of a disk's volumes that are present.
func (s *System) VolumesOfDisk(number csiproxy.DiskNumber) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, v := range s.volumes.All() {
		if v.Disk.Number == number {
			names = append(names, v.Name())
		}
	}
	return names
}

// MountPoints lists the mount manager's records, sorted by path.
func (s *System) MountPoints() []volumes.MountPoint { return look(s, s.volumes.MountPoints) }
