// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/winsim/sparse"
)

// nodeRecord is what the state file has of the node itself.
type nodeRecord struct {
	Format   int // of the state file
	NextDisk uint64
	Settings Settings

	BIOSSerial string
	Initiator  initiatorRecord
	Network    iscsiNetwork
	Registry   registry
}

const stateFormat = 1

// commit makes durable all that changed since the last time.
func (s *System) commit() error {
	s.collect()
	return s.store.commit()
}

// collect hands what changed to the store.
func (s *System) collect() {
	if s.changed {
		s.node.NextDisk = s.disks.next
		s.store.putJSON(bucketNode, []byte(nodeKey), s.node)
		s.changed = false
	}
	for d := range s.disks.dirty {
		s.collectDisk(d)
	}
	clear(s.disks.dirty)
	for _, id := range s.disks.gone {
		s.store.delete(bucketDisks, key(id))
		for _, bucket := range []string{bucketBlocks, bucketTrees, bucketFiles} {
			s.store.deletePrefix(bucket, key(id))
		}
	}
	s.disks.gone = nil
	for unique := range s.volumes.changed {
		s.store.putJSON(bucketVolumes, []byte(unique), s.volumes.known[unique])
	}
	clear(s.volumes.changed)
	for _, k := range s.mounts.changed {
		if r, ok := s.mounts.records[k]; ok {
			s.store.putJSON(bucketMounts, []byte(k), r)
		} else {
			s.store.delete(bucketMounts, []byte(k))
		}
	}
	s.mounts.changed = nil
	s.collectServices()
	s.collectSMB()
}

func (s *System) collectDisk(d *disk) {
	if d.changed {
		s.store.putJSON(bucketDisks, key(d.id), d.diskRecord)
		d.changed = false
	}
	for index, contents := range d.image.TakeChanges() {
		k := key(d.id, uint64(index))
		if contents == nil {
			s.store.delete(bucketBlocks, k)
		} else {
			s.store.put(bucketBlocks, k, bytes.Clone(contents))
		}
	}
	for _, serial := range d.dropped {
		s.store.deletePrefix(bucketTrees, key(d.id, serial))
		s.store.deletePrefix(bucketFiles, key(d.id, serial))
	}
	d.dropped = nil
	for _, serial := range slices.Sorted(maps.Keys(d.trees)) {
		t := d.trees[serial]
		if t.changed {
			s.store.putJSON(bucketTrees, key(d.id, serial), t.treeRecord)
			t.changed = false
		}
		for _, r := range t.fs.TakeChanges() {
			k := key(d.id, serial, r.ID)
			if r.Data == nil {
				s.store.delete(bucketFiles, k)
			} else {
				s.store.put(bucketFiles, k, r.Data)
			}
		}
	}
}

// install makes a new node: a system disk with the volume C:.
func (s *System) install() error {
	s.node, s.changed = nodeRecord{Format: stateFormat}, true
	spec := DiskSpec{
		SizeBytes: 64 << 30, Serial: "SIMSYSTEM", VendorID: "Msft", ProductID: "Virtual Disk",
		SCSI: &win.SCSIAddress{}, Location: "PCI Slot 0 : Adapter 0 : Port 0 : Target 0 : LUN 0",
	}
	d, err := s.diskFor(spec)
	if err != nil {
		return fmt.Errorf("system disk: %w", err)
	}
	if err := s.installDisk(d); err != nil {
		return fmt.Errorf("system disk: %w", err)
	}
	return s.installServices()
}

func (s *System) installDisk(d *disk) error {
	const efiEnd = mib + 100*mib
	d.State, d.Number, d.Seen = DiskPresent, 0, d.Size
	if err := d.createTable(win.CreateDisk{Style: win.StyleGPT, DiskID: win.NewGUID()}, false); err != nil {
		return err
	}
	l := d.layout()
	end := (l.StartingUsableOffset + l.UsableLength) / mib * mib
	for _, p := range []win.Partition{
		{Type: win.PartitionTypeEFISystem, StartingOffset: mib, Length: 100 * mib, Name: "EFI system partition"},
		{Type: win.PartitionTypeMicrosoftReserved, StartingOffset: efiEnd, Length: 16 * mib, Name: reservedPartitionName},
		{Type: win.PartitionTypeBasicData, StartingOffset: efiEnd + 16*mib, Length: end - efiEnd - 16*mib, Name: basicDataPartitionName},
	} {
		p.Style, p.ID = win.StyleGPT, win.NewGUID()
		l.Partitions = append(l.Partitions, p)
	}
	if err := d.setLayout(l); err != nil {
		return err
	}
	d.System = true
	parts := d.dataPartitions()
	if len(parts) != 1 {
		return errors.New("it has no volume")
	}
	v := s.addVolume(d, parts[0])
	v.Letter = "C"
	if err := v.format(win.FormatOptions{FileSystem: string(kindNTFS)}); err != nil {
		return err
	}
	for _, path := range [][]string{
		{"Windows"}, {"Windows", "System32"},
		{"var"}, {"var", "lib"}, {"var", "lib", "kubelet"},
		{"var", "lib", "kubelet", "plugins"}, {"var", "lib", "kubelet", "pods"},
	} {
		op, err := s.openLocation(location{v, path}, win.OpenOptions{Disposition: win.FileCreate, Options: win.FileDirectoryFile})
		if err != nil {
			return err
		}
		op.file.Close()
	}
	return nil
}

// restore reads the node from the state file.
func (s *System) restore(tx *bbolt.Tx) error {
	for _, restore := range []func(*bbolt.Tx) error{s.restoreNode, s.restoreDisks, s.restoreTrees, s.restoreVolumes, s.restoreServices, s.restoreSMB} {
		if err := restore(tx); err != nil {
			return err
		}
	}
	return nil
}

// resume brings in what was present when the state file was written, and lets what
// was on its way arrive.
func (s *System) resume() error {
	for d := range s.disks.all() {
		for _, p := range d.dataPartitions() {
			if r, ok := s.volumes.known[p.unique]; ok && r.Present {
				s.addVolume(d, p)
			}
		}
		s.scanVolumes(d)
		if d.Arriving {
			s.diskArrivesLater(d)
		}
	}
	if s.services.byName == nil { // the file is from before there were any
		return s.installServices()
	}
	s.resumeServices()
	return nil
}

func (s *System) restoreNode(tx *bbolt.Tx) error {
	err := load(tx, bucketNode, func(_, value []byte) error { return json.Unmarshal(value, &s.node) })
	if err != nil {
		return err
	}
	if s.node.Format != stateFormat {
		return fmt.Errorf("it has the format %d, not %d", s.node.Format, stateFormat)
	}
	s.disks.next = s.node.NextDisk
	return nil
}

func (s *System) restoreDisks(tx *bbolt.Tx) error {
	err := load(tx, bucketDisks, func(k, value []byte) error {
		id, err := numbers(k, 1)
		if err != nil {
			return err
		}
		d := &disk{id: id[0], trees: map[uint64]*tree{}}
		if err := json.Unmarshal(value, &d.diskRecord); err != nil {
			return err
		}
		if d.Spec.SCSI == nil || d.Size <= 0 || d.Seen > d.Size || d.Spec.SectorSize != 512 && d.Spec.SectorSize != 4096 {
			return errors.New("its record makes no sense")
		}
		d.image = sparse.New(d.Size)
		s.disks.add(d)
		return nil
	})
	if err != nil {
		return err
	}
	return load(tx, bucketBlocks, func(k, value []byte) error {
		n, err := numbers(k, 2)
		if err != nil {
			return err
		}
		d, ok := s.disks.byID[n[0]]
		if !ok {
			return fmt.Errorf("there is no disk %d", n[0])
		}
		return d.image.Restore(int64(n[1]), value)
	})
}

func (s *System) restoreTrees(tx *bbolt.Tx) error {
	type treeKey struct{ disk, serial uint64 }
	records := map[treeKey][]ntfs.Record{}
	err := load(tx, bucketFiles, func(k, value []byte) error {
		n, err := numbers(k, 3)
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
	err = load(tx, bucketTrees, func(k, value []byte) error {
		n, err := numbers(k, 2)
		if err != nil {
			return err
		}
		d, ok := s.disks.byID[n[0]]
		if !ok {
			return fmt.Errorf("there is no disk %d", n[0])
		}
		t := &tree{}
		if err := json.Unmarshal(value, &t.treeRecord); err != nil {
			return err
		}
		id := treeKey{n[0], n[1]}
		if t.fs, err = ntfs.Restore(records[id]); err != nil {
			return err
		}
		delete(records, id)
		d.addTree(n[1], t)
		return nil
	})
	if err == nil && len(records) > 0 {
		err = errors.New("there are files of a file system that is unknown")
	}
	return err
}

func (s *System) restoreVolumes(tx *bbolt.Tx) error {
	err := load(tx, bucketVolumes, func(k, value []byte) error {
		r := &volumeRecord{}
		s.volumes.known[string(k)] = r
		return json.Unmarshal(value, r)
	})
	if err != nil {
		return err
	}
	return load(tx, bucketMounts, func(k, value []byte) error {
		var r mountRecord
		if err := json.Unmarshal(value, &r); err != nil {
			return err
		}
		s.mounts.records[string(k)] = r
		return nil
	})
}
