// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpt reads and writes partition tables as they lie on a disk: the GUID
// partition table (GPT) with its two copies, and the master boot record (MBR).
//
// Source: UEFI Specification 2.10, chapter 5.
package gpt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"unicode/utf16"

	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

var le = binary.LittleEndian

const (
	signature  = "EFI PART"
	revision   = 0x00010000
	headerSize = 92
	entrySize  = 128
	nameUnits  = 36 // UTF-16 units of a partition's name

	// MinEntries is the least number of entries that the specification lets a
	// table have room for: 16 KiB of them.
	MinEntries = 128
	maxEntries = 1024
)

var (
	// ErrNoTable means that the disk claims to have no table of the kind asked for.
	ErrNoTable = errors.New("no partition table")
	// ErrDamaged means that a protective MBR announces a GPT, but neither copy of
	// it is sound.
	ErrDamaged = errors.New("both copies of the partition table are damaged")
	// ErrTooSmall means that the disk has no room for a table.
	ErrTooSmall = errors.New("the disk is too small for a partition table")
)

// Disk is what a table is read from or written to.
type Disk struct {
	Image interface {
		io.ReaderAt
		io.WriterAt
	}
	Size       int64 // bytes
	SectorSize int64 // bytes of a logical sector: 512 or 4096
}

func (d Disk) sectors() int64 { return d.Size / d.SectorSize }

// Table is a GUID partition table.
type Table struct {
	DiskID      winid.GUID
	FirstUsable int64 // the first sector that a partition may use
	LastUsable  int64 // the last one
	// Slots is the array of entries. A partition's number is its index plus one.
	// An unused slot has a zero Type.
	Slots []Partition
}

// Partition is one entry.
type Partition struct {
	Type, ID   winid.GUID
	First      int64 // sector
	Last       int64 // sector, inclusive
	Attributes uint64
	Name       string // at most 36 UTF-16 units
}

// Used reports whether the slot holds a partition.
func (p Partition) Used() bool { return !p.Type.IsZero() }

// New returns an empty table for d with room for at least entries partitions.
func New(d Disk, id winid.GUID, entries int) (*Table, error) {
	t := &Table{DiskID: id, Slots: make([]Partition, max(entries, MinEntries))}
	if len(t.Slots) > maxEntries {
		return nil, fmt.Errorf("a table of %d entries: at most %d are possible", entries, maxEntries)
	}
	t.FirstUsable = 2 + t.arraySectors(d)
	if err := t.Fit(d); err != nil {
		return nil, err
	}
	return t, nil
}

// arraySectors is the number of sectors that the entries take.
func (t *Table) arraySectors(d Disk) int64 {
	return (int64(len(t.Slots))*entrySize + d.SectorSize - 1) / d.SectorSize
}

// Fit makes all of d usable, as after the disk has grown: the backup copy goes to
// the end of d with the next Write. It never makes the usable range shorter.
func (t *Table) Fit(d Disk) error {
	last := d.sectors() - 2 - t.arraySectors(d)
	if last < t.FirstUsable {
		return fmt.Errorf("%w: %d sectors", ErrTooSmall, d.sectors())
	}
	t.LastUsable = max(t.LastUsable, last)
	return nil
}

// Write puts the protective MBR and both copies of the table on d.
func (t *Table) Write(d Disk) error {
	backup := t.LastUsable + 1 + t.arraySectors(d)
	if backup >= d.sectors() {
		return fmt.Errorf("%w: the backup header belongs into sector %d of %d", ErrTooSmall, backup, d.sectors())
	}
	entries := make([]byte, t.arraySectors(d)*d.SectorSize)
	for i, p := range t.Slots {
		if p.Used() {
			p.encode(entries[i*entrySize:])
		}
	}
	crc := crc32.ChecksumIEEE(entries[:len(t.Slots)*entrySize])
	// The backup first: whenever the writing ends, one copy is whole.
	for _, w := range []struct {
		sector int64
		bytes  []byte
	}{
		{t.LastUsable + 1, entries},
		{backup, t.header(d, backup, 1, t.LastUsable+1, crc)},
		{2, entries},
		{1, t.header(d, 1, backup, 2, crc)},
		{0, protectiveMBR(d)},
	} {
		if _, err := d.Image.WriteAt(w.bytes, w.sector*d.SectorSize); err != nil {
			return fmt.Errorf("write the partition table: %w", err)
		}
	}
	return nil
}

func (t *Table) header(d Disk, own, other, entries int64, crc uint32) []byte {
	b := make([]byte, d.SectorSize)
	copy(b, signature)
	le.PutUint32(b[8:], revision)
	le.PutUint32(b[12:], headerSize)
	le.PutUint64(b[24:], uint64(own))
	le.PutUint64(b[32:], uint64(other))
	le.PutUint64(b[40:], uint64(t.FirstUsable))
	le.PutUint64(b[48:], uint64(t.LastUsable))
	copy(b[56:], t.DiskID[:])
	le.PutUint64(b[72:], uint64(entries))
	le.PutUint32(b[80:], uint32(len(t.Slots)))
	le.PutUint32(b[84:], entrySize)
	le.PutUint32(b[88:], crc)
	le.PutUint32(b[16:], crc32.ChecksumIEEE(b[:headerSize]))
	return b
}

func (p Partition) encode(b []byte) {
	copy(b[0:], p.Type[:])
	copy(b[16:], p.ID[:])
	le.PutUint64(b[32:], uint64(p.First))
	le.PutUint64(b[40:], uint64(p.Last))
	le.PutUint64(b[48:], p.Attributes)
	name := utf16.Encode([]rune(p.Name))
	for i, u := range name[:min(len(name), nameUnits)] {
		le.PutUint16(b[56+2*i:], u)
	}
}

// Read reads the table of d: the primary copy or, where that is damaged, the
// backup in the last sectors. It gives ErrNoTable if the disk has no protective
// MBR and ErrDamaged if it has one but no sound copy.
func Read(d Disk) (*Table, error) {
	m, err := ReadMBR(d)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(m.Partitions[:], MBRPartition.Protective) {
		return nil, ErrNoTable
	}
	t, primaryErr := readCopy(d, 1)
	if primaryErr == nil {
		return t, nil
	}
	t, backupErr := readCopy(d, d.sectors()-1)
	if backupErr == nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w: primary: %w; backup: %w", ErrDamaged, primaryErr, backupErr)
}

func readCopy(d Disk, sector int64) (*Table, error) {
	if sector < 1 || sector >= d.sectors() {
		return nil, fmt.Errorf("no sector %d", sector)
	}
	h := make([]byte, d.SectorSize)
	if _, err := d.Image.ReadAt(h, sector*d.SectorSize); err != nil {
		return nil, err
	}
	size := le.Uint32(h[12:])
	if string(h[:8]) != signature || size < headerSize || int64(size) > d.SectorSize {
		return nil, errors.New("no header")
	}
	crc := le.Uint32(h[16:])
	clear(h[16:20])
	if crc32.ChecksumIEEE(h[:size]) != crc {
		return nil, errors.New("the checksum of the header is wrong")
	}
	count, size := le.Uint32(h[80:]), le.Uint32(h[84:])
	t := &Table{
		DiskID:      winid.GUID(h[56:72]),
		FirstUsable: int64(le.Uint64(h[40:])),
		LastUsable:  int64(le.Uint64(h[48:])),
	}
	array := int64(le.Uint64(h[72:]))
	switch {
	case int64(le.Uint64(h[24:])) != sector:
		return nil, errors.New("the header belongs into another sector")
	case t.FirstUsable < 2 || t.LastUsable < t.FirstUsable || t.LastUsable >= d.sectors():
		return nil, errors.New("the usable range does not fit the disk")
	case count < 1 || count > maxEntries || size != entrySize:
		return nil, fmt.Errorf("%d entries of %d bytes are not supported", count, size)
	case array < 2 || array >= d.sectors():
		return nil, errors.New("the entries lie outside the disk")
	}
	entries := make([]byte, int(count)*entrySize)
	if _, err := d.Image.ReadAt(entries, array*d.SectorSize); err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(entries) != le.Uint32(h[88:]) {
		return nil, errors.New("the checksum of the entries is wrong")
	}
	t.Slots = make([]Partition, count)
	for i := range t.Slots {
		t.Slots[i] = decodePartition(entries[i*entrySize:])
	}
	return t, t.Validate()
}

func decodePartition(b []byte) Partition {
	p := Partition{Type: winid.GUID(b[0:16])}
	if !p.Used() {
		return Partition{}
	}
	p.ID = winid.GUID(b[16:32])
	p.First = int64(le.Uint64(b[32:]))
	p.Last = int64(le.Uint64(b[40:]))
	p.Attributes = le.Uint64(b[48:])
	var name []uint16
	for i := range nameUnits {
		u := le.Uint16(b[56+2*i:])
		if u == 0 {
			break
		}
		name = append(name, u)
	}
	p.Name = string(utf16.Decode(name))
	return p
}

// Validate reports a partition that lies outside the usable range or on another
// one.
func (t *Table) Validate() error {
	for i, p := range t.Slots {
		if !p.Used() {
			continue
		}
		if p.First < t.FirstUsable || p.Last < p.First || p.Last > t.LastUsable {
			return fmt.Errorf("partition %d: sectors %d to %d lie outside %d to %d", i+1, p.First, p.Last, t.FirstUsable,
				t.LastUsable)
		}
		for j, q := range t.Slots[:i] {
			if q.Used() && p.First <= q.Last && q.First <= p.Last {
				return fmt.Errorf("partitions %d and %d overlap", j+1, i+1)
			}
		}
	}
	return nil
}

// Room is the last sector up to which the partition in slot i can grow.
func (t *Table) Room(i int) int64 {
	last := t.LastUsable
	for j, p := range t.Slots {
		if j != i && p.Used() && p.First > t.Slots[i].Last {
			last = min(last, p.First-1)
		}
	}
	return last
}
