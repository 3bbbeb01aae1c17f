// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signatures recognises what a raw disk or volume holds, so that nothing
// is written over data of another system. It looks only for signatures of known
// formats: random leftovers on a recycled disk aren't a reason to refuse it.
//
// It can't recognise a BitLocker volume whose boot sector is gone, since the other
// copies of BitLocker's metadata have no fixed offset.
package signatures

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// Reader reads aligned runs of bytes, as win.Device does.
type Reader interface {
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
}

// signature is a run of bytes at a fixed place. A negative offset counts from
// the end of the medium.
type signature struct {
	name   string
	offset int64
	magic  []byte
	// check, if given, looks at more of the bytes around, from the start of
	// magic on, to rule out chance: short magics need it.
	check func(b []byte) bool
}

// Where a boot sector has the name of its file system.
const (
	nameOffset  = 3
	fat16Offset = 54
	fat32Offset = 82
)

// Sources of the places and values: the on-disk format of each, as util-linux
// libblkid also probes them.
var signatures = slices.Concat(
	[]signature{
		// The superblock lies at 1024; s_magic at 0x38 of it. s_rev_level, at
		// 0x4C, is 0 or 1; s_log_block_size, at 0x18, at most 6.
		{"an ext2, ext3 or ext4 file system", 1024, nil, isExt},
		{"an XFS file system", 0, []byte("XFSB"), nil},
		{"a Btrfs file system", 0x10040, []byte("_BHRfS_M"), nil},
		{"a LUKS encrypted volume", 0, []byte("LUKS\xba\xbe"), nil},
		{"a LUKS encrypted volume (second header)", 0x4000, []byte("SKUL\xba\xbe"), nil},
		{"an NTFS file system", nameOffset, []byte("NTFS    "), nil},
		{"a ReFS file system", nameOffset, []byte("ReFS\x00\x00\x00\x00"), nil},
		{"a BitLocker encrypted volume", nameOffset, []byte("-FVE-FS-"), nil},
		{"an exFAT file system", nameOffset, []byte("EXFAT   "), nil},
		{"a FAT32 file system", fat32Offset, []byte("FAT32   "), nil},
		{"a FAT file system", fat16Offset, []byte("FAT16   "), nil},
		{"a FAT file system", fat16Offset, []byte("FAT12   "), nil},
		// MD RAID 1.1 lies at 0, 1.2 at 4096, 1.0 and 0.90 near the end.
		{"a Linux MD RAID member", 0, mdMagic, nil},
		{"a Linux MD RAID member", 4096, mdMagic, nil},
		// A ZFS label has its first uberblock at 128 KiB; the uberblocks that a
		// pool has written are anywhere in the 128 KiB after it.
		{"a ZFS pool member", 128 << 10, nil, isZFS},
		{"a ZFS pool member (second label)", 384 << 10, nil, isZFS},
	},
	// The LVM label is in one of the first four sectors.
	at("an LVM physical volume", []byte("LABELONE"), isLVM, 0, 512, 1024, 1536),
	// The swap signature ends the first page, whatever the page size was.
	at("Linux swap space", []byte("SWAPSPACE2"), nil, 4096-10, 8192-10, 16384-10, 65536-10),
	at("Linux swap space", []byte("SWAP-SPACE"), nil, 4096-10, 8192-10, 16384-10, 65536-10),
	// NTFS keeps a copy of its boot sector in the last sector of the volume.
	at("an NTFS file system with a damaged boot sector", []byte("\xeb\x52\x90NTFS    "), nil, -512, -4096),
	at("a ReFS file system with a damaged boot sector", []byte("\x00\x00\x00ReFS\x00\x00\x00\x00"), nil, -512, -4096),
)

var mdMagic = []byte{0xfc, 0x4e, 0x2b, 0xa9}

func at(name string, magic []byte, check func([]byte) bool, offsets ...int64) []signature {
	var s []signature
	for _, offset := range offsets {
		s = append(s, signature{name, offset, magic, check})
	}
	return s
}

// headSize covers every signature that counts from the start: two ZFS labels,
// 512 KiB. tailSize covers those that count from the end, MD RAID 0.90 (64 KiB
// to 128 KiB before it) among them.
const (
	headSize = 512 << 10
	tailSize = 128 << 10
)

// Recognise says what the size bytes of r hold, in words that complete "it
// holds …"; "" if it knows none of it. The medium is read in multiples of
// sectorSize.
func Recognise(ctx context.Context, r Reader, size int64, sectorSize uint32) (string, error) {
	m, err := readEnds(ctx, r, size, sectorSize)
	if err != nil {
		return "", err
	}
	return m.recognise(), nil
}

// ends are the two ends of a medium, read into memory.
type ends struct {
	size, sector, tailStart int64
	head, tail              []byte
}

func readEnds(ctx context.Context, r Reader, size int64, sectorSize uint32) (m ends, err error) {
	if sectorSize == 0 || size < 0 {
		return m, fmt.Errorf("a medium of %d bytes in sectors of %d can't be read", size, sectorSize)
	}
	m.sector = int64(sectorSize)
	m.size = size - size%m.sector
	if m.head, err = read(ctx, r, 0, min(m.size, headSize)); err != nil {
		return m, err
	}
	m.tailStart = max(0, m.size-tailSize)
	m.tailStart -= m.tailStart % m.sector
	m.tail, err = read(ctx, r, m.tailStart, m.size-m.tailStart)
	return m, err
}

// at returns what is at an offset, which counts from the end if it is negative, as far as
// that has been read.
func (m ends) at(offset int64) []byte {
	if offset < 0 {
		return from(m.tail, m.size+offset-m.tailStart)
	}
	return from(m.head, offset)
}

// from returns b from an offset on; nothing if b doesn't reach so far.
func from(b []byte, offset int64) []byte {
	if offset < 0 || offset > int64(len(b)) {
		return nil
	}
	return b[offset:]
}

func (m ends) recognise() string {
	for _, s := range signatures {
		if s.found(m.at(s.offset)) {
			return s.name
		}
	}
	if isOldMD(m.tail, m.size, m.tailStart) {
		return "a Linux MD RAID member"
	}
	return ""
}

// bootSectors are the places where a first partition usually begins: from 1 MiB on by
// today's tools; behind Microsoft's reserved partition of 16 MiB, or of 32 MiB, or of
// 128 MiB behind 1 MiB, by Windows'.
var bootSectors = []int64{1 << 20, 16 << 20, 32 << 20, 129 << 20}

// RecogniseDisk is Recognise for a whole disk that has no partition table which Windows
// reads. It also knows what is left of a disk whose table is damaged: a header of a GPT,
// and file systems where a first partition usually begins. It says in which sector it
// found such.
func RecogniseDisk(ctx context.Context, r Reader, size int64, sectorSize uint32) (string, error) {
	m, err := readEnds(ctx, r, size, sectorSize)
	if err != nil {
		return "", err
	}
	if found := m.recognise(); found != "" {
		return found, nil
	}
	// A GPT of a disk with sectors of 512 bytes may have been copied to one with 4096,
	// and the other way round. Its copy is in the last sector.
	for _, offset := range []int64{512, 4096, -512, -4096} {
		if bytes.HasPrefix(m.at(offset), []byte("EFI PART")) {
			if offset < 0 {
				offset += m.size
			}
			return fmt.Sprintf("a GUID partition table that is damaged or lacks its protective MBR (sector %d)",
				offset/m.sector), nil
		}
	}
	for _, offset := range bootSectors {
		if offset+m.sector > m.size {
			continue
		}
		b, err := read(ctx, r, offset, m.sector)
		if err != nil {
			return "", err
		}
		if found := bootSector(b); found != "" {
			return fmt.Sprintf("%s (sector %d)", found, offset/m.sector), nil
		}
	}
	return "", nil
}

// bootSector names the file system that the first sector of a partition is of. The short
// names of FAT count only if the sector ends as boot sectors do.
func bootSector(b []byte) string {
	ended := len(b) >= 512 && b[510] == 0x55 && b[511] == 0xAA
	for _, s := range signatures {
		if (s.offset == nameOffset || ended && (s.offset == fat16Offset || s.offset == fat32Offset)) &&
			s.found(from(b, s.offset)) {
			return s.name + " where a partition usually begins"
		}
	}
	return ""
}

// found reports whether b begins with the signature.
func (s signature) found(b []byte) bool {
	return len(b) > 0 && bytes.HasPrefix(b, s.magic) && (s.check == nil || s.check(b))
}

// read reads [offset, offset+length); what the medium can't give is left out.
func read(ctx context.Context, r Reader, offset, length int64) ([]byte, error) {
	b := make([]byte, length)
	n, err := r.ReadAt(ctx, b, offset)
	if err != nil {
		return nil, fmt.Errorf("reading %d bytes at %d: %w", length, offset, err)
	}
	return b[:n], nil
}

var le = binary.LittleEndian

func isExt(b []byte) bool {
	return len(b) >= 0x50 && le.Uint16(b[0x38:]) == 0xEF53 && le.Uint32(b[0x4C:]) <= 1 && le.Uint32(b[0x18:]) <= 6
}

// isLVM checks the type of the label, at 24 bytes into its sector.
func isLVM(b []byte) bool { return len(b) >= 32 && bytes.HasPrefix(b[24:], []byte("LVM2 001")) }

// isZFS looks through an array of 128 uberblocks, in either byte order. The
// magic is 64 bits wide and stands only at starts of uberblocks (at least 1 KiB
// apart), so two of its kind are enough against chance.
func isZFS(b []byte) bool {
	const magic, span, step = 0x00bab10c, 128 << 10, 1 << 10
	for i := 0; i+8 <= min(len(b), span); i += step {
		if le.Uint64(b[i:]) == magic || binary.BigEndian.Uint64(b[i:]) == magic {
			return true
		}
	}
	return false
}

// isOldMD looks for MD RAID superblocks at the end: version 1.0 lies at least
// 8 KiB before the end on a 4 KiB boundary, version 0.90 in the last full 64 KiB
// but one.
func isOldMD(tail []byte, size, tailStart int64) bool {
	for _, place := range []int64{(size - 8<<10) &^ (4<<10 - 1), size&^(64<<10-1) - 64<<10} {
		i := place - tailStart
		if i >= 0 && i+4 <= int64(len(tail)) && bytes.Equal(tail[i:i+4], mdMagic) {
			return true
		}
	}
	return false
}
