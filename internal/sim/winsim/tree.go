// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// tree is the content of a formatted volume. It lies on its disk under the serial
// number that the boot sector has: the boot sector stands for all the structures
// that a real file system keeps in the image.
type tree struct {
	treeRecord
	fs      *ntfs.FS
	changed bool // the record, since the last commit
}

// treeRecord is what the state file has of a tree apart from its files.
type treeRecord struct {
	Offset int64 // of the partition that was formatted
	Label  string

	NoShortNames, IntegrityStreams bool `json:",omitempty"` // as in win.FormatOptions

	Dirty  bool   `json:",omitempty"` // Windows wants to check it
	Damage Damage `json:",omitempty"`
	Noted  bool   `json:",omitempty"` // a scan has found the damage
}

const maxLabel = 32 // UTF-16 units

// boot reads the boot sector of the volume from its disk.
func (v *volume) boot() (bootSector, bool) {
	s := make([]byte, v.disk.sector())
	if _, err := v.disk.image.ReadAt(s, v.offset); err != nil {
		return bootSector{}, false
	}
	return decodeBootSector(s)
}

// tree mounts what the volume holds: as its bytes say, at each call.
func (v *volume) tree() (*tree, bootSector, error) {
	if v.lock != nil && v.dismounted == nil {
		return nil, bootSector{}, win.ErrorAccessDenied
	}
	return v.content()
}

// content is tree for whoever has the volume itself open: also while that is locked.
func (v *volume) content() (*tree, bootSector, error) {
	switch {
	case v.Offline:
		return nil, bootSector{}, win.ErrorNotReady
	case v.dismounted != nil:
		return nil, bootSector{}, errorVolumeDismounted
	case v.Locked:
		return nil, bootSector{}, win.FVELockedVolume
	}
	b, ok := v.boot()
	if !ok {
		return nil, b, win.ErrorUnrecognizedVolume
	}
	t, ok := v.disk.trees[b.serial]
	if !ok { // a boot sector without the structures behind it
		return nil, b, win.ErrorDiskCorrupt
	}
	return t, b, nil
}

// mount and writable implement root.
func (v *volume) mount() (*ntfs.FS, error) {
	t, _, err := v.tree()
	if err != nil {
		return nil, err
	}
	return t.fs, nil
}

func (v *volume) writable() bool { return v.disk.writable() && !v.readOnly }

// writeBoot puts the boot sector and its copy, the last sector of the partition,
// on the disk.
func (v *volume) writeBoot(b bootSector) error {
	s := b.encode(v.offset / v.disk.sector())
	for _, off := range []int64{v.offset + b.totalSectors*v.disk.sector(), v.offset} {
		if _, err := v.disk.image.WriteAt(s, off); err != nil {
			return win.ErrorIODevice
		}
	}
	return nil
}

// format makes an empty file system on the volume.
func (v *volume) format(o win.FormatOptions) error {
	kind := fsKind(o.FileSystem)
	cluster := o.ClusterSize
	if cluster == 0 {
		cluster = max(defaultCluster(kind, v.length), v.disk.Spec.SectorSize)
	}
	switch {
	case kind != kindNTFS && kind != kindReFS:
		return win.ErrorNotSupported
	case bits.OnesCount32(cluster) != 1, cluster < v.disk.Spec.SectorSize, cluster > maxClusterSize,
		v.length < bootAreaSize+int64(cluster),
		kind == kindReFS && cluster != 4<<10 && cluster != 64<<10, // the two sizes that ReFS has
		kind == kindReFS && o.NoShortNames, kind == kindNTFS && o.IntegrityStreams:
		return win.ErrorInvalidParameter
	case len(utf16.Encode([]rune(o.Label))) > maxLabel:
		return win.ErrorLabelTooLong
	}
	id := win.NewGUID()
	b := bootSector{
		kind: kind, bytesPerSector: v.disk.Spec.SectorSize, sectorsPerCluster: cluster / v.disk.Spec.SectorSize,
		totalSectors: v.length/v.disk.sector() - 1, // the last one is for the copy
		serial:       binary.LittleEndian.Uint64(id[8:]),
	}
	if _, err := v.disk.image.WriteAt(make([]byte, bootAreaSize), v.offset); err != nil {
		return win.ErrorIODevice
	}
	if err := v.writeBoot(b); err != nil {
		return err
	}
	for serial, t := range v.disk.trees {
		if t.Offset == v.offset {
			v.disk.dropTree(serial)
		}
	}
	v.disk.addTree(b.serial, &tree{
		treeRecord: treeRecord{Offset: v.offset, Label: o.Label, NoShortNames: o.NoShortNames, IntegrityStreams: o.IntegrityStreams},
		fs:         ntfs.New(b.capacity(), cluster), changed: true,
	})
	v.disk.mark()
	return nil
}

func (d *drive) addTree(serial uint64, t *tree) {
	d.trees[serial] = t
	t.fs.OnChange = d.mark
}

func (d *drive) dropTree(serial uint64) {
	delete(d.trees, serial)
	d.dropped = append(d.dropped, serial)
	d.mark()
}

// extend grows the file system to a number of sectors (FSCTL_EXTEND_VOLUME),
// which includes the one for the copy of the boot sector.
// A growth of less than a cluster gives ErrorInvalidParameter.
//
// Guess: a growth beyond the partition gives error 87.
func (v *volume) extend(sectors int64) error {
	t, b, err := v.content()
	if err != nil {
		return err
	}
	total := sectors - 1
	switch {
	case sectors > v.length/v.disk.sector(), total-b.totalSectors < int64(b.sectorsPerCluster):
		return win.ErrorInvalidParameter
	case !v.writable():
		return win.ErrorWriteProtect
	}
	b.totalSectors = total
	if err := v.writeBoot(b); err != nil {
		return err
	}
	t.fs.Extend(b.capacity())
	return nil
}

// data is what the file system says of its size.
func (t *tree) data(b bootSector) win.FileSystemData {
	return win.FileSystemData{
		NumberSectors: b.totalSectors,
		TotalClusters: t.fs.Capacity() / b.cluster(),
		FreeClusters:  (t.fs.Capacity() - t.fs.Used()) / b.cluster(),

		BytesPerSector: b.bytesPerSector, BytesPerCluster: uint32(b.cluster()),
	}
}

// spaceOf is what GetDiskFreeSpaceExW says of a file system.
func spaceOf(fs *ntfs.FS) win.DiskSpace {
	free := uint64(fs.Capacity() - fs.Used())
	return win.DiskSpace{Available: free, Total: uint64(fs.Capacity()), Free: free}
}
