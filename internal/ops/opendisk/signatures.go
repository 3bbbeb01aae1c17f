// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Reader reads aligned runs of bytes, as win.Device does.
type Reader interface {
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
}

// runs are the parts of a medium to read; an offset below 0 counts from the end. The head covers
// most signatures: two ZFS labels of 256 KiB each, LUKS' header at 512 KiB, and the usual beginning
// of a first partition, at 1 MiB. The tail covers all signatures that count from the end. One long
// read takes less time than several short ones.
var runs = []run{
	{offset: 0, length: 1*mib + 4*kib},
	{offset: 2 * mib, length: 4 * kib},
	{offset: 4 * mib, length: 4 * kib},
	{offset: -3087 * 512, length: 3087 * 512},
}

type run struct{ offset, length int64 }

// Supported sizes of sectors. Disks have sectors of 512 or 4,096 bytes.
const (
	minSectorSize = 512
	maxSectorSize = 64 * kib
)

// Recognise describes what the size bytes of r hold, in words that complete "it holds …"; "" for
// unknown contents. The medium is read in multiples of sectorSize.
//
// Recognise knows the signatures of known formats, to keep data of other systems from being
// overwritten. Random leftovers on a recycled disk are no reason to refuse the disk. A BitLocker
// volume without its boot sector stays unknown: the other copies of BitLocker's metadata have no
// fixed offset.
func Recognise(ctx context.Context, r Reader, size int64, sectorSize uint32) (string, error) {
	m, err := read(ctx, r, size, sectorSize, runs)
	if err != nil {
		return "", err
	}
	defer m.release()
	return m.recognise(), nil
}

// IsBlank reports whether there are only zeros in the places of a disk's partition tables: in its
// first and last sectors. A GPT takes 34 sectors at the start, and 33 at the end.
func IsBlank(ctx context.Context, r Reader, size int64, sectorSize uint32) (bool, error) {
	table := 34 * int64(sectorSize)
	m, err := read(ctx, r, size, sectorSize, []run{{0, table}, {-table, table}})
	if err != nil {
		return false, err
	}
	defer m.release()
	blank := len(m.parts) == 2
	for _, p := range m.parts {
		blank = blank && int64(len(p.b)) == min(table, m.size) && bytes.Count(p.b, []byte{0}) == len(p.b)
	}
	return blank, nil
}

// contents are the parts of a medium that were read, until release.
type contents struct {
	size, sector int64
	parts        []part
	buffer       *[]byte // has the bytes of all parts
}

// buffers are the buffers of released contents: each read of a whole medium takes nearly 3 MB, and
// a node that comes back stages many disks at once.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func (m contents) release() { buffers.Put(m.buffer) }

type part struct {
	run
	b []byte
}

// read reads runs of a medium, widened to whole sectors. After success, the caller releases the
// contents. A failed read may still be under way in Windows, and read abandons its buffer. For an
// unsupported size of sectors the error is csiproxy.ErrFailedPrecondition.
func read(ctx context.Context, r Reader, size int64, sectorSize uint32, runs []run) (m contents, _ error) {
	if size < 0 {
		return m, fmt.Errorf("a medium of %d bytes can't be read", size)
	}
	// The disk itself says how large its sectors are, and the buffer grows with them.
	if sectorSize < minSectorSize || sectorSize > maxSectorSize || bits.OnesCount32(sectorSize) != 1 {
		return m, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the disk reports sectors of %d bytes; only powers of two from %d to %d are supported", sectorSize, minSectorSize, maxSectorSize)
	}
	m.sector = int64(sectorSize)
	m.size = size - size%m.sector
	m.buffer = buffers.Get().(*[]byte)
	free := m.allot(runs)
	for i := range m.parts {
		p := &m.parts[i]
		p.b, free = free[:p.length], free[p.length:]
		n, err := r.ReadAt(ctx, p.b, p.offset)
		if err != nil {
			return m, fmt.Errorf("reading %d bytes at %d: %w", p.length, p.offset, err)
		}
		p.b = p.b[:n] // a short read is kept as it is
	}
	return m, nil
}

// allot makes a part for each run within the medium, and returns a buffer for all parts.
func (m *contents) allot(runs []run) []byte {
	total := int64(0)
	for _, r := range runs {
		start, end := r.offset, r.offset+r.length
		if start < 0 {
			start, end = start+m.size, end+m.size
		}
		start = max(0, start-start%m.sector)
		end = min(m.size, (end+m.sector-1)/m.sector*m.sector)
		if start < end {
			m.parts = append(m.parts, part{run: run{start, end - start}})
			total += end - start
		}
	}
	*m.buffer = slices.Grow((*m.buffer)[:0], int(total))
	return (*m.buffer)[:total]
}

// at returns the bytes read from an offset on: the longest run, if several parts have the offset.
func (m contents) at(offset int64) []byte {
	var longest []byte
	for _, p := range m.parts {
		if b := from(p.b, offset-p.offset); len(b) > len(longest) {
			longest = b
		}
	}
	return longest
}

// from returns b from an offset on; nil if the offset is outside b.
func from(b []byte, offset int64) []byte {
	if offset < 0 || offset > int64(len(b)) {
		return nil
	}
	return b[offset:]
}

func (m contents) recognise() string {
	for _, s := range alignedSignatures {
		if m.has(s.signature, m.size-m.size%s.align) {
			return s.name
		}
	}
	for _, s := range signatures {
		if m.has(s, m.size) {
			return s.name
		}
	}
	return ""
}

// has reports whether the medium has a signature. Offsets below 0 count from end.
func (m contents) has(s signature, end int64) bool {
	return slices.ContainsFunc(s.offsets, func(offset int64) bool {
		if offset < 0 {
			offset += end
		}
		return s.found(m.at(offset))
	})
}

// found reports whether b begins with the signature.
func (s signature) found(b []byte) bool {
	return len(b) > 0 && slices.ContainsFunc(s.magics, func(magic string) bool { return bytes.HasPrefix(b, []byte(magic)) }) &&
		(s.check == nil || s.check(b))
}

// bootSectors are the usual places of a first partition: from 1 MiB on by today's tools; behind
// Microsoft's reserved partition of 16 MiB, of 32 MiB, or of 128 MiB behind 1 MiB, by Windows'
// tools.
var bootSectors = []int64{1 << 20, 16 << 20, 32 << 20, 129 << 20}

// Contents describes what a whole disk holds.
type Contents struct {
	// Recognised is like the result of the function Recognise, for a disk without a partition table
	// readable to Windows. It also names the remains of a disk with a damaged table, with their
	// sector: a header of a GPT, or a file system in the usual place of a first partition.
	Recognised string
	// HasTable reports whether the first sector is a master boot record with a relevant partition:
	// a partition for which Windows makes volumes, an extended partition, or the protective
	// partition of a GPT. Windows may hide the table of an offline disk.
	HasTable bool
}

// ReadContents reads a disk in multiples of sectorSize, and describes its contents.
func ReadContents(ctx context.Context, r Reader, size int64, sectorSize uint32) (Contents, error) {
	all := slices.Clone(runs)
	for _, offset := range bootSectors[1:] { // runs have the first
		all = append(all, run{offset, int64(sectorSize)})
	}
	m, err := read(ctx, r, size, sectorSize, all)
	if err != nil {
		return Contents{}, err
	}
	defer m.release()
	return Contents{m.recogniseDisk(), m.hasTable()}, nil
}

func (m contents) recogniseDisk() string {
	if found := m.recognise(); found != "" {
		return found
	}
	// A GPT may have been copied from a disk with sectors of 512 bytes to a disk with 4096, or the
	// other way round. The GPT's own copy is in the last sector.
	for _, offset := range []int64{512, 4096, m.size - 512, m.size - 4096} {
		if bytes.HasPrefix(m.at(offset), []byte("EFI PART")) {
			return fmt.Sprintf("a GUID partition table that is damaged or lacks its protective MBR (sector %d)",
				offset/m.sector)
		}
	}
	for _, offset := range bootSectors {
		if found := bootSector(m.at(offset)); found != "" {
			return fmt.Sprintf("%s (sector %d)", found, offset/m.sector)
		}
	}
	// Windows may report an MBR without a signature and without partitions like a blank disk.
	if endsAsBootSector(m.at(0)) {
		return "a master boot record without partitions"
	}
	return ""
}

// hasTable finds Contents.HasTable.
//
// Source: winioctl.h (PARTITION_EXTENDED, PARTITION_XINT13_EXTENDED, PARTITION_GPT)
func (m contents) hasTable() bool {
	b := m.at(0)
	if !endsAsBootSector(b) || bootSector(b) != "" { // a file system's code lies where a table would
		return false
	}
	for entry := range slices.Chunk(b[446:510], 16) {
		kind, start := entry[4], binary.LittleEndian.Uint32(entry[8:])
		if start == 0 {
			continue
		}
		isContainer := kind == 0x05 || kind == 0x0F || kind == 0xEE // extended, extended beyond 8 GB, protective
		if isContainer || win.HasVolumeInMBR(kind) {
			return true
		}
	}
	return false
}

func endsAsBootSector(b []byte) bool { return len(b) >= 512 && b[510] == 0x55 && b[511] == 0xAA }

// bootSector names the file system of a partition, given the partition's first sector. The short
// names of FAT count only if the sector ends like a boot sector.
func bootSector(b []byte) string {
	ofNames := offsets{nameOffset}
	if endsAsBootSector(b) {
		ofNames = append(ofNames, fat16Offset, fat32Offset)
	}
	for _, s := range signatures {
		for _, offset := range s.offsets {
			if slices.Contains(ofNames, offset) && s.found(from(b, offset)) {
				return s.name + " where a partition usually begins"
			}
		}
	}
	return ""
}
