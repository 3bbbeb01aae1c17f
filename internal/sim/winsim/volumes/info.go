// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Info is what the control calls say of a volume.
type Info struct {
	Name       string // \\?\Volume{guid}\
	DiskNumber csiproxy.DiskNumber
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

// Info lists the volumes that are present, in the order of their arrival.
func (m *Manager) Info() []Info {
	var infos []Info
	for _, v := range m.present {
		info := Info{
			Name: v.Name(), DiskNumber: v.Disk.Number, Partition: v.Number, Paths: m.PathsOf(v),
			Offline: v.Offline, ReadOnly: !v.Writable(), BitLocker: v.Locked,
		}
		if t, b, err := v.content(); err == nil {
			info.FileSystem, info.Label, info.ClusterSize, info.Space = string(b.kind), t.Label, uint32(b.cluster()), Space(t.fs)
			info.NoShortNames, info.IntegrityStreams, info.Dirty, info.Damage = t.NoShortNames, t.IntegrityStreams, t.Dirty,
				t.Damage
		}
		infos = append(infos, info)
	}
	return infos
}
