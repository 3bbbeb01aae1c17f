// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/gpt"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// The layouts that Windows gives to the system disk and to a reserved partition.
const (
	mib                   = 1 << 20
	reservedPartitionEnd  = 16 * mib
	reservedPartitionName = "Microsoft reserved partition"
)

// Layout is the partition table in the bytes of the disk, read again after each change of
// these or of the size. A table that is damaged beyond its backup counts as none. The caller
// may change what it gets.
func (d *Disk) Layout() *win.DriveLayout {
	if d.read == nil || d.readSize != d.Seen {
		d.read, d.readSize = d.readLayout(), d.Seen
	}
	l := *d.read
	l.Partitions = slices.Clone(l.Partitions)
	return &l
}

func (d *Disk) readLayout() *win.DriveLayout {
	if t, err := gpt.Read(d.media()); err == nil {
		return d.gptLayout(t)
	}
	m, err := gpt.ReadMBR(d.media())
	if err != nil || slices.ContainsFunc(m.Partitions[:], gpt.MBRPartition.Protective) {
		return &win.DriveLayout{Style: win.StyleRAW}
	}
	return d.mbrLayout(m)
}

func (d *Disk) gptLayout(t *gpt.Table) *win.DriveLayout {
	l := &win.DriveLayout{
		Style: win.StyleGPT, DiskID: t.DiskID, MaxPartitionCount: uint32(len(t.Slots)),
		StartingUsableOffset: t.FirstUsable * d.SectorSize(),
		UsableLength:         (t.LastUsable - t.FirstUsable + 1) * d.SectorSize(),
	}
	for i, p := range t.Slots {
		if p.Used() {
			l.Partitions = append(l.Partitions, win.Partition{
				Style: win.StyleGPT, Number: uint32(i + 1),
				StartingOffset: p.First * d.SectorSize(), Length: (p.Last - p.First + 1) * d.SectorSize(),
				Type: p.Type, ID: p.ID, Attributes: p.Attributes, Name: p.Name,
			})
		}
	}
	return l
}

// mbrLayout gives all four entries, as Windows does; only used ones have a number.
func (d *Disk) mbrLayout(m gpt.MBR) *win.DriveLayout {
	l := &win.DriveLayout{Style: win.StyleMBR, Signature: m.Signature}
	number := uint32(0)
	for _, p := range m.Partitions {
		lp := win.Partition{Style: win.StyleMBR}
		if p.Type != 0 {
			number++
			lp.Number, lp.MBRType, lp.BootIndicator = number, p.Type, p.Bootable
			lp.StartingOffset, lp.Length = p.First*d.SectorSize(), p.Sectors*d.SectorSize()
		}
		l.Partitions = append(l.Partitions, lp)
	}
	return l
}

// createTable puts an empty partition table on the disk (IOCTL_DISK_CREATE_DISK);
// what was partitioned before is gone.
func (d *Disk) createTable(c win.CreateDisk, automaticMSR bool) error {
	switch c.Style {
	case win.StyleMBR:
		// Signature lies where the first bytes of DiskID do.
		return gpt.MBR{Signature: binary.LittleEndian.Uint32(c.DiskID[:])}.Write(d.media())
	case win.StyleGPT:
	default:
		return winerr.ErrorInvalidParameter
	}
	t, err := gpt.New(d.media(), c.DiskID, int(min(c.MaxPartitionCount, 1<<16)))
	if err != nil {
		return winerr.ErrorInvalidParameter
	}
	if last := reservedPartitionEnd/d.SectorSize() - 1; automaticMSR && last <= t.LastUsable {
		t.Slots[0] = gpt.Partition{
			Type: win.PartitionTypeMicrosoftReserved, ID: winid.NewGUID(), Name: reservedPartitionName,
			First: t.FirstUsable, Last: last,
		}
	}
	return t.Write(d.media())
}

// SetLayout replaces the whole partition table (IOCTL_DISK_SET_DRIVE_LAYOUT_EX):
// partitions that l leaves out are gone. The disk must have a table of that
// style.
//
// Guess: in a new layout, a partition without a number gets the first free entry of the
// table, and one that doesn't fit, or overlaps, gives error 87.
func (d *Disk) SetLayout(l *win.DriveLayout) error {
	if l.Style != d.Layout().Style {
		return winerr.ErrorInvalidParameter
	}
	switch l.Style {
	case win.StyleGPT:
		return d.setGPT(l)
	case win.StyleMBR:
		return d.setMBR(l)
	}
	return winerr.ErrorInvalidParameter
}

func (d *Disk) setGPT(l *win.DriveLayout) error {
	t, err := gpt.Read(d.media())
	if err != nil || t.Fit(d.media()) != nil {
		return winerr.ErrorInvalidParameter
	}
	if !l.DiskID.IsZero() {
		t.DiskID = l.DiskID
	}
	t.Slots = make([]gpt.Partition, len(t.Slots))
	used := slices.DeleteFunc(slices.Clone(l.Partitions), func(p win.Partition) bool { return p.Type.IsZero() })
	// Those with a number of their own first: the others get what is free.
	slices.SortStableFunc(used, func(a, b win.Partition) int { return cmp.Compare(min(b.Number, 1), min(a.Number, 1)) })
	ids := map[winid.GUID]bool{}
	for _, p := range used {
		slot := int(p.Number) - 1
		if p.Number == 0 {
			slot = slices.IndexFunc(t.Slots, func(p gpt.Partition) bool { return !p.Used() })
		}
		first, length, aligned := d.inSectors(p)
		if !aligned || slot < 0 || slot >= len(t.Slots) || t.Slots[slot].Used() || p.ID.IsZero() || ids[p.ID] {
			return winerr.ErrorInvalidParameter
		}
		ids[p.ID] = true
		t.Slots[slot] = gpt.Partition{
			Type: p.Type, ID: p.ID, Attributes: p.Attributes, Name: p.Name, First: first, Last: first + length - 1,
		}
	}
	if t.Validate() != nil {
		return winerr.ErrorInvalidParameter
	}
	return t.Write(d.media())
}

func (d *Disk) setMBR(l *win.DriveLayout) error {
	m := gpt.MBR{Signature: l.Signature}
	i := 0
	for _, p := range l.Partitions {
		if p.MBRType == 0 {
			continue
		}
		first, length, aligned := d.inSectors(p)
		if !aligned || i == len(m.Partitions) {
			return winerr.ErrorInvalidParameter
		}
		m.Partitions[i] = gpt.MBRPartition{Type: p.MBRType, Bootable: p.BootIndicator, First: first, Sectors: length}
		i++
	}
	if m.Validate(d.media()) != nil {
		return winerr.ErrorInvalidParameter
	}
	return m.Write(d.media())
}

// inSectors converts the place of p; aligned reports whether it is one.
func (d *Disk) inSectors(p win.Partition) (first, length int64, aligned bool) {
	aligned = p.StartingOffset > 0 && p.Length > 0 && p.StartingOffset%d.SectorSize() == 0 &&
		p.Length%d.SectorSize() == 0 &&
		p.StartingOffset < d.Seen && p.Length <= d.Seen
	return p.StartingOffset / d.SectorSize(), p.Length / d.SectorSize(), aligned
}

// growPartition makes a partition longer (IOCTL_DISK_GROW_PARTITION).
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntdddisk/ni-ntdddisk-ioctl_disk_grow_partition
func (d *Disk) growPartition(g win.GrowPartition, tooFar winerr.Errno) error {
	if g.BytesToGrow <= 0 || g.BytesToGrow%d.SectorSize() != 0 {
		return winerr.ErrorInvalidParameter
	}
	sectors := g.BytesToGrow / d.SectorSize()
	tooFar = cmp.Or(tooFar, winerr.ErrorInvalidParameter)
	if d.Layout().Style == win.StyleMBR {
		return d.growInMBR(g.PartitionNumber, sectors, tooFar)
	}
	t, err := gpt.Read(d.media())
	i := int(g.PartitionNumber) - 1
	if err != nil || i < 0 || i >= len(t.Slots) || !t.Slots[i].Used() {
		return winerr.ErrorInvalidParameter
	}
	if sectors > t.Room(i)-t.Slots[i].Last {
		return tooFar
	}
	t.Slots[i].Last += sectors
	return t.Write(d.media())
}

// growInMBR makes the partition with a number longer, as far as the disk, the next partition and the 32 bits
// of an entry allow.
func (d *Disk) growInMBR(number uint32, sectors int64, tooFar winerr.Errno) error {
	m, err := gpt.ReadMBR(d.media())
	if err != nil {
		return winerr.ErrorInvalidParameter
	}
	for i := range m.Partitions {
		if p := &m.Partitions[i]; p.Type != 0 {
			if number--; number == 0 {
				p.Sectors += sectors
				if m.Validate(d.media()) != nil {
					return tooFar
				}
				return m.Write(d.media())
			}
		}
	}
	return winerr.ErrorInvalidParameter
}

// readCapacity makes the disk driver read the capacity.
func (d *Disk) readCapacity() {
	if d.Seen != d.Size {
		d.Seen = d.Size
		d.touch()
	}
}

// updateSize makes the disk driver read the capacity again
// (IOCTL_DISK_UPDATE_DRIVE_SIZE). The GPT takes in what is new.
func (d *Disk) updateSize() error {
	d.readCapacity()
	t, err := gpt.Read(d.media())
	if err != nil || !d.Writable() { // no table to move, or not now
		return nil
	}
	before := t.LastUsable
	if err := t.Fit(d.media()); err != nil {
		return winerr.ErrorInvalidParameter
	}
	if t.LastUsable == before {
		return nil
	}
	return t.Write(d.media())
}

// tableIDs are the ids in the partition table that must be unique on a node.
func (d *Disk) tableIDs() []string {
	l := d.Layout()
	switch {
	case l.Style == win.StyleGPT:
		ids := []string{"disk " + l.DiskID.String()}
		for _, p := range l.Partitions {
			ids = append(ids, "partition "+p.ID.String())
		}
		return ids
	case l.Style == win.StyleMBR && l.Signature != 0:
		return []string{fmt.Sprintf("signature %08x", l.Signature)}
	}
	return nil
}

// DataPartition is a partition that gets a volume.
type DataPartition struct {
	Unique  string // under which the mount manager knows it
	Number  uint32
	Offset  int64
	Length  int64
	NoDrive bool // no drive letter by itself

	ReadOnly bool
}

// The types of MBR partitions that Windows has file systems for: NTFS and exFAT,
// and the kinds of FAT.
var mbrDataTypes = []byte{0x01, 0x04, 0x06, 0x07, 0x0B, 0x0C, 0x0E}

// DataPartitions are the partitions with volumes; none unless the disk is online.
func (d *Disk) DataPartitions() []DataPartition {
	if !d.Present() || d.Is(win.DiskOffline) || d.Number == win.NoNumber {
		return nil
	}
	l := d.Layout()
	var parts []DataPartition
	for _, p := range l.Partitions {
		dp := DataPartition{Number: p.Number, Offset: p.StartingOffset, Length: p.Length}
		switch {
		case l.Style == win.StyleGPT && p.Type == win.PartitionTypeBasicData && p.Attributes&win.GPTAttributeHidden == 0:
			dp.Unique = "gpt " + p.ID.String()
			dp.NoDrive = p.Attributes&win.GPTAttributeNoDriveLetter != 0
			dp.ReadOnly = p.Attributes&win.GPTAttributeReadOnly != 0
		case l.Style == win.StyleMBR && slices.Contains(mbrDataTypes, p.MBRType):
			dp.Unique = fmt.Sprintf("mbr %08x %d", l.Signature, p.StartingOffset)
		default:
			continue
		}
		parts = append(parts, dp)
	}
	return parts
}
