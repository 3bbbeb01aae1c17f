// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// The buckets of the state file that the volumes have.
const (
	bucketVolumes = "volumes" // unique id of a partition -> Record
	bucketMounts  = "mounts"  // host volume, directory -> mount
	bucketTrees   = "trees"   // disk id, serial -> treeRecord
	bucketFiles   = "files"   // disk id, serial, record id -> record
)

// Save implements [statefile.Part].
func (m *Manager) Save(f *statefile.File) {
	for st := range m.dirty {
		st.save(f)
	}
	clear(m.dirty)
	for _, id := range m.deleted {
		f.DeletePrefix(bucketTrees, statefile.Key(id))
		f.DeletePrefix(bucketFiles, statefile.Key(id))
	}
	m.deleted = nil
	statefile.PutChanged(f, bucketVolumes, m.changed, m.known)
	statefile.PutChanged(f, bucketMounts, m.mountsChanged, m.mounts)
}

func (st *store) save(f *statefile.File) {
	for _, serial := range st.dropped {
		f.DeletePrefix(bucketTrees, statefile.Key(st.disk, serial))
		f.DeletePrefix(bucketFiles, statefile.Key(st.disk, serial))
	}
	st.dropped = nil
	for _, serial := range slices.Sorted(maps.Keys(st.trees)) {
		t := st.trees[serial]
		if t.changed {
			f.PutJSON(bucketTrees, statefile.Key(st.disk, serial), t.treeRecord)
			t.changed = false
		}
		for _, r := range t.fs.TakeChanges() {
			f.Put(bucketFiles, statefile.Key(st.disk, serial, r.ID), r.Data)
		}
	}
}

// Restore implements [statefile.Part]. The disks are there already.
func (m *Manager) Restore(r *statefile.Reader) error {
	if err := m.restoreTrees(r); err != nil {
		return err
	}
	err := statefile.EachJSON(r, bucketVolumes, func(k []byte, v *Record) error {
		m.known[string(k)] = v
		return nil
	})
	if err != nil {
		return err
	}
	return statefile.EachJSON(r, bucketMounts, func(k []byte, p mount) error {
		m.mounts[string(k)] = p
		return nil
	})
}

func (m *Manager) restoreTrees(r *statefile.Reader) error {
	type treeKey struct{ disk, serial uint64 }
	records := map[treeKey][]ntfs.Record{}
	err := r.Each(bucketFiles, func(k, value []byte) error {
		n, err := statefile.Numbers(k, 3)
		if err != nil {
			return err
		}
		t := treeKey{n[0], n[1]}
		records[t] = append(records[t], ntfs.Record{ID: n[2], Data: value})
		return nil
	})
	if err != nil {
		return err
	}
	err = statefile.EachJSON(r, bucketTrees, func(k []byte, record treeRecord) error {
		n, err := statefile.Numbers(k, 2)
		if err != nil {
			return err
		}
		d, err := m.config.Disks.WithID(n[0])
		if err != nil {
			return err
		}
		t := &tree{treeRecord: record}
		id := treeKey{n[0], n[1]}
		if t.fs, err = ntfs.Restore(records[id]); err != nil {
			return err
		}
		delete(records, id)
		m.store(d).add(n[1], t)
		return nil
	})
	if err == nil && len(records) > 0 {
		err = errors.New("there are files of a file system that is unknown")
	}
	return err
}

// Contents is what outlives the process, records and file systems by their names: what
// Restore makes of the file must have the same.
func (m *Manager) Contents() (records map[string]any, trees map[string]*ntfs.FS) {
	records, trees = map[string]any{"mounts": fmt.Sprint(m.mounts)}, map[string]*ntfs.FS{}
	for _, st := range m.stores {
		for serial, t := range st.trees {
			name := fmt.Sprintf("tree %d %x", st.disk, serial)
			records[name], trees[name] = t.treeRecord, t.fs
		}
	}
	for unique, r := range m.known {
		records["volume "+unique] = *r
	}
	for _, v := range m.present {
		records["present "+v.Unique] = []any{v.Disk.ID, v.DataPartition}
	}
	return records, trees
}

// Install formats the volume of the disk that Windows runs from, and makes it C:.
func (m *Manager) Install(d *disks.Disk) (*Volume, error) {
	parts := d.DataPartitions()
	if len(parts) != 1 {
		return nil, errors.New("it has no volume")
	}
	v := m.add(d, parts[0])
	v.Letter = "C"
	return v, v.format(win.FormatOptions{FileSystem: string(kindNTFS)})
}
