// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gpt

import (
	"fmt"
	"math"
)

const (
	mbrSize           = 512
	mbrTable          = 446
	mbrEntrySize      = 16
	mbrTypeProtective = 0xEE
)

// MBR is a master boot record with its four primary partitions.
type MBR struct {
	Signature  uint32
	Partitions [4]MBRPartition
}

// MBRPartition is one entry; an unused one has Type 0.
type MBRPartition struct {
	Type     byte
	Bootable bool
	First    int64 // sector
	Sectors  int64
}

// Protective reports whether the entry guards a GPT.
func (p MBRPartition) Protective() bool { return p.Type == mbrTypeProtective }

// ReadMBR reads the master boot record of d. It gives ErrNoTable if sector 0 is
// none, or what its entries say can't be true.
func ReadMBR(d Disk) (MBR, error) {
	b := make([]byte, mbrSize)
	if _, err := d.Image.ReadAt(b, 0); err != nil {
		return MBR{}, err
	}
	if b[510] != 0x55 || b[511] != 0xAA {
		return MBR{}, ErrNoTable
	}
	m := MBR{Signature: le.Uint32(b[440:])}
	for i := range m.Partitions {
		e := b[mbrTable+i*mbrEntrySize:]
		if e[0]&0x7F != 0 {
			return MBR{}, fmt.Errorf("%w: entry %d begins with %#x", ErrNoTable, i, e[0])
		}
		if e[4] != 0 {
			m.Partitions[i] = MBRPartition{Type: e[4], Bootable: e[0] != 0, First: int64(le.Uint32(e[8:])),
				Sectors: int64(le.Uint32(e[12:]))}
		}
	}
	if err := m.Validate(d); err != nil {
		return MBR{}, fmt.Errorf("%w: %w", ErrNoTable, err)
	}
	return m, nil
}

// Validate reports a partition that lies outside d or on another one.
func (m MBR) Validate(d Disk) error {
	for i, p := range m.Partitions {
		if p.Type == 0 {
			continue
		}
		// A protective entry may claim more than there is: some tools always write
		// the greatest number.
		if p.First < 1 || p.Sectors < 1 || p.Sectors > math.MaxUint32 || !p.Protective() &&
			p.First+p.Sectors > min(d.sectors(), 1<<32) {
			return fmt.Errorf("partition %d: sectors %d to %d lie outside the disk's %d", i+1, p.First, p.First+p.Sectors-1,
				d.sectors())
		}
		for j, q := range m.Partitions[:i] {
			if q.Type != 0 && p.First < q.First+q.Sectors && q.First < p.First+p.Sectors {
				return fmt.Errorf("partitions %d and %d overlap", j+1, i+1)
			}
		}
	}
	return nil
}

// Write puts the record into sector 0 of d.
func (m MBR) Write(d Disk) error {
	b := make([]byte, d.SectorSize)
	le.PutUint32(b[440:], m.Signature)
	for i, p := range m.Partitions {
		if p.Type == 0 {
			continue
		}
		e := b[mbrTable+i*mbrEntrySize:]
		if p.Bootable {
			e[0] = 0x80
		}
		copy(e[1:], noCHS)
		e[4] = p.Type
		copy(e[5:], noCHS)
		le.PutUint32(e[8:], uint32(p.First))
		le.PutUint32(e[12:], uint32(p.Sectors))
	}
	b[510], b[511] = 0x55, 0xAA
	if _, err := d.Image.WriteAt(b, 0); err != nil {
		return fmt.Errorf("write the master boot record: %w", err)
	}
	return nil
}

// noCHS stands for an address beyond what cylinder, head and sector can express.
const noCHS = "\xFE\xFF\xFF"

func protectiveMBR(d Disk) []byte {
	b := make([]byte, d.SectorSize)
	e := b[mbrTable:]
	copy(e[1:], "\x00\x02\x00") // sector 1 as cylinder, head and sector
	e[4] = mbrTypeProtective
	copy(e[5:], "\xFF\xFF\xFF")
	le.PutUint32(e[8:], 1)
	le.PutUint32(e[12:], uint32(min(d.sectors()-1, 0xFFFFFFFF)))
	b[510], b[511] = 0x55, 0xAA
	return b
}
