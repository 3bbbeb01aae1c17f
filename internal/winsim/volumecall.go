// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"context"
	"strings"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// FindVolumes is FindFirstVolumeW and its continuation.
func (s *System) FindVolumes(ctx context.Context) ([]string, error) {
	var names []string
	err := s.call(ctx, Call{win.CallFindVolumes, ""}, func() error {
		for _, v := range s.volumes.present {
			names = append(names, v.name())
		}
		return nil
	})
	return names, err
}

// VolumeInformation is GetVolumeInformationW of the root of a volume: \\?\Volume{guid}\,
// C:\, or a mount point with a backslash at its end.
func (s *System) VolumeInformation(ctx context.Context, root string) (info win.VolumeInformation, err error) {
	err = s.call(ctx, Call{win.CallVolumeInformation, root}, func() error {
		if !strings.HasSuffix(root, `\`) {
			return win.ErrorInvalidName
		}
		v, err := s.volumeOf(root, true)
		if err != nil {
			return err
		}
		t, b, err := v.tree()
		if err != nil {
			return err
		}
		info = win.VolumeInformation{FileSystem: string(b.kind), Label: t.Label, Serial: uint32(b.serial)}
		return nil
	})
	return info, err
}

// DiskFreeSpace is GetDiskFreeSpaceExW of the volume that holds a directory.
func (s *System) DiskFreeSpace(ctx context.Context, directory string) (space win.DiskSpace, err error) {
	err = s.call(ctx, Call{win.CallDiskFreeSpace, directory}, func() error {
		v, err := s.volumeOf(directory, false)
		if err != nil {
			return err
		}
		t, _, err := v.tree()
		if err != nil {
			return err
		}
		space = t.space()
		return nil
	})
	return space, err
}

// volumeOf returns the volume that holds a directory; with root, the directory
// must be its root. The root of a volume that can't be mounted is found too. A
// share gives ErrorNotSupported: the simulated servers don't tell their sizes.
func (s *System) volumeOf(directory string, root bool) (*volume, error) {
	l, err := s.locate(directory)
	if err != nil {
		return nil, err
	}
	if v, ok := l.root.(*volume); ok && len(l.names) == 0 {
		return v, nil
	}
	op, err := s.openPath(directory, win.OpenOptions{
		Access: win.AccessNone, Share: shareAll, Disposition: win.FileOpen, Options: win.FileDirectoryFile | win.FileOpenForBackup,
	})
	if err != nil {
		return nil, err
	}
	defer op.file.Close()
	v, ok := op.volume()
	switch {
	case !ok:
		return nil, win.ErrorNotSupported
	case root && op.file.Node() != op.fs.Root():
		return nil, errorDirNotRoot
	}
	return v, nil
}

// FormatVolume is a quick format of \\?\Volume{guid}\ as NTFS or ReFS. A volume of
// which anything is open gives ErrorGenFailure: results 2 and 4 of MSFT_Volume.Format.
func (s *System) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return s.call(ctx, Call{win.CallFormatVolume, volume}, func() error {
		id, rest, _ := parseVolumeName(volume)
		v, ok := s.volumes.withID(id)
		switch {
		case !ok || rest != `\`:
			return win.ErrorRetry
		case v.disk.System:
			return win.ErrorAccessDenied
		case !v.disk.writable():
			return win.ErrorWriteProtect
		case v.Offline:
			return win.ErrorNotReady
		case v.Locked:
			return win.FVELockedVolume
		case s.inUse(v):
			return cmp.Or(s.node.Settings.FormatInUse, win.ErrorGenFailure)
		}
		return v.format(o)
	})
}

// SetVolumeLocked locks a volume with BitLocker or unlocks it.
//
// Guess: files that are open while BitLocker locks their volume answer error 1006.
func (s *System) SetVolumeLocked(name string, locked bool) error {
	return s.controlVolume(name, func(v *volume) {
		if locked {
			s.handles.kill(win.ErrorFileInvalid, func(h *handle) bool { return h.on(v) && h.file != nil })
		}
		v.Locked = locked
	})
}

// SpanVolume makes a volume a dynamic one that lies also on the extents extra, by
// what its controls say of it. Its contents don't change. Without extents it is a
// basic volume again.
func (s *System) SpanVolume(name string, extra ...win.DiskExtent) error {
	return s.controlVolume(name, func(v *volume) { v.Extra = extra })
}

// controlVolume changes the record of a present volume.
func (s *System) controlVolume(name string, change func(*volume)) error {
	return s.control(func() error {
		id, _, _ := parseVolumeName(name)
		v, ok := s.volumes.withID(id)
		if !ok {
			return notFound("volume", name)
		}
		change(v)
		s.volumes.touch(v.unique)
		return nil
	})
}

// VolumesOfDisk lists the names of a disk's volumes that are present.
func (s *System) VolumesOfDisk(number disk.Number) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, v := range s.volumes.present {
		if v.disk.Number == number {
			names = append(names, v.name())
		}
	}
	return names
}
