// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Damage is a problem of a file system. The files stay usable.
type Damage string

// Kinds of damage.
const (
	NoDamage      = Damage(volumes.NoDamage)
	SpotDamage    = Damage(volumes.SpotDamage)    // a spot fix repairs it, once a scan has found it
	OfflineDamage = Damage(volumes.OfflineDamage) // only an offline repair repairs it
)

// VolumeInfo is the state of a volume.
type VolumeInfo struct {
	ID         csiproxy.VolumeID
	DiskNumber csiproxy.DiskNumber
	// Paths are the volume's mount points: drives and directories, with a backslash at the end.
	Paths             []string
	Offline, ReadOnly bool

	// FileSystem is "NTFS" or "ReFS", or empty if Windows recognises none. All fields below
	// describe the file system.
	FileSystem, Label              string
	ClusterBytes                   int64 // allocation unit
	TotalBytes, FreeBytes          int64
	NoShortNames, IntegrityStreams bool
	Dirty                          bool // Windows wants to check it
	Damage                         Damage
}

// Volumes returns all volumes present, in the order of their arrival. The first is C:.
func (n *Node) Volumes() []VolumeInfo {
	var infos []VolumeInfo
	for _, v := range n.sys.Volumes() {
		infos = append(infos, VolumeInfo{
			ID: csiproxy.VolumeID(v.Name), DiskNumber: v.DiskNumber, Paths: v.Paths, Offline: v.Offline, ReadOnly: v.ReadOnly,
			FileSystem: v.FileSystem, Label: v.Label, ClusterBytes: int64(v.ClusterSize),
			TotalBytes: int64(v.Space.Total), FreeBytes: int64(v.Space.Free),
			NoShortNames: v.NoShortNames, IntegrityStreams: v.IntegrityStreams, Dirty: v.Dirty, Damage: Damage(v.Damage),
		})
	}
	return infos
}

// SetVolumeDirty sets or clears Windows' wish to check the file system of a volume. The volume is
// given by its id or by a mount point.
func (n *Node) SetVolumeDirty(path string, dirty bool) {
	n.helper()
	n.must(n.sys.SetVolumeDirty(path, dirty))
}

// SetVolumeDamage damages the file system of a volume, or repairs it.
func (n *Node) SetVolumeDamage(path string, d Damage) {
	n.helper()
	n.must(n.sys.SetVolumeDamage(path, volumes.Damage(d)))
}

// SetVolumeReadOnly makes a volume read-only or writable, by the attribute of its GPT
// partition.
func (n *Node) SetVolumeReadOnly(path string, readOnly bool) {
	n.helper()
	n.must(n.sys.SetVolumeReadOnly(path, readOnly))
}

// SetVolumeLetter gives a volume a drive letter, such as "D" or "D:", in place of its present
// letter; "" removes the letter. node.Options.ProtectedVolumes may name the letter.
func (n *Node) SetVolumeLetter(path, letter string) {
	n.helper()
	n.must(n.sys.SetVolumeLetter(path, letter))
}

// ProcessID is the id of a process of the node.
type ProcessID uint32

// StartProcess starts a process with open files or directories, or with an open volume, given by
// its id without the backslash at the end. program is the path of the process's program, which may
// be missing. The process ends by EndProcess, or with a restart of the node.
func (n *Node) StartProcess(program string, paths ...string) ProcessID {
	n.helper()
	id, err := n.sys.StartProcess(program, paths...)
	n.must(err)
	return ProcessID(id)
}

// EndProcess ends a process and closes its files.
func (n *Node) EndProcess(id ProcessID) {
	n.helper()
	n.must(n.sys.EndProcess(win.ProcessID(id)))
}
