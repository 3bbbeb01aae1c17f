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

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/sparse"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// The buckets of the state file that are the node's own. The parts in packages of
// their own have others.
const (
	bucketSystem  = "system"  // systemKey -> nodeRecord
	bucketDisks   = "disks"   // disk id -> diskRecord
	bucketBlocks  = "blocks"  // disk id, block number -> contents
	bucketVolumes = "volumes" // unique id of a partition -> volumeRecord
	bucketMounts  = "mounts"  // host volume, directory -> mountRecord
	bucketTrees   = "trees"   // disk id, serial -> treeRecord
	bucketFiles   = "files"   // disk id, serial, record id -> record

	systemKey = "node"
)

// nodeRecord is what the state file has of the node itself.
type nodeRecord struct {
	NextDisk   uint64
	Settings   Settings
	BIOSSerial string
	Registry   registry
	Numbers    map[string]uint32 `json:",omitempty"` // of the registry, by key and name as there
	Processes  []Process         `json:",omitempty"`
	// Instances are the attributes that were persisted with Settings.AttributesOfInstance,
	// by device instance.
	Instances map[string]win.DiskAttributes `json:",omitempty"`
}

// parts are all that keep state in the file.
func (s *System) parts() []statefile.Part {
	return []statefile.Part{hardware{s}, s.services, s.iscsi, s.smb}
}

// commit makes durable all that changed since the last time.
func (s *System) commit() error {
	s.save()
	return s.file.Commit()
}

// save hands what changed to the file.
func (s *System) save() {
	for _, p := range s.parts() {
		p.Save(s.file)
	}
}

// hardware is the part of the node that isn't in a package of its own: the node's
// settings and firmware, disks, volumes and mount points.
type hardware struct{ *System }

// Save implements [statefile.Part].
func (s hardware) Save(f *statefile.File) {
	if s.changed {
		s.node.NextDisk, s.node.Processes = s.disks.next, s.processes.list()
		f.PutJSON(bucketSystem, []byte(systemKey), s.node)
		s.changed = false
	}
	for d := range s.disks.dirty {
		d.save(f)
	}
	clear(s.disks.dirty)
	for _, id := range s.disks.gone {
		f.Delete(bucketDisks, statefile.Key(id))
		for _, bucket := range []string{bucketBlocks, bucketTrees, bucketFiles} {
			f.DeletePrefix(bucket, statefile.Key(id))
		}
	}
	s.disks.gone = nil
	for unique := range s.volumes.changed {
		f.PutJSON(bucketVolumes, []byte(unique), s.volumes.known[unique])
	}
	clear(s.volumes.changed)
	for _, k := range s.mounts.changed {
		if r, ok := s.mounts.records[k]; ok {
			f.PutJSON(bucketMounts, []byte(k), r)
		} else {
			f.Delete(bucketMounts, []byte(k))
		}
	}
	s.mounts.changed = nil
}

func (d *drive) save(f *statefile.File) {
	if d.changed {
		f.PutJSON(bucketDisks, statefile.Key(d.id), d.diskRecord)
		d.changed = false
	}
	for index, contents := range d.image.TakeChanges() {
		k := statefile.Key(d.id, uint64(index))
		if contents == nil {
			f.Delete(bucketBlocks, k)
		} else {
			f.Put(bucketBlocks, k, bytes.Clone(contents))
		}
	}
	for _, serial := range d.dropped {
		f.DeletePrefix(bucketTrees, statefile.Key(d.id, serial))
		f.DeletePrefix(bucketFiles, statefile.Key(d.id, serial))
	}
	d.dropped = nil
	for _, serial := range slices.Sorted(maps.Keys(d.trees)) {
		t := d.trees[serial]
		if t.changed {
			f.PutJSON(bucketTrees, statefile.Key(d.id, serial), t.treeRecord)
			t.changed = false
		}
		for _, r := range t.fs.TakeChanges() {
			k := statefile.Key(d.id, serial, r.ID)
			if r.Data == nil {
				f.Delete(bucketFiles, k)
			} else {
				f.Put(bucketFiles, k, r.Data)
			}
		}
	}
}

// install makes a new node: a system disk with the volume C:.
func (s *System) install() error {
	s.node, s.changed = nodeRecord{BIOSSerial: defaultBIOSSerial}, true
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
	s.installRegistry()
	return s.services.Install()
}

func (s *System) installDisk(d *drive) error {
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

// Restore implements [statefile.Part].
func (s hardware) Restore(r *statefile.Reader) error {
	if err := r.GetJSON(bucketSystem, systemKey, &s.node); err != nil {
		return err
	}
	s.disks.next = s.node.NextDisk
	for _, restore := range []func(*statefile.Reader) error{s.restoreDisks, s.restoreTrees, s.restoreVolumes} {
		if err := restore(r); err != nil {
			return err
		}
	}
	return nil
}

// resume brings in what was present when the state file was written, and lets what
// was on its way arrive.
func (s *System) resume() {
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
	s.resumeProcesses()
	s.services.Resume()
}

func (s *System) restoreDisks(r *statefile.Reader) error {
	err := r.Each(bucketDisks, func(k, value []byte) error {
		id, err := statefile.Numbers(k, 1)
		if err != nil {
			return err
		}
		d := &drive{id: id[0], trees: map[uint64]*tree{}}
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
	return r.Each(bucketBlocks, func(k, value []byte) error {
		n, err := statefile.Numbers(k, 2)
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

func (s *System) restoreTrees(r *statefile.Reader) error {
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
	err = r.Each(bucketTrees, func(k, value []byte) error {
		n, err := statefile.Numbers(k, 2)
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

func (s *System) restoreVolumes(r *statefile.Reader) error {
	err := r.Each(bucketVolumes, func(k, value []byte) error {
		v := &volumeRecord{}
		s.volumes.known[string(k)] = v
		return json.Unmarshal(value, v)
	})
	if err != nil {
		return err
	}
	return r.Each(bucketMounts, func(k, value []byte) error {
		var m mountRecord
		if err := json.Unmarshal(value, &m); err != nil {
			return err
		}
		s.mounts.records[string(k)] = m
		return nil
	})
}
