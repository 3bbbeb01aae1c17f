// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// mount is what the mount manager remembers of a mount point
// (\System Volume Information\MountPointManagerRemoteDatabase). It only knows
// of changes that were made through the mount manager: if a reparse point is deleted
// in another way, its record stays.
type mount struct {
	Host   winid.GUID // the volume that has the directory
	Path   string     // of the directory below the root of Host
	Volume winid.GUID // that is mounted there
}

func mountKey(host winid.GUID, path string) string { return host.String() + win.UpperName(path) }

// Mounted notes that a volume is mounted at a directory of another one.
func (m *Manager) Mounted(host *Volume, directory string, v *Volume) {
	key := mountKey(host.GUID, directory)
	m.mounts[key] = mount{host.GUID, directory, v.GUID}
	m.mountsChanged[key] = struct{}{}
}

// Dismounted notes that nothing is mounted at a directory any more.
func (m *Manager) Dismounted(host *Volume, directory string) {
	key := mountKey(host.GUID, directory)
	delete(m.mounts, key)
	m.mountsChanged[key] = struct{}{}
}

// path is that of a directory, with the drive letter or the name of its volume.
func (m *Manager) path(p mount) string {
	if v, ok := m.WithID(p.Host); ok && v.Letter != "" {
		return v.Letter + ":" + p.Path
	}
	return device(p.Host) + p.Path
}

// MountPoint is a record of the mount manager.
type MountPoint struct {
	Path   string // with the drive letter or name of the volume that has the directory
	Volume string // \\?\Volume{guid}\
}

// MountPoints lists the mount manager's records, sorted by path.
func (m *Manager) MountPoints() []MountPoint {
	var points []MountPoint
	for _, p := range m.mounts {
		points = append(points, MountPoint{m.path(p), device(p.Volume) + `\`})
	}
	slices.SortFunc(points, func(a, b MountPoint) int { return cmp.Compare(a.Path, b.Path) })
	return points
}

// PathsOf lists where a volume is mounted, its drive first.
//
// Guess: a mount point on a volume without a drive letter is listed with that volume's name.
func (m *Manager) PathsOf(v *Volume) []string {
	var paths []string
	for _, p := range m.mounts {
		if p.Volume == v.GUID {
			paths = append(paths, m.path(p)+`\`)
		}
	}
	slices.Sort(paths)
	if v.Letter != "" {
		paths = slices.Insert(paths, 0, v.Letter+`:\`)
	}
	return paths
}
