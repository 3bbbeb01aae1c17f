// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signaturetest has a medium for each kind of data known to package opendisk. Tests use the
// media to show that such data are not overwritten.
package signaturetest

// Medium is blank apart from some bytes.
type Medium struct {
	Name  string           // what opendisk.Recognise says of it
	parts map[int64]string // by offset; one below 0 counts from the end
}

// Parts calls f with the bytes of the medium, each with its offset, if the medium has size bytes.
func (m Medium) Parts(size int64, f func(offset int64, s string)) {
	for offset, s := range m.parts {
		if offset < 0 {
			offset += size
		}
		f(offset, s)
	}
}

// Media are the remains of mkfs and similar tools, reduced to the bytes of their signatures: at
// least one of each kind.
var Media = []Medium{
	{"an ext2, ext3 or ext4 file system", map[int64]string{1024 + 0x38: "\x53\xef", 1024 + 0x18: "\x02", 1024 + 0x4c: "\x01"}},
	{"an XFS file system", map[int64]string{0: "XFSB"}},
	{"the journal of an XFS file system", map[int64]string{512: "\xfe\xed\xba\xbe", 512 + 11: "\x02", 512 + 303: "\x01"}},
	{"a Btrfs file system", map[int64]string{65536 + 64: "_BHRfS_M"}},
	{"an F2FS file system", map[int64]string{1024: "\x10\x20\xf5\xf2"}},
	{"an EROFS file system", map[int64]string{1024: "\xe2\xe1\xf5\xe0"}},
	{"a SquashFS file system", map[int64]string{0: "hsqs"}},
	{"a JFS file system", map[int64]string{32768: "JFS1"}},
	{"a NILFS2 file system", map[int64]string{1024: "\x02\x00\x00\x00\x00\x00\x34\x34"}},
	{"a ReiserFS file system", map[int64]string{8244: "ReIsErFs"}},
	{"a Reiser4 file system", map[int64]string{65536: "ReIsEr4"}},
	{"a GFS or GFS2 file system", map[int64]string{65536: "\x01\x16\x19\x70"}},
	{"an OCFS file system", map[int64]string{8192: "OracleCFS"}},
	{"an OCFS2 file system", map[int64]string{1024: "OCFSV2"}},
	{"a bcachefs file system", map[int64]string{4120: "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"}},
	{"a ScoutFS file system", map[int64]string{65540: "\x8b\x42\x3c\x10"}},
	{"a VMFS file system", map[int64]string{2097152: "\x5e\xf1\xab\x2f"}},
	{"a VMFS volume", map[int64]string{1048576: "\x0d\xd0\x01\xc0"}},
	{"an APFS container", map[int64]string{32: "NXSB"}},
	{"an HFS+ file system", map[int64]string{1024: "H+\x00\x04"}},
	{"an HFS or HFS+ file system", map[int64]string{1024: "BD", 1024 + 22: "\x02"}},
	{"a UFS file system", map[int64]string{1372: "\x54\x19\x01\x00"}},
	{"a VxFS file system", map[int64]string{1024: "\xf5\xfc\x01\xa5"}},
	{"an HPFS file system", map[int64]string{8192: "\x49\xe8\x95\xf9"}},
	{"a BeFS file system", map[int64]string{32: "BFS1"}},
	{"a NetWare file system", map[int64]string{4096: "SPB5"}},
	{"a Xenix file system", map[int64]string{2040: "\x44\x55\x2b\x00"}},
	{"a System V file system", map[int64]string{1016: "\x20\x7e\x18\xfd"}},
	{"a BFS file system", map[int64]string{0: "\xce\xfa\xad\x1b"}},
	{"a cramfs file system", map[int64]string{0: "\x45\x3d\xcd\x28"}},
	{"a romfs file system", map[int64]string{0: "-rom1fs-"}},
	{"an EXFS file system", map[int64]string{0: "EXFS"}},
	{"an mpool medium", map[int64]string{0: "mpoolDev"}},
	{"a zonefs file system", map[int64]string{0: "SFOZ"}},
	{"a UBIFS file system", map[int64]string{0: "\x31\x18\x10\x06"}},
	{"a UBI medium", map[int64]string{0: "UBI#"}},
	{"an ISO 9660 file system", map[int64]string{32769: "CD001"}},
	{"a High Sierra file system", map[int64]string{32777: "CDROM"}},
	{"a UDF file system", map[int64]string{32769: "BEA01"}},
	{"a Minix file system", map[int64]string{1024: "\x10\x00\x10\x00\x01\x00", 1024 + 16: "\x8f\x13"}},
	{"a Minix file system", map[int64]string{1024: "\x00\x00\x00\x10\x00\x00\x00\x01", 1024 + 24: "\x4d\x5a"}},
	{"a LUKS encrypted volume", map[int64]string{0: "LUKS\xba\xbe\x00\x02"}},
	{"a LUKS encrypted volume (second header)", map[int64]string{0x4000: "SKUL\xba\xbe"}},
	{"a FileVault encrypted volume", map[int64]string{8: "\x01\x00\x10\x00", 88: "CS"}},
	{"an LVM physical volume", map[int64]string{512: "LABELONE", 512 + 24: "LVM2 001"}},
	{"a snapshot of the device mapper", map[int64]string{0: "SnAp"}},
	{"hashes of dm-verity", map[int64]string{0: "verity\x00\x00"}},
	{"a dm-integrity device", map[int64]string{0: "integrt\x00"}},
	{"a VDO device", map[int64]string{0: "dmvdo001"}},
	{"a Stratis device", map[int64]string{516: "!Stra0tis\x86\xff\x02^Arh"}},
	{"a bcache device", map[int64]string{4120: "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"}},
	{"a Ceph BlueStore device", map[int64]string{0: "bluestore block device"}},
	{"an Oracle ASM disk", map[int64]string{32: "ORCLDISK"}},
	{"a DRBD control volume", map[int64]string{0: "$DRBDmgr=q"}},
	{"a log of DRBD Proxy", map[int64]string{0: "DRBDdlh*"}},
	{"a ZFS pool member", map[int64]string{128<<10 + 7<<10: "\x0c\xb1\xba\x00\x00\x00\x00\x00"}},
	{"a ZFS pool member", map[int64]string{16<<10 + 20: "\x00\x00\x00\x07version\x00"}},
	{"a ZFS pool member (second label)", map[int64]string{384 << 10: "\x00\x00\x00\x00\x00\xba\xb1\x0c"}},
	{"a Linux MD RAID member", map[int64]string{4096: "\xfc\x4e\x2b\xa9"}},
	{"a Linux MD RAID member", map[int64]string{-8192: "\xfc\x4e\x2b\xa9"}},
	{"a Linux MD RAID member", map[int64]string{-65536: "\xfc\x4e\x2b\xa9"}},
	{"Linux swap space", map[int64]string{4096 - 10: "SWAPSPACE2"}},
	{"Linux swap space", map[int64]string{65536 - 10: "SWAPSPACE2"}},
	{"a DDF RAID member", map[int64]string{-512: "\xde\x11\xde\x11"}},
	{"an Intel RAID member", map[int64]string{-1024: "Intel Raid ISM Cfg Sig. "}},
	{"an Adaptec RAID member", map[int64]string{-512: "\x37\xfc\x4d\x1e"}},
	{"a HighPoint RAID member", map[int64]string{-5632: "\xf3\x16\x78\x5a"}},
	{"a JMicron RAID member", map[int64]string{-512: "JM\x00\x00\xb6\xb2"}},
	{"an LSI RAID member", map[int64]string{-512: "$XIDE$"}},
	{"an NVIDIA RAID member", map[int64]string{-1024: "NVIDIA  "}},
	{"a Promise RAID member", map[int64]string{-8192: "Promise Technology, Inc."}},
	{"a Silicon Image RAID member", map[int64]string{-512 + 0x63: "\x2f", -512 + 0x13e: "\x00\xd1"}},
	{"a VIA RAID member", map[int64]string{-512: "\x55\xaa\x01", -512 + 50: "\x00"}},
	{"a BSD disk label", map[int64]string{64: "\x57\x45\x56\x82"}},
	{"a Solaris disk label", map[int64]string{524: "\xee\xde\x0d\x60"}},
	{"a Sun disk label", map[int64]string{508: "\xda\xbe\xda\xbe"}},
	{"an SGI disk label", map[int64]string{0: "\x0b\xe5\xa9\x41"}},
	{"an Ultrix disk label", map[int64]string{16312: "\x57\x29\x03\x00\x01\x00\x00\x00"}},
	{"a UnixWare disk label", map[int64]string{14852: "\x0d\x60\xe5\xca"}},
	{"an AIX disk label", map[int64]string{0: "\xc9\xc2\xd4\xc1"}},
	{"an Apple partition map", map[int64]string{0: "ER\x08\x00", 2048: "PM"}},
	{"a DASD label", map[int64]string{1028: "\xe5\xd6\xd3\xf1"}},
	{"an Atari partition table", map[int64]string{0x1c2: "\x00\x00\x20\x00", 0x1d2: "\x01GEM\x00\x00\x00\x02\x00\x00\x10\x00"}},
	{"an NTFS file system", map[int64]string{3: "NTFS    "}},
	{"a ReFS file system", map[int64]string{3: "ReFS\x00\x00\x00\x00"}},
	{"a BitLocker encrypted volume", map[int64]string{0: "\xeb\x58\x90-FVE-FS-"}},
	{"an exFAT file system", map[int64]string{3: "EXFAT   "}},
	{"a FAT32 file system", map[int64]string{82: "FAT32   "}},
	{"a FAT file system", map[int64]string{0: "\xeb\x3c\x90", 11: "\x00\x02\x04\x01\x00\x02", 21: "\xf8", 510: "\x55\xaa"}},
	{"an NTFS file system with a damaged boot sector", map[int64]string{-512: "\xeb\x52\x90NTFS    "}},
	{"an NTFS file system with a damaged boot sector", map[int64]string{-4096: "\xeb\x52\x90NTFS    "}},
	{"a ReFS file system with a damaged boot sector", map[int64]string{-512: "\x00\x00\x00ReFS\x00\x00\x00\x00"}},
	{"a DRBD device", map[int64]string{-4036: "\x83\x74\x02\x6b"}},
	{"a ZFS pool member (label at its end)", map[int64]string{-507884: "\x00\x00\x00\x07version\x00"}},
}
