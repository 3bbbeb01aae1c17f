// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// mounts are the mount manager's memory of mount points
// (\System Volume Information\MountPointManagerRemoteDatabase). It only knows
// of changes that were made through the mount manager: if a reparse point is deleted
// in another way, its record stays.
type mounts struct {
	records map[string]mountRecord
	changed []string // keys, since the last commit
}

type mountRecord struct {
	Host   win.GUID // the volume that has the directory
	Path   string   // of the directory below the root of Host
	Volume win.GUID // that is mounted there
}

func (m mountRecord) key() string { return m.Host.String() + winname.Upper(m.Path) }

func (m *mounts) put(r mountRecord) {
	m.records[r.key()] = r
	m.changed = append(m.changed, r.key())
}

func (m *mounts) delete(r mountRecord) {
	delete(m.records, r.key())
	m.changed = append(m.changed, r.key())
}

// MountPoint is a record of the mount manager.
type MountPoint struct {
	Path   string // with the drive letter or name of the volume that has the directory
	Volume string // \\?\Volume{guid}\
}

// MountPoints lists the mount manager's records, sorted by path.
func (s *System) MountPoints() []MountPoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	var points []MountPoint
	for _, r := range s.mounts.records {
		host := volumeDevice(r.Host)
		if v, ok := s.volumes.withID(r.Host); ok && v.Letter != "" {
			host = v.Letter + ":"
		}
		points = append(points, MountPoint{host + r.Path, volumeDevice(r.Volume) + `\`})
	}
	slices.SortFunc(points, func(a, b MountPoint) int { return cmp.Compare(a.Path, b.Path) })
	return points
}

// VolumePathNames is GetVolumePathNamesForVolumeNameW.
func (s *System) VolumePathNames(ctx context.Context, volume string) (paths []string, err error) {
	err = s.call(ctx, Call{win.CallVolumePathNames, volume}, func() error {
		id, rest, ok := parseVolumeName(volume)
		switch {
		case !strings.HasSuffix(volume, `\`):
			return win.ErrorInvalidName
		case !ok || rest != `\`:
			return win.ErrorInvalidParameter
		}
		v, ok := s.volumes.withID(id)
		if !ok {
			return win.ErrorFileNotFound
		}
		paths = s.pathsOf(v)
		return nil
	})
	return paths, err
}

// pathsOf lists where a volume is mounted, its drive first.
//
// Guess: a mount point on a volume without a drive letter is listed with that volume's name.
func (s *System) pathsOf(v *volume) []string {
	var paths []string
	for _, r := range s.mounts.records {
		if r.Volume == v.GUID {
			host := volumeDevice(r.Host)
			if h, ok := s.volumes.withID(r.Host); ok && h.Letter != "" {
				host = h.Letter + ":"
			}
			paths = append(paths, host+r.Path+`\`)
		}
	}
	slices.Sort(paths)
	if v.Letter != "" {
		paths = slices.Insert(paths, 0, v.Letter+`:\`)
	}
	return paths
}

// mountPoint opens the directory of a mount point, or what is there in its place,
// and returns the volume that has it. The mount manager knows nothing of shares.
func (s *System) mountPoint(path string, access win.Access) (opened, *volume, error) {
	op, err := s.openPath(path, win.OpenOptions{Access: access, Share: shareAll, Disposition: win.FileOpen, Options: openLink})
	if err != nil {
		return opened{}, nil, err
	}
	host, ok := op.volume()
	if !ok {
		op.file.Close()
		return opened{}, nil, win.ErrorNotSupported
	}
	return op, host, nil
}

// mountPointToChange is mountPoint as the mount manager opens it to mount and unmount.
func (s *System) mountPointToChange(path string) (opened, *volume, error) {
	if s.node.Settings.MountManagerExclusive {
		op, err := s.openPath(path, win.OpenOptions{Access: win.FileListDirectory, Disposition: win.FileOpen, Options: openLink})
		if err != nil {
			return opened{}, nil, err
		}
		op.file.Close()
	}
	op, host, err := s.mountPoint(path, win.FileWriteAttributes)
	if err == nil && s.deniesMountPoint(op.file) {
		op.file.Close()
		return opened{}, nil, win.ErrorAccessDenied
	}
	return op, host, err
}

// deniesMountPoint reports whether the access list of a directory keeps its mount point as
// it is.
func (s *System) deniesMountPoint(dir *ntfs.Handle) bool {
	return s.node.Settings.DeniedMountPoints && dir.Node().CreationDenied()
}

// driveLetter reads X:\.
func driveLetter(path string) (letter string, ok bool) {
	if len(path) == 3 && isLetter(path[0]) && path[1:] == `:\` {
		return strings.ToUpper(path[:1]), true
	}
	return "", false
}

// VolumeNameForMountPoint is GetVolumeNameForVolumeMountPointW: of a drive letter,
// of a mount point, of a volume itself, or of the device of a partition,
// \\?\GLOBALROOT\Device\HarddiskN\PartitionP\.
func (s *System) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (name string, err error) {
	err = s.call(ctx, Call{win.CallVolumeNameForMountPoint, mountPoint}, func() error {
		name, err = s.volumeNameAt(mountPoint)
		return err
	})
	return name, err
}

func (s *System) volumeNameAt(mountPoint string) (string, error) {
	if !strings.HasSuffix(mountPoint, `\`) {
		return "", win.ErrorInvalidName
	}
	letter, isLetter := driveLetter(strings.TrimPrefix(mountPoint, `\\?\`))
	id, rest, isName := parseVolumeName(mountPoint)
	if isLetter || isName && rest == `\` {
		v, ok := s.volumes.withID(id)
		if isLetter {
			v, ok = s.volumes.withLetter(letter)
		}
		if !ok {
			return "", win.ErrorFileNotFound
		}
		return v.name(), nil
	}
	if number, partition, ok := parsePartitionPath(mountPoint); ok {
		if s.node.Settings.NoPartitionDevices {
			return "", win.ErrorPathNotFound
		}
		v, ok := s.volumes.find(func(v *volume) bool { return v.disk.Number == number && v.number == partition })
		if !ok {
			return "", win.ErrorPathNotFound
		}
		return v.name(), nil
	}
	op, _, err := s.mountPoint(mountPoint, win.AccessNone)
	if err != nil {
		return "", err
	}
	defer op.file.Close()
	return mountedVolume(op)
}

// parsePartitionPath reads \\?\GLOBALROOT\Device\HarddiskN\PartitionP\.
func parsePartitionPath(path string) (number disk.Number, partition uint32, ok bool) {
	var tail string
	n, err := fmt.Sscanf(strings.ToLower(path), `\\?\globalroot\device\harddisk%d\partition%d%s`, &number, &partition, &tail)
	return number, partition, err == nil && n == 3 && tail == `\`
}

// mountedVolume returns the name of the volume that is mounted at what is open.
func mountedVolume(op opened) (string, error) {
	data, err := op.file.GetReparse()
	if err != nil {
		return "", err
	}
	r, err := win.DecodeReparsePoint(data)
	if err != nil {
		return "", win.ErrorInvalidReparseData
	}
	name, ok := r.Volume()
	if !ok { // a junction or symbolic link to something else
		return "", win.ErrorInvalidParameter
	}
	return name, nil
}

// SetVolumeMountPoint is SetVolumeMountPointW: it mounts a volume at an empty
// directory, or gives it a drive letter.
func (s *System) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	return s.call(ctx, Call{win.CallSetVolumeMountPoint, mountPoint + " " + volume}, func() error {
		id, rest, ok := parseVolumeName(volume)
		if !ok || rest != `\` {
			return win.ErrorInvalidParameter
		}
		if !strings.HasSuffix(mountPoint, `\`) {
			return win.ErrorInvalidName
		}
		v, ok := s.volumes.withID(id)
		if !ok {
			return win.ErrorFileNotFound
		}
		if letter, ok := driveLetter(mountPoint); ok {
			if _, taken := s.volumes.withLetter(letter); taken || v.Letter != "" {
				return win.ErrorDirNotEmpty
			}
			s.volumes.setLetter(v, letter)
			return nil
		}
		return s.mount(mountPoint, v)
	})
}

func (s *System) mount(mountPoint string, v *volume) error {
	op, host, err := s.mountPointToChange(mountPoint)
	if err == win.ErrorFileNotFound {
		return win.ErrorPathNotFound
	}
	if err != nil {
		return err
	}
	defer op.file.Close()
	switch b, _ := host.boot(); {
	// Guess: only NTFS has mount points. The documentation of ReFS says nothing of them.
	case b.kind != kindNTFS:
		return win.ErrorNotSupported
	case !op.file.Info().IsDir():
		return win.ErrorDirectory
	case op.file.Info().IsReparsePoint():
		return win.ErrorDirNotEmpty
	}
	if err := op.file.SetReparse(win.NewMountPoint(v.name()).Encode()); err != nil {
		return err
	}
	s.mounts.put(mountRecord{host.GUID, op.file.Node().Path(), v.GUID})
	return nil
}

// DeleteVolumeMountPoint is DeleteVolumeMountPointW: the directory stays, empty.
func (s *System) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	return s.call(ctx, Call{win.CallDeleteVolumeMountPoint, mountPoint}, func() error {
		if !strings.HasSuffix(mountPoint, `\`) {
			return win.ErrorInvalidName
		}
		if letter, ok := driveLetter(mountPoint); ok {
			v, ok := s.volumes.withLetter(letter)
			switch {
			case !ok:
				return win.ErrorFileNotFound
			case v.disk.System:
				return win.ErrorAccessDenied
			}
			s.volumes.setLetter(v, "")
			return nil
		}
		return s.unmount(mountPoint)
	})
}

func (s *System) unmount(mountPoint string) error {
	op, host, err := s.mountPointToChange(mountPoint)
	if err != nil {
		return err
	}
	defer op.file.Close()
	name, err := mountedVolume(op)
	if err != nil {
		return err
	}
	if id, _, _ := parseVolumeName(name); s.node.Settings.GoneMountPoint != 0 {
		if _, present := s.volumes.withID(id); !present {
			return s.node.Settings.GoneMountPoint
		}
	}
	header := make([]byte, 8)
	binary.LittleEndian.PutUint32(header, uint32(win.TagMountPoint))
	if err := op.file.DeleteReparse(header); err != nil {
		return err
	}
	s.mounts.delete(mountRecord{Host: host.GUID, Path: op.file.Node().Path()})
	if id, _, _ := parseVolumeName(name); s.node.Settings.GoneMountPointHalf {
		if _, present := s.volumes.withID(id); !present {
			return win.ErrorFileNotFound
		}
	}
	return nil
}
