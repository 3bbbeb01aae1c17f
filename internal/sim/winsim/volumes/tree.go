// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf16"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
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
func (v *Volume) boot() (bootSector, bool) {
	s := make([]byte, v.Disk.SectorSize())
	if _, err := v.Disk.Image.ReadAt(s, v.Offset); err != nil {
		return bootSector{}, false
	}
	return decodeBootSector(s)
}

// tree mounts what the volume holds: as its bytes say, at each call.
func (v *Volume) tree() (*tree, bootSector, error) {
	if v.lock != nil && v.dismounted == nil {
		return nil, bootSector{}, winerr.ErrorAccessDenied
	}
	return v.content()
}

// content is tree for whoever has the volume itself open: also while that is locked.
func (v *Volume) content() (*tree, bootSector, error) {
	switch {
	case v.Offline || v.comesOnline:
		return nil, bootSector{}, winerr.ErrorNotReady
	case v.dismounted != nil:
		return nil, bootSector{}, errorVolumeDismounted
	case v.Locked:
		return nil, bootSector{}, winerr.FVELockedVolume
	}
	b, ok := v.boot()
	t, exists := v.stored.trees[b.serial]
	if !ok || !exists { // no boot sector, or one without the structures behind it
		return nil, b, winerr.ErrorUnrecognizedVolume
	}
	return t, b, nil
}

// Mount returns the file system of the volume.
func (v *Volume) Mount() (*ntfs.FS, error) {
	t, _, err := v.tree()
	if err != nil {
		return nil, err
	}
	return t.fs, nil
}

// writeBoot puts the boot sector and its copy, the last sector of the partition,
// on the disk.
func (v *Volume) writeBoot(b bootSector) error {
	s := b.encode(v.Offset / v.Disk.SectorSize())
	for _, off := range []int64{v.Offset + b.totalSectors*v.Disk.SectorSize(), v.Offset} {
		if _, err := v.Disk.Image.WriteAt(s, off); err != nil {
			return err
		}
	}
	return nil
}

// format makes an empty file system on the volume.
func (v *Volume) format(o win.FormatOptions) error {
	kind := fsKind(o.FileSystem)
	cluster := o.ClusterSize
	if cluster == 0 {
		cluster = max(defaultCluster(kind, v.Length), v.Disk.Spec.SectorSize)
	}
	switch {
	case kind != kindNTFS && kind != kindReFS:
		return winerr.ErrorNotSupported
	case bits.OnesCount32(cluster) != 1, cluster < v.Disk.Spec.SectorSize, cluster > maxClusterSize,
		v.Length < bootAreaSize+int64(cluster),
		kind == kindReFS && cluster != 4<<10 && cluster != 64<<10, // the two sizes that ReFS has
		kind == kindReFS && o.NoShortNames, kind == kindNTFS && o.IntegrityStreams:
		return winerr.ErrorInvalidParameter
	case len(utf16.Encode([]rune(o.Label))) > maxLabel:
		return winerr.ErrorLabelTooLong
	}
	id := winid.NewGUID()
	b := bootSector{
		kind: kind, bytesPerSector: v.Disk.Spec.SectorSize, sectorsPerCluster: cluster / v.Disk.Spec.SectorSize,
		totalSectors: v.Length/v.Disk.SectorSize() - 1, // the last one is for the copy
		serial:       binary.LittleEndian.Uint64(id[8:]),
	}
	if _, err := v.Disk.Image.WriteAt(make([]byte, bootAreaSize), v.Offset); err != nil {
		return err
	}
	if err := v.writeBoot(b); err != nil {
		return err
	}
	for serial, t := range v.stored.trees {
		if t.Offset == v.Offset {
			v.stored.drop(serial)
		}
	}
	v.stored.add(b.serial, &tree{
		treeRecord: treeRecord{Offset: v.Offset, Label: o.Label, NoShortNames: o.NoShortNames,
			IntegrityStreams: o.IntegrityStreams},
		fs: ntfs.New(b.capacity(), cluster), changed: true,
	})
	v.stored.mark()
	return nil
}

// store is the file systems that lie on one disk.
type store struct {
	disk    uint64           // its id
	trees   map[uint64]*tree // by serial
	dropped []uint64         // serials of trees that are gone, since the last Save
	mark    func()           // says that there is something to save
}

// store returns that of a disk.
func (m *Manager) store(d *disks.Disk) *store {
	st, ok := m.stores[d]
	if !ok {
		st = &store{disk: d.ID, trees: map[uint64]*tree{}}
		st.mark = func() { m.dirty[st] = struct{}{} }
		m.stores[d] = st
	}
	return st
}

func (st *store) add(serial uint64, t *tree) {
	st.trees[serial] = t
	t.fs.OnChange = st.mark
}

func (st *store) drop(serial uint64) {
	delete(st.trees, serial)
	st.dropped = append(st.dropped, serial)
	st.mark()
}

// Copy copies the file systems of a disk to one that has the same bytes.
func (m *Manager) Copy(from, to *disks.Disk) error {
	for serial, t := range m.store(from).trees {
		if err := m.put(to, serial, t.treeRecord, t.fs.Records()); err != nil {
			return err
		}
	}
	return nil
}

// packed is a file system on its way to another node.
type packed struct {
	Serial uint64
	Record treeRecord
	Files  []ntfs.Record
}

// Pack returns the file systems of a disk, without what wasn't flushed.
func (m *Manager) Pack(d *disks.Disk) ([]byte, error) {
	var all []packed
	for serial, t := range m.store(d).trees {
		t.fs.DropUnflushed()
		all = append(all, packed{serial, t.treeRecord, t.fs.Records()})
	}
	return json.Marshal(all)
}

// Unpack puts the file systems on a disk.
func (m *Manager) Unpack(d *disks.Disk, data []byte) error {
	var all []packed
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, p := range all {
		if err := m.put(d, p.Serial, p.Record, p.Files); err != nil {
			return err
		}
	}
	return nil
}

// put puts a copy of a file system on a disk.
func (m *Manager) put(d *disks.Disk, serial uint64, record treeRecord, files []ntfs.Record) error {
	fs, err := ntfs.Restore(files)
	if err != nil {
		return err
	}
	m.store(d).add(serial, &tree{treeRecord: record, fs: fs, changed: true})
	fs.Touch()
	return nil
}

// Flush makes all that was written to the file systems of a disk outlast a loss of power.
func (m *Manager) Flush(d *disks.Disk) {
	for _, t := range m.store(d).trees {
		t.fs.Flush()
	}
}

// Forget deletes the file systems of a disk that was deleted.
func (m *Manager) Forget(d *disks.Disk) {
	delete(m.dirty, m.store(d))
	delete(m.stores, d)
	m.deleted = append(m.deleted, d.ID)
}

// Flush is FlushFileBuffers of the volume.
func (v *Volume) Flush() error {
	if !v.Writable() {
		return winerr.ErrorWriteProtect
	}
	t, _, err := v.content()
	if err == winerr.ErrorUnrecognizedVolume {
		return nil
	}
	if err != nil {
		return err
	}
	t.fs.Flush()
	return nil
}

// Information is what GetVolumeInformationW says.
func (v *Volume) Information() (win.VolumeInformation, error) {
	t, b, err := v.tree()
	if err != nil {
		return win.VolumeInformation{}, err
	}
	info := win.VolumeInformation{FileSystem: string(b.kind), Label: t.Label, Serial: uint32(b.serial)}
	if !v.Writable() {
		info.Flags |= win.FileReadOnlyVolume
	}
	return info, nil
}

// HasMountPoints reports whether directories of the volume can be mount points. Only NTFS has
// them by the documentation of the calls; that of ReFS says otherwise.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-deletevolumemountpointw
func (v *Volume) HasMountPoints() bool {
	b, _ := v.boot()
	return b.kind == kindNTFS
}

// extend grows the file system to a number of sectors (FSCTL_EXTEND_VOLUME),
// which includes the one for the copy of the boot sector.
// A growth of less than a cluster gives ErrorInvalidParameter.
//
// Guess: a growth beyond the partition gives error 87.
func (v *Volume) extend(sectors int64) error {
	t, b, err := v.content()
	if err != nil {
		return err
	}
	total := sectors - 1
	switch {
	case sectors > v.Length/v.Disk.SectorSize(), total-b.totalSectors < int64(b.sectorsPerCluster):
		return winerr.ErrorInvalidParameter
	case !v.Writable():
		return winerr.ErrorWriteProtect
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

// Space is what GetDiskFreeSpaceExW says of a file system.
func Space(fs *ntfs.FS) win.DiskSpace {
	free := uint64(fs.Capacity() - fs.Used())
	return win.DiskSpace{Available: free, Total: uint64(fs.Capacity()), Free: free}
}
