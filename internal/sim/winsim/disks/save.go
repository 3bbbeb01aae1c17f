// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/sparse"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
)

// The buckets of the state file that the disks have.
const (
	bucketDisks  = "disks"  // disk id -> Record
	bucketBlocks = "blocks" // disk id, block number -> contents
)

// Save implements [statefile.Part]. What is in Kept isn't saved here.
func (m *Manager) Save(f *statefile.File) {
	for d := range m.dirty {
		d.save(f)
	}
	clear(m.dirty)
	for _, id := range m.gone {
		f.Put(bucketDisks, statefile.Key(id), nil)
		f.DeletePrefix(bucketBlocks, statefile.Key(id))
	}
	m.gone = nil
}

func (d *Disk) save(f *statefile.File) {
	if d.changed {
		f.PutJSON(bucketDisks, statefile.Key(d.ID), d.Record)
		d.changed = false
	}
	for index, contents := range d.Image.TakeChanges() {
		f.Put(bucketBlocks, statefile.Key(d.ID, uint64(index)), bytes.Clone(contents))
	}
}

// Restore implements [statefile.Part].
func (m *Manager) Restore(r *statefile.Reader) error {
	err := statefile.EachJSON(r, bucketDisks, func(k []byte, record Record) error {
		id, err := statefile.Numbers(k, 1)
		if err != nil {
			return err
		}
		d := &Disk{ID: id[0], Record: record}
		if d.Spec.SCSI == nil || d.Size <= 0 || d.Seen > d.Size || d.Spec.SectorSize != 512 && d.Spec.SectorSize != 4096 {
			return errors.New("its record makes no sense")
		}
		d.Image = sparse.New(d.Size)
		m.add(d)
		return nil
	})
	if err != nil {
		return err
	}
	return r.Each(bucketBlocks, func(k, value []byte) error {
		n, err := statefile.Numbers(k, 2)
		if err != nil {
			return err
		}
		d, err := m.WithID(n[0])
		if err != nil {
			return err
		}
		return d.Image.Restore(int64(n[1]), value)
	})
}

// WithID is the disk of a record in the state file.
func (m *Manager) WithID(id uint64) (*Disk, error) {
	d, ok := m.byID[id]
	if !ok {
		return nil, fmt.Errorf("there is no disk %d", id)
	}
	return d, nil
}
