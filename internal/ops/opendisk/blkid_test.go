// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// made are images that Debian's programs make. "img" is the image, a sparse file of the size given,
// and /etc/apt stands for files to put in.
var made = []struct {
	want, size, command string
}{
	{"a bcache device", "8M", "make-bcache -B img"},
	{"a bcache device", "64M", "make-bcache -C img"},
	{"an F2FS file system", "64M", "mkfs.f2fs img"},
	{"a JFS file system", "16M", "mkfs.jfs -q img"},
	{"a NILFS2 file system", "256M", "mkfs.nilfs2 img"},
	{"a NILFS2 file system", "256M", "mkfs.nilfs2 img && dd if=/dev/zero of=img bs=64k count=1 conv=notrunc"},
	{"a ReiserFS file system", "40M", "mkreiserfs -q -ff img"},
	{"a ReiserFS file system", "40M", "mkreiserfs -q -ff --format 3.5 img"},
	{"a ReiserFS file system", "40M", "mkreiserfs -q -ff -s 1024 img"},
	{"a Reiser4 file system", "40M", "mkfs.reiser4 -fffy img"},
	{"an XFS file system", "300M", "mkfs.xfs img"},
	{"the journal of an XFS file system", "64M", "truncate -s 300M data && mkfs.xfs -l logdev=img,size=64m data"},
	{"a Btrfs file system", "128M", "mkfs.btrfs img"},
	{"a LUKS encrypted volume", "32M", "echo x | cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 img -"},
	{"a LUKS encrypted volume", "32M",
		"echo x | cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 img -"},
	{"a LUKS encrypted volume (second header)", "32M",
		"echo x | cryptsetup luksFormat -q --type luks2 --luks2-metadata-size 512k --pbkdf pbkdf2 --pbkdf-force-iterations 1000 img - && " +
			"dd if=/dev/zero of=img bs=4k count=1 conv=notrunc"},
	{"hashes of dm-verity", "8M", "truncate -s 1M data && veritysetup format data img"},
	{"an HFS or HFS+ file system", "8M", "hformat -f img"},
	{"an ISO 9660 file system", "0", "genisoimage -quiet -o img /etc/apt"},
	{"a UDF file system", "8M", "mkudffs img"},
	{"a UDF file system", "8M", "mkudffs -b 4096 img"},
	{"an ISO 9660 file system", "0", "genisoimage -quiet -udf -o img /etc/apt"},
	{"an ext2, ext3 or ext4 file system", "8M", "mkfs.ext2 -q img"},
	{"an ext2, ext3 or ext4 file system", "8M", "mkfs.ext4 -q img"},
	{"an ext2, ext3 or ext4 file system", "8M", "mke2fs -q -O journal_dev img"},
	{"a FAT file system", "2M", "mkfs.fat -F12 img"},
	{"a FAT file system", "16M", "mkfs.fat -F16 img"},
	{"a FAT file system", "16M", "mkfs.fat -F16 img && dd if=/dev/zero of=img bs=1 seek=54 count=8 conv=notrunc"},
	{"a FAT32 file system", "64M", "mkfs.fat -F32 img"},
	{"an exFAT file system", "8M", "mkfs.exfat img"},
	{"an NTFS file system", "8M", "mkntfs -qF img"},
	{"a SquashFS file system", "0", "mksquashfs /etc/apt img -noappend"},
	{"an EROFS file system", "0", "mkfs.erofs img /etc/apt"},
	{"a GFS or GFS2 file system", "64M", "mkfs.gfs2 -O -p lock_nolock -j1 -J8 img"},
	{"an OCFS2 file system", "64M", "mkfs.ocfs2 -F -x -q -M local -N1 -b4096 img"},
	{"a DRBD device", "32M", "yes | drbdmeta --force 9 v08 $PWD/img internal create-md"},
	{"a DRBD device", "32M", "yes | drbdmeta --force 9 v09 $PWD/img internal create-md 1"},
	{"an APFS container", "600M", "mkapfs img"},
	{"a UBIFS file system", "0", "mkfs.ubifs -m2048 -e126976 -c100 -r /etc/apt -o img"},
	{"a UBI medium", "0", "mkfs.ubifs -m2048 -e126976 -c100 -r /etc/apt -o data && " +
		`printf '[a]\nmode=ubi\nimage=data\nvol_id=0\nvol_type=dynamic\nvol_name=a\nvol_size=8MiB\n' >ini && ubinize -o img -p131072 -m2048 ini`},
	{"a cramfs file system", "0", "mkfs.cramfs /etc/apt img"},
	{"a Minix file system", "4M", "mkfs.minix -1 img"},
	{"a Minix file system", "4M", "mkfs.minix -2 img"},
	{"a Minix file system", "4M", "mkfs.minix -3 img"},
	{"a BFS file system", "4M", "mkfs.bfs img"},
	{"a romfs file system", "0", "genromfs -f img -d /etc/apt"},
	{"a UFS file system", "0", "makefs -t ffs -o version=1 -s 8m img /etc/apt"},
	{"a UFS file system", "0", "makefs -t ffs -o version=2 -s 8m img /etc/apt"},
	{"Linux swap space", "4M", "mkswap img"},
	{"Linux swap space", "4M", "mkswap -p 32768 img"},
	{"Linux swap space", "4M", "mkswap -p 65536 img"},
	{"an Atari partition table", "32M", "parted -s img mklabel atari mkpart primary ext2 2MB 20MB"},
	{"an Apple partition map", "32M", "parted -s img mklabel mac mkpart primary ext2 2MB 20MB"},
	{"an SGI disk label", "32M", `printf 'G\nw\n' | fdisk img`},
	{"a Sun disk label", "32M", `printf 's\nw\n' | fdisk img`},
}

// written are those whose programs need a kernel's devices: their superblocks, with the checksums
// that blkid asks for.
var written = []struct {
	want  string
	parts map[int64]string
}{
	{"a Linux MD RAID member", map[int64]string{0: md1(0)}},
	{"a Linux MD RAID member", map[int64]string{4096: md1(4096)}},
	{"a Linux MD RAID member", map[int64]string{mediumSize - 8192: md1(mediumSize - 8192)}},
	{"an LVM physical volume", map[int64]string{0: lvm(0)}},
	{"an LVM physical volume", map[int64]string{1536: lvm(3)}},
	{"an HFS+ file system", map[int64]string{1024: "H+\x00\x04", 1024 + 40: "\x00\x00\x10\x00"}},
	{"a dm-integrity device", map[int64]string{0: "integrt\x00\x01"}},
	{"a JMicron RAID member", map[int64]string{mediumSize - 512: "JM\x00\x00\xb6\xb2"}},
	{"an Adaptec RAID member", map[int64]string{mediumSize - 512: "\x37\xfc\x4d\x1e", mediumSize - 512 + 256: "DPTM"}},
}

// blkidDoesNotName are those of the table that Debian's blkid can't confirm, and why.
var blkidDoesNotName = map[string]string{
	"a bcachefs file system":                         "its version doesn't know it",
	"a ScoutFS file system":                          "its version doesn't know it",
	"a FileVault encrypted volume":                   "its version doesn't know it",
	"a DASD label":                                   "its version doesn't know it",
	"an EXFS file system":                            "its superblock isn't published",
	"an mpool medium":                                "it wants the whole superblock",
	"a Stratis device":                               "it wants a checksum",
	"an HPFS file system":                            "it wants a second superblock",
	"a BeFS file system":                             "it wants the whole superblock",
	"a Xenix file system":                            "it looks elsewhere than Linux did",
	"a DRBD control volume":                          "it wants an identifier",
	"a ZFS pool member":                              "it wants the whole label",
	"a ZFS pool member (second label)":               "it wants the whole label",
	"a ZFS pool member (label at its end)":           "it wants the whole label",
	"a Silicon Image RAID member":                    "no image of it is to be had",
	"a VIA RAID member":                              "no image of it is to be had",
	"a BSD disk label":                               "it doesn't name what parted makes",
	"a Solaris disk label":                           "it wants it in a partition",
	"a UnixWare disk label":                          "it wants it in a partition",
	"an NTFS file system with a damaged boot sector": "it doesn't look there",
	"a ReFS file system with a damaged boot sector":  "it doesn't look there",
	"a BitLocker encrypted volume":                   "it wants the metadata",
}

func md1(place int64) string {
	b := make([]byte, 256)
	copy(b, mdMagics[0])
	b[4] = 1
	le.PutUint64(b[144:], uint64(place/512)) // super_offset
	var s uint64
	for i := 0; i < len(b); i += 4 {
		s += uint64(le.Uint32(b[i:]))
	}
	le.PutUint32(b[216:], uint32(s)+uint32(s>>32))
	return string(b)
}

func lvm(sector uint64) string {
	b := make([]byte, 512)
	copy(b, "LABELONE")
	le.PutUint64(b[8:], sector)
	copy(b[24:], "LVM2 001")
	le.PutUint32(b[16:], ^crc32.Update(^uint32(0xf597a6cf), crc32.IEEETable, b[20:]))
	return string(b)
}

// blkid says what util-linux takes a file for.
func blkid(t *testing.T, file string) string {
	t.Helper()
	b, err := exec.Command("blkid", "-p", "-o", "export", file).Output()
	if exit, failed := err.(*exec.ExitError); failed && exit.ExitCode() != 2 { // 2: nothing found
		t.Fatalf("blkid: %v %s", err, exit.Stderr)
	} else if err != nil && !failed {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "TYPE=") || strings.HasPrefix(line, "PTTYPE=") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func recogniseFile(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	simtest.Must(t, err)
	found, err := recogniseDisk(t.Context(), disk{b: b}, int64(len(b)), sector)
	simtest.Must(t, err)
	return found
}

// Whatever util-linux' blkid names is recognised here: what Debian's programs make, and the rest of
// the table as blkid confirms it.
func TestAgainstBlkid(t *testing.T) {
	if os.Getenv("CSI_PROXY_BLKID") == "" {
		t.Skip("CSI_PROXY_BLKID=1 runs it, with the programs that make file systems, which .ci/generated installs")
	}
	confirmed := map[string]string{}
	file := filepath.Join(t.TempDir(), "img")
	check := func(title, want string) {
		t.Helper()
		named, found := blkid(t, file), recogniseFile(t, file)
		if named == "" || !strings.HasPrefix(found, want) {
			t.Errorf("%s: blkid names it %q; found %q, want %q", title, named, found, want)
			return
		}
		confirmed[want] = named
	}
	for _, m := range made {
		dir := t.TempDir()
		file = filepath.Join(dir, "img")
		c := exec.Command("sh", "-ec", "export PATH=/usr/sbin:/sbin:$PATH; truncate -s "+m.size+" img; "+m.command)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m.command, err, out)
			continue
		}
		check(m.command, m.want)
		simtest.Must(t, os.RemoveAll(dir))
	}
	write := func(size int64, parts map[int64]string) {
		f, err := os.Create(file)
		simtest.Must(t, err)
		defer f.Close()
		simtest.Must(t, f.Truncate(size))
		for offset, s := range parts {
			_, err := f.WriteAt([]byte(s), offset)
			simtest.Must(t, err)
		}
	}
	file = filepath.Join(t.TempDir(), "img")
	for _, w := range written {
		write(mediumSize, w.parts)
		check(fmt.Sprintf("%#v", w.parts), w.want)
	}
	const size = 32 * mib
	bare(size, func(s signature, magic string, offset int64) {
		if s.check != nil || confirmed[s.name] != "" && !strings.HasPrefix(confirmed[s.name], "bare ") {
			return
		}
		write(size, map[int64]string{offset: magic})
		if named := blkid(t, file); named != "" {
			check(fmt.Sprintf("%s at %d", s.name, offset), s.name)
			confirmed[s.name] = "bare " + named
		}
	})
	bare(size, func(s signature, _ string, _ int64) {
		_, exempt := blkidDoesNotName[s.name]
		if (confirmed[s.name] != "") == exempt {
			t.Errorf("%s: confirmed by blkid as %q, exempt: %v", s.name, confirmed[s.name], exempt)
			confirmed[s.name], blkidDoesNotName[s.name] = "-", "" // once is enough
		}
	})
	for _, name := range slices.Sorted(maps.Keys(confirmed)) {
		t.Logf("%-60s %s", name, confirmed[name])
	}
}

// bare calls f with each magic of the table at each of its places on a medium of a size.
func bare(size int64, f func(s signature, magic string, offset int64)) {
	each := func(s signature, end int64) {
		for _, offset := range s.offsets {
			if offset < 0 {
				offset += end
			}
			for _, magic := range s.magics {
				f(s, magic, offset)
			}
		}
	}
	for _, s := range alignedSignatures {
		each(s.signature, size-size%s.align)
	}
	for _, s := range signatures {
		each(s, size)
	}
}
