// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"bytes"
	"encoding/binary"
)

// signature is how to recognise a format: one of magics at one of offsets. An offset below 0 counts
// from the end.
type signature struct {
	name    string
	magics  magics
	offsets offsets
	// check, if given, gets the bytes from the offset on. Magics of fewer than four bytes need a
	// check, since they also occur by chance.
	check func(b []byte) bool
}

type (
	magics  []string
	offsets []int64
)

// Offsets of the file system's name in a boot sector.
const (
	nameOffset  = 3
	fat16Offset = 54
	fat32Offset = 82
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// The places and values are the same as in util-linux' libblkid 2.43, except tables that Windows
// reads itself (MBR, GPT) and file systems of zoned disks. Each comes from the format's own
// documentation or header: the kernel's (fs/*/ and include/uapi/linux/*_fs.h, drivers/md/), the
// tools' of LVM, LUKS, DRBD, Stratis, Ceph and OpenZFS, SNIA's of DDF, ECMA-119 (ISO 9660) and
// ECMA-167 (UDF), Apple's of HFS+ and APFS. The first match counts.
var signatures = []signature{
	// File systems. Ext's superblock lies at 1024.
	{"an ext2, ext3 or ext4 file system", magics{""}, offsets{1024}, isExt},
	{"an XFS file system", magics{"XFSB"}, offsets{0}, nil},
	{"the journal of an XFS file system", magics{""}, offsets{0}, isXFSLog},
	{"a Btrfs file system", magics{"_BHRfS_M"}, offsets{64*kib + 64}, nil},
	{"an F2FS file system", magics{"\x10\x20\xf5\xf2"}, offsets{1024, 5120}, nil},
	{"an EROFS file system", magics{"\xe2\xe1\xf5\xe0"}, offsets{1024}, nil},
	{"a SquashFS file system", magics{"hsqs", "sqsh"}, offsets{0}, nil},
	{"a JFS file system", magics{"JFS1"}, offsets{32 * kib}, nil},
	// The revision, 2.0, comes before NILFS2's own magic.
	{"a NILFS2 file system", magics{"\x02\x00\x00\x00\x00\x00\x34\x34"}, offsets{1024, -4096}, nil},
	{"a ReiserFS file system", magics{"ReIsErFs", "ReIsEr2Fs", "ReIsEr3Fs"},
		offsets{8*kib + 0x34, 64*kib + 0x34, 8*kib + 20}, nil},
	{"a Reiser4 file system", magics{"ReIsEr4"}, offsets{64 * kib}, nil},
	{"a GFS or GFS2 file system", magics{"\x01\x16\x19\x70"}, offsets{64 * kib}, nil},
	{"an OCFS file system", magics{"OracleCFS"}, offsets{8 * kib}, nil},
	{"an OCFS2 file system", magics{"OCFSV2"}, offsets{1 * kib, 2 * kib, 4 * kib, 8 * kib}, nil},
	{"a bcachefs file system", magics{"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"},
		offsets{4*kib + 24, 2*mib + 24, -1*mib + 24}, nil},
	{"a ScoutFS file system", magics{"\x8b\x42\x3c\x10"}, offsets{64*kib + 4}, nil},
	{"a VMFS file system", magics{"\x5e\xf1\xab\x2f"}, offsets{2 * mib}, nil},
	{"a VMFS volume", magics{"\x0d\xd0\x01\xc0"}, offsets{1 * mib}, nil},
	{"an APFS container", magics{"NXSB"}, offsets{32}, nil},
	{"an HFS+ file system", magics{"H+\x00\x04", "HX\x00\x05"}, offsets{1024}, nil},
	{"an HFS or HFS+ file system", magics{"BD"}, offsets{1024}, isHFS},
	{"a UFS file system", magics{
		"\x54\x19\x01\x00", "\x00\x01\x19\x54", "\x19\x01\x54\x19", "\x19\x54\x01\x19",
		"\x12\x56\x19\x00", "\x00\x19\x56\x12", "\x14\x50\x09\x00", "\x00\x09\x50\x14",
		"\x95\x21\x61\x00", "\x00\x61\x21\x95", "\x94\x19\x23\x05", "\x05\x23\x19\x94"},
		offsets{0x55c, 8*kib + 0x55c, 64*kib + 0x55c, 256*kib + 0x55c}, nil},
	{"a VxFS file system", magics{"\xf5\xfc\x01\xa5", "\xa5\x01\xfc\xf5"}, offsets{1 * kib, 8 * kib}, nil},
	{"an HPFS file system", magics{"\x49\xe8\x95\xf9"}, offsets{8 * kib}, nil},
	{"a BeFS file system", magics{"BFS1", "1SFB"}, offsets{32, 512 + 32}, nil},
	{"a NetWare file system", magics{"SPB5"}, offsets{4 * kib}, nil},
	{"a Xenix file system", magics{"\x44\x55\x2b\x00", "\x00\x2b\x55\x44"}, offsets{2040}, nil},
	{"a System V file system", magics{"\x20\x7e\x18\xfd", "\xfd\x18\x7e\x20"}, offsets{1016, 10232, 16376, 19448}, nil},
	{"a BFS file system", magics{"\xce\xfa\xad\x1b"}, offsets{0}, nil},
	{"a cramfs file system", magics{"\x45\x3d\xcd\x28", "\x28\xcd\x3d\x45"}, offsets{0}, nil},
	{"a romfs file system", magics{"-rom1fs-"}, offsets{0}, nil},
	{"an EXFS file system", magics{"EXFS"}, offsets{0}, nil},
	{"an mpool medium", magics{"mpoolDev"}, offsets{0}, nil},
	{"a zonefs file system", magics{"SFOZ"}, offsets{0}, nil},
	{"a UBIFS file system", magics{"\x31\x18\x10\x06"}, offsets{0}, nil},
	{"a UBI medium", magics{"UBI#"}, offsets{0}, nil},
	// A type comes before the names of the descriptors of ISO 9660 and UDF, 1 byte or, in High
	// Sierra, 9.
	{"an ISO 9660 file system", magics{"CD001"}, offsets{32*kib + 1}, nil},
	{"a High Sierra file system", magics{"CDROM"}, offsets{32*kib + 9}, nil},
	{"a UDF file system", magics{"BEA01", "NSR02", "NSR03", "BOOT2", "CDW02", "TEA01"}, offsets{32*kib + 1}, nil},
	{"a Minix file system", magics{""}, offsets{1024}, isMinix},

	// Building blocks of file systems and volumes.
	{"a LUKS encrypted volume", magics{"LUKS\xba\xbe"}, offsets{0}, nil},
	{"a LUKS encrypted volume (second header)", magics{"SKUL\xba\xbe"}, offsets{
		16 * kib, 32 * kib, 64 * kib, 128 * kib, 256 * kib, 512 * kib, 1 * mib, 2 * mib, 4 * mib}, nil},
	{"a FileVault encrypted volume", magics{"\x01\x00\x10\x00"}, offsets{8}, isFileVault},
	{"an LVM physical volume", magics{"LABELONE"}, offsets{0, 512, 1024, 1536}, isLVM},
	{"an LVM physical volume", magics{"HM\x01\x00", "HM\x02\x00"}, offsets{0}, nil},
	{"a snapshot of the device mapper", magics{"SnAp"}, offsets{0}, nil},
	{"hashes of dm-verity", magics{"verity\x00\x00"}, offsets{0}, nil},
	{"a dm-integrity device", magics{"integrt\x00"}, offsets{0}, nil},
	{"a VDO device", magics{"dmvdo001"}, offsets{0}, nil},
	{"a Stratis device", magics{"!Stra0tis\x86\xff\x02^Arh"}, offsets{512 + 4, 9*512 + 4}, nil},
	{"a bcache device", magics{"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"}, offsets{4*kib + 24}, nil},
	{"a Ceph BlueStore device", magics{"bluestore block device"}, offsets{0}, nil},
	{"an Oracle ASM disk", magics{"ORCLDISK"}, offsets{32}, nil},
	{"a DRBD control volume", magics{"$DRBDmgr=q"}, offsets{0}, nil},
	{"a log of DRBD Proxy", magics{"DRBDdlh*"}, offsets{0}, nil},
	// A ZFS label has its first uberblock at 128 KiB; the written uberblocks of a pool are anywhere
	// in the 128 KiB after it. The label's list of properties, at 16 KiB, begins with the version.
	{"a ZFS pool member", magics{""}, offsets{128 * kib}, isZFS},
	{"a ZFS pool member (second label)", magics{""}, offsets{384 * kib}, isZFS},
	{"a ZFS pool member", zfsProperties, offsets{16*kib + 20, 272*kib + 20}, nil},
	// MD RAID 1.1 lies at 0, 1.2 at 4096.
	{"a Linux MD RAID member", mdMagics, offsets{0, 4096}, nil},
	// The signature of swap space, or of a hibernation image in it, ends the first page of any
	// size.
	{"Linux swap space", magics{"SWAPSPACE2", "SWAP-SPACE", "S1SUSPEND", "S2SUSPEND", "ULSUSPEND", "LINHIB0001"},
		offsets{4*kib - 10, 8*kib - 10, 16*kib - 10, 32*kib - 10, 64*kib - 10}, nil},
	{"Linux swap space", magics{"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"}, offsets{0}, nil},

	// Formats of RAID controllers, mostly in the last sectors.
	{"a DDF RAID member", magics{"\xde\x11\xde\x11"}, offsets{-512, -257 * 512}, nil},
	{"an Intel RAID member", magics{"Intel Raid ISM Cfg Sig. "}, offsets{-2 * 512, -2 * 4096}, nil},
	{"an Adaptec RAID member", magics{"\x37\xfc\x4d\x1e"}, offsets{-512}, nil},
	{"a HighPoint RAID member", magics{"\xf3\x16\x78\x5a", "\xfd\x16\x78\x5a"}, offsets{-11 * 512}, nil},
	{"a HighPoint RAID member", magics{"\xf0\x16\x78\x5a", "\xfd\x16\x78\x5a"}, offsets{9*512 + 32}, nil},
	{"a JMicron RAID member", magics{"JM"}, offsets{-512}, isJMicron},
	{"an LSI RAID member", magics{"$XIDE$"}, offsets{-512}, nil},
	{"an NVIDIA RAID member", magics{"NVIDIA  "}, offsets{-2 * 512}, nil},
	{"a Promise RAID member", magics{"Promise Technology, Inc."}, offsets{-16 * 512, -63 * 512, -255 * 512, -256 * 512,
		-399 * 512, -591 * 512, -675 * 512, -735 * 512, -911 * 512, -951 * 512, -974 * 512, -991 * 512, -3087 * 512}, nil},
	{"a Silicon Image RAID member", magics{""}, offsets{-512}, isSilicon},
	{"a VIA RAID member", magics{"\x55\xaa"}, offsets{-512}, isVIA},

	// Partition tables unknown to Windows.
	{"a BSD disk label", magics{"\x57\x45\x56\x82"}, offsets{64, 128, 512}, nil},
	{"a Solaris disk label", magics{"\xee\xde\x0d\x60"}, offsets{512 + 12}, nil},
	{"a Sun disk label", magics{""}, offsets{0}, isSun},
	{"an SGI disk label", magics{"\x0b\xe5\xa9\x41"}, offsets{0}, nil},
	{"an Ultrix disk label", magics{"\x57\x29\x03\x00\x01\x00\x00\x00"}, offsets{16*kib - 72}, nil},
	{"a UnixWare disk label", magics{"\x0d\x60\xe5\xca"}, offsets{29*512 + 4}, nil},
	{"an AIX disk label", magics{"\xc9\xc2\xd4\xc1"}, offsets{0}, nil},
	{"an Apple partition map", magics{"ER"}, offsets{0}, isAppleMap},
	// VOL1, LNX1 and CMS1 in EBCDIC, in the third block.
	{"a DASD label", magics{"\xe5\xd6\xd3\xf1"}, offsets{1024 + 4, 2048 + 4, 4096 + 4, 8192 + 4}, nil},
	{"a DASD label", magics{"\xd3\xd5\xe7\xf1", "\xc3\xd4\xe2\xf1"}, offsets{1024, 2048, 4096, 8192}, nil},
	{"an Atari partition table", magics{""}, offsets{0}, isAtari},

	// Windows' own. NTFS and ReFS keep a copy of the boot sector in the last sector of the volume.
	{"an NTFS file system", magics{"NTFS    "}, offsets{nameOffset}, nil},
	{"a ReFS file system", magics{"ReFS\x00\x00\x00\x00"}, offsets{nameOffset}, nil},
	{"a BitLocker encrypted volume", magics{"-FVE-FS-"}, offsets{nameOffset}, nil},
	{"an exFAT file system", magics{"EXFAT   "}, offsets{nameOffset}, nil},
	{"a FAT32 file system", magics{"FAT32   ", "MSWIN"}, offsets{fat32Offset}, nil},
	{"a FAT file system", magics{"FAT16   ", "FAT12   ", "FAT     ", "MSDOS"}, offsets{fat16Offset}, nil},
	{"an NTFS file system with a damaged boot sector", magics{"\xeb\x52\x90NTFS    "}, offsets{-512, -4096}, nil},
	{"a ReFS file system with a damaged boot sector", magics{"\x00\x00\x00ReFS\x00\x00\x00\x00"}, offsets{-512, -4096}, nil},
	{"a FAT file system", magics{"\xeb", "\xe9"}, offsets{0}, isFAT},
}

// alignedSignatures count from the end of a medium whose size is rounded down to a multiple of
// align.
var alignedSignatures = []struct {
	align int64
	signature
}{
	// MD RAID 1.0 and 0.90.
	{4 * kib, signature{"a Linux MD RAID member", mdMagics, offsets{-8 * kib}, nil}},
	{64 * kib, signature{"a Linux MD RAID member", mdMagics, offsets{-64 * kib}, nil}},
	{4 * kib, signature{"a DRBD device", magics{"\x83\x74\x02\x6b", "\x83\x74\x02\x6c", "\x83\x74\x02\x6d"},
		offsets{-4*kib + 60}, nil}},
	{256 * kib, signature{"a ZFS pool member (label at its end)", zfsProperties,
		offsets{-512*kib + 16*kib + 20, -256*kib + 16*kib + 20}, nil}},
}

var (
	mdMagics      = magics{"\xfc\x4e\x2b\xa9", "\xa9\x2b\x4e\xfc"}
	zfsProperties = magics{"\x00\x00\x00\x07version\x00"}

	le, be = binary.LittleEndian, binary.BigEndian
)

// isExt checks s_magic, s_rev_level, which is 0 or 1, and s_log_block_size, at most 6.
func isExt(b []byte) bool {
	return len(b) >= 0x50 && le.Uint16(b[0x38:]) == 0xEF53 && le.Uint32(b[0x4C:]) <= 1 && le.Uint32(b[0x18:]) <= 6
}

// isXFSLog searches for the header of a record, in any sector of the first 256 KiB.
func isXFSLog(b []byte) bool {
	for ; len(b) >= 512; b = b[512:] {
		version, format := be.Uint32(b[8:]), be.Uint32(b[300:])
		if be.Uint32(b) == 0xFEEDBABE && 1 <= version && version <= 2 && 1 <= format && format <= 3 {
			return true
		}
	}
	return false
}

// isHFS checks the size of the allocation blocks.
func isHFS(b []byte) bool {
	return len(b) >= 24 && be.Uint32(b[20:]) > 0 && be.Uint32(b[20:])%512 == 0
}

// isMinix checks that the inode map has room for all inodes, and the size of zones, always equal to
// the size of blocks. Numbers have the byte order of the magic.
func isMinix(b []byte) bool {
	if len(b) < 32 {
		return false
	}
	for _, order := range []binary.ByteOrder{le, be} {
		inodes, imap, zone := uint32(order.Uint16(b)), order.Uint16(b[4:]), order.Uint16(b[10:])
		switch order.Uint16(b[16:]) {
		case 0x137F, 0x138F, 0x2468, 0x2478:
		default:
			if order.Uint16(b[24:]) != 0x4D5A {
				continue
			}
			inodes, imap, zone = order.Uint32(b), order.Uint16(b[6:]), order.Uint16(b[12:])
		}
		if zone == 0 && 0 < inodes && uint64(inodes) < uint64(imap)*8*kib {
			return true
		}
	}
	return false
}

func isFileVault(b []byte) bool { return len(b) >= 82 && string(b[80:82]) == "CS" }

// isLVM checks the type of the label, at 24 bytes into its sector.
func isLVM(b []byte) bool { return len(b) >= 32 && bytes.HasPrefix(b[24:], []byte("LVM2 001")) }

// isZFS searches an array of 128 uberblocks, in either byte order. The magic is 64 bits wide and
// occurs only at starts of uberblocks (at least 1 KiB apart).
func isZFS(b []byte) bool {
	const magic, span, step = 0x00bab10c, 128 << 10, 1 << 10
	for i := 0; i+8 <= min(len(b), span); i += step {
		if le.Uint64(b[i:]) == magic || be.Uint64(b[i:]) == magic {
			return true
		}
	}
	return false
}

// sum adds the 16-bit words of b.
func sum(b []byte) (s uint16) {
	for ; len(b) >= 2; b = b[2:] {
		s += le.Uint16(b)
	}
	return s
}

func isJMicron(b []byte) bool { return len(b) >= 128 && sum(b[:128]) <= 1 && b[0x30] <= 5 }

func isSilicon(b []byte) bool {
	return len(b) >= 0x140 && le.Uint32(b[0x60:]) == 0x2F000000 && b[0x116] < 8 && sum(b[:0x140]) == 0
}

// isVIA checks the version and the sum of the first 50 bytes.
func isVIA(b []byte) bool {
	if len(b) < 51 || b[2] > 2 {
		return false
	}
	var s byte
	for _, c := range b[:50] {
		s += c
	}
	return s == b[50]
}

// isSun checks that the exclusive or of all words is 0: the label's last word is chosen
// accordingly.
func isSun(b []byte) bool {
	if len(b) < 512 || be.Uint16(b[508:]) != 0xDABE {
		return false
	}
	var s uint16
	for i := 0; i < 512; i += 2 {
		s ^= be.Uint16(b[i:])
	}
	return s == 0
}

// isAppleMap checks the map's first entry in the second block.
func isAppleMap(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	size := int64(be.Uint16(b[2:]))
	entry := from(b, size)
	return size >= 512 && (bytes.HasPrefix(entry, []byte("PM")) || bytes.HasPrefix(entry, []byte("TS")))
}

// isAtari searches for an entry of a known type within the disk: an Atari table has no magic.
func isAtari(b []byte) bool {
	if len(b) < 512 {
		return false
	}
	for i := 0x1C6; i < 0x1C6+4*12; i += 12 {
		size, start, length := be.Uint32(b[0x1C2:]), be.Uint32(b[i+4:]), be.Uint32(b[i+8:])
		switch string(b[i+1 : i+4]) {
		case "GEM", "BGM", "LNX", "SWP", "RAW", "XGM":
			if b[i]&1 == 1 && start > 0 && length > 0 && uint64(start)+uint64(length) <= uint64(size) {
				return true
			}
		}
	}
	return false
}

// isFAT checks the parameters of a FAT file system without a name.
func isFAT(b []byte) bool {
	power := func(n uint16) bool { return n > 0 && n&(n-1) == 0 }
	return len(b) >= 512 && b[510] == 0x55 && b[511] == 0xAA &&
		power(le.Uint16(b[11:])) && 512 <= le.Uint16(b[11:]) && le.Uint16(b[11:]) <= 4096 &&
		power(uint16(b[13])) && le.Uint16(b[14:]) > 0 && 1 <= b[16] && b[16] <= 2 && (b[21] == 0xF0 || b[21] >= 0xF8)
}
