// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"context"
	"fmt"
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
		v, err := s.volumeOf(root)
		if err != nil {
			return err
		}
		t, b, err := v.tree()
		if err != nil {
			return err
		}
		info = win.VolumeInformation{FileSystem: string(b.kind), Label: t.Label, Serial: uint32(b.serial)}
		if !v.writable() {
			info.Flags |= win.FileReadOnlyVolume
		}
		return nil
	})
	return info, err
}

// DiskFreeSpace is GetDiskFreeSpaceExW of the volume that holds a directory.
func (s *System) DiskFreeSpace(ctx context.Context, directory string) (space win.DiskSpace, err error) {
	err = s.call(ctx, Call{win.CallDiskFreeSpace, directory}, func() error {
		l, err := s.locate(directory)
		if err != nil {
			return err
		}
		op, err := s.openLocation(l, openDirectory)
		if err != nil {
			return err
		}
		defer op.file.Close()
		space = spaceOf(op.fs)
		return nil
	})
	return space, err
}

// volumeOf returns the volume whose root a directory is, also one that can't be mounted. A
// share gives ErrorNotSupported.
func (s *System) volumeOf(directory string) (*volume, error) {
	l, err := s.locate(directory)
	if err != nil {
		return nil, err
	}
	if v, ok := l.root.(*volume); ok && len(l.names) == 0 {
		return v, nil
	}
	op, err := s.openLocation(l, openDirectory)
	if err != nil {
		return nil, err
	}
	defer op.file.Close()
	v, ok := op.volume()
	switch {
	case !ok:
		return nil, win.ErrorNotSupported
	case op.file.Node() != op.fs.Root():
		return nil, errorDirNotRoot
	}
	return v, nil
}

// openDirectory opens a directory to ask for the file system that it is on.
var openDirectory = win.OpenOptions{
	Access: win.AccessNone, Share: shareAll, Disposition: win.FileOpen, Options: win.FileDirectoryFile | win.FileOpenForBackup,
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
		case !v.writable():
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
	return s.controlVolumeAt(name, func(v *volume) error {
		change(v)
		s.volumes.touch(v.unique)
		return nil
	})
}

// controlVolumeAt runs a control call on a present volume: that of a name, with a backslash
// at its end or without, of a drive, or of a mount point.
func (s *System) controlVolumeAt(path string, f func(*volume) error) error {
	return s.control(func() error {
		name, err := s.volumeNameAt(strings.TrimSuffix(path, `\`) + `\`)
		if err != nil {
			return notFound("volume", fmt.Sprintf("at %s (%v)", path, err))
		}
		id, _, _ := parseVolumeName(name)
		v, ok := s.volumes.withID(id)
		if !ok {
			return notFound("volume", name)
		}
		if err := f(v); err != nil {
			return fmt.Errorf("volume %s: %w", name, err)
		}
		return nil
	})
}

// controlTree changes the record of the file system of a volume.
func (s *System) controlTree(path string, change func(*tree)) error {
	return s.controlVolumeAt(path, func(v *volume) error {
		t, _, err := v.content()
		if err != nil {
			return err
		}
		change(t)
		t.changed = true
		v.disk.mark()
		return nil
	})
}

// VolumeInfo is what the control calls say of a volume.
type VolumeInfo struct {
	Name       string // \\?\Volume{guid}\
	DiskNumber disk.Number
	Partition  uint32
	Paths      []string // where it is mounted
	Offline    bool
	ReadOnly   bool
	BitLocker  bool // locked by it

	// Of its file system; FileSystem is empty if there is none that can be mounted.
	FileSystem                     string
	Label                          string
	ClusterSize                    uint32
	Space                          win.DiskSpace
	NoShortNames, IntegrityStreams bool
	Dirty                          bool
	Damage                         Damage
}

// Volumes lists the volumes that are present, in the order of their arrival.
func (s *System) Volumes() []VolumeInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []VolumeInfo
	for _, v := range s.volumes.present {
		info := VolumeInfo{
			Name: v.name(), DiskNumber: v.disk.Number, Partition: v.number, Paths: s.pathsOf(v),
			Offline: v.Offline, ReadOnly: !v.writable(), BitLocker: v.Locked,
		}
		if t, b, err := v.content(); err == nil {
			info.FileSystem, info.Label, info.ClusterSize, info.Space = string(b.kind), t.Label, uint32(b.cluster()), spaceOf(t.fs)
			info.NoShortNames, info.IntegrityStreams, info.Dirty, info.Damage = t.NoShortNames, t.IntegrityStreams, t.Dirty, t.Damage
		}
		infos = append(infos, info)
	}
	return infos
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
