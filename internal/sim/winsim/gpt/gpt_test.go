// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gpt

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/sparse"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

const mib = 1 << 20

func newDisk(size, sectorSize int64) Disk {
	return Disk{Image: sparse.New(size), Size: size, SectorSize: sectorSize}
}

// windowsTable is what Windows makes of a fresh disk: a reserved and a data
// partition.
func windowsTable(t testing.TB, d Disk) *Table {
	t.Helper()
	table, err := New(d, winid.NewGUID(), 128)
	must(t, err)
	table.Slots[0] = Partition{
		Type: win.PartitionTypeMicrosoftReserved, ID: winid.NewGUID(), Name: "Microsoft reserved partition",
		First: table.FirstUsable, Last: 16*mib/d.SectorSize - 1,
	}
	table.Slots[1] = Partition{
		Type: win.PartitionTypeBasicData, ID: winid.NewGUID(), Name: "Basic data partition",
		First: 16 * mib / d.SectorSize, Last: (d.Size/mib-1)*mib/d.SectorSize - 1,
		Attributes: win.GPTAttributeNoDriveLetter,
	}
	must(t, table.Write(d))
	return table
}

func TestDamage(t *testing.T) {
	const sector = 512
	for _, tc := range []struct {
		name   string
		damage []int64 // offsets of bytes to turn over
		want   error
	}{
		{"primary header", []int64{sector + 60}, nil},
		{"primary header's sector number", []int64{sector + 24}, nil},
		{"primary entries", []int64{2*sector + 5}, nil},
		{"backup header", []int64{64*mib - sector + 3}, nil},
		{"both headers", []int64{sector + 60, 64*mib - sector + 60}, ErrDamaged},
		{"primary header and backup entries", []int64{sector + 60, 64*mib - 33*sector}, ErrDamaged},
		{"boot signature", []int64{510}, ErrNoTable},
		{"protective entry", []int64{446 + 4}, ErrNoTable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDisk(64*mib, sector)
			want := windowsTable(t, d)
			for _, off := range tc.damage {
				flip(t, d, off)
			}
			got, err := Read(d)
			if !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if tc.want == nil && !cmp.Equal(want, got) {
				t.Errorf("the copy differs:\n%s", cmp.Diff(want, got))
			}
		})
	}
}

// TestBackupInPlaceOfPrimary: a header counts only in its own sector.
func TestBackupInPlaceOfPrimary(t *testing.T) {
	d := newDisk(64*mib, 512)
	windowsTable(t, d)
	h := make([]byte, 512)
	if _, err := d.Image.ReadAt(h, d.Size-512); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Image.WriteAt(h, 512); err != nil {
		t.Fatal(err)
	}
	flip(t, d, d.Size-512)
	if _, err := Read(d); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v, want %v", err, ErrDamaged)
	}
}

// TestGreatProtectiveEntry: some tools let it claim more than the disk has.
func TestGreatProtectiveEntry(t *testing.T) {
	d := newDisk(64*mib, 512)
	windowsTable(t, d)
	if _, err := d.Image.WriteAt([]byte{0xFF, 0xFF, 0xFF, 0xFF}, 446+12); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(d); err != nil {
		t.Error(err)
	}
}

func flip(t *testing.T, d Disk, off int64) {
	t.Helper()
	b := make([]byte, 1)
	if _, err := d.Image.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0xFF
	if _, err := d.Image.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

func TestValidate(t *testing.T) {
	used := func(first, last int64) Partition {
		return Partition{Type: win.PartitionTypeBasicData, ID: winid.NewGUID(), First: first, Last: last}
	}
	for _, tc := range []struct {
		name  string
		slots []Partition
		ok    bool
	}{
		{"side by side", []Partition{used(100, 199), used(200, 299)}, true},
		{"whole range", []Partition{used(34, 2014)}, true},
		{"overlap by one sector", []Partition{used(100, 200), used(200, 299)}, false},
		{"one within the other", []Partition{used(100, 299), used(150, 160)}, false},
		{"end before start", []Partition{used(100, 99)}, false},
		{"on the primary entries", []Partition{used(33, 99)}, false},
		{"on the backup entries", []Partition{used(100, 2015)}, false},
	} {
		table, err := New(newDisk(mib, 512), winid.NewGUID(), 0)
		must(t, err)
		copy(table.Slots, tc.slots)
		if err := table.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestFitAndRoom(t *testing.T) {
	d := newDisk(64*mib, 512)
	table := windowsTable(t, d)
	if room := table.Room(1); room != table.LastUsable {
		t.Errorf("the last partition can grow to %d, want %d", room, table.LastUsable)
	}
	if room := table.Room(0); room != table.Slots[1].First-1 {
		t.Errorf("the first partition can grow to %d, want %d", room, table.Slots[1].First-1)
	}
	d.Image.(*sparse.Image).Grow(128 * mib)
	d.Size = 128 * mib
	if got, err := Read(d); err != nil || got.LastUsable != table.LastUsable {
		t.Errorf("the table of a grown disk: %v, %v", got, err)
	}
	if err := table.Fit(d); err != nil || table.LastUsable != 128*mib/512-34 {
		t.Errorf("after growth the last usable sector is %d, %v", table.LastUsable, err)
	}
	must(t, table.Write(d))
	flip(t, d, 512) // the backup must be where it can be found
	if _, err := Read(d); err != nil {
		t.Error(err)
	}
}

func TestTooSmall(t *testing.T) {
	if _, err := New(newDisk(67*512, 512), winid.NewGUID(), 128); !errors.Is(err, ErrTooSmall) {
		t.Errorf("67 sectors: %v", err)
	}
	if _, err := New(newDisk(68*512, 512), winid.NewGUID(), 128); err != nil {
		t.Errorf("68 sectors: %v", err)
	}
	d := newDisk(64*mib, 512)
	table := windowsTable(t, d)
	d.Size /= 2
	if err := table.Write(d); !errors.Is(err, ErrTooSmall) {
		t.Errorf("write to half of the disk: %v", err)
	}
	if _, err := Read(d); !errors.Is(err, ErrDamaged) {
		t.Errorf("read half of the disk: %v", err)
	}
	if err := table.Fit(d); err != nil || table.LastUsable != 64*mib/512-34 {
		t.Errorf("fitted to half of the disk it ends at %d, %v", table.LastUsable, err)
	}
}

func TestMBR(t *testing.T) {
	d := newDisk(64*mib, 512)
	want := MBR{Signature: 0x12345678,
		Partitions: [4]MBRPartition{{Type: 7, Bootable: true, First: 2048, Sectors: 1000},
			{Type: 12, First: 4096, Sectors: 1}}}
	must(t, want.Write(d))
	got, err := ReadMBR(d)
	if err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
	if _, err := Read(d); !errors.Is(err, ErrNoTable) {
		t.Errorf("a GPT on an MBR disk: %v", err)
	}
	for name, p := range map[string][4]MBRPartition{
		"beyond the end": {{Type: 7, First: 2048, Sectors: 64 * mib / 512}},
		"empty":          {{Type: 7, First: 2048}},
		"at the record":  {{Type: 7, Sectors: 10}},
		"overlap":        {{Type: 7, First: 10, Sectors: 10}, {Type: 7, First: 19, Sectors: 10}},
	} {
		must(t, (MBR{Partitions: p}).Write(d))
		if _, err := ReadMBR(d); !errors.Is(err, ErrNoTable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMBRLimit: an entry has 32 bits for its place and its length.
func TestMBRLimit(t *testing.T) {
	d := newDisk(4<<40, 512)
	for _, tc := range []struct {
		partition MBRPartition
		ok        bool
	}{
		{MBRPartition{Type: 7, First: 2048, Sectors: 1<<32 - 2048}, true},
		{MBRPartition{Type: 7, First: 2048, Sectors: 1<<32 - 2047}, false},
		{MBRPartition{Type: 7, First: 1 << 32, Sectors: 1}, false},
		{MBRPartition{Type: 0xEE, First: 1, Sectors: 1 << 32}, false},
	} {
		if err := (MBR{Partitions: [4]MBRPartition{tc.partition}}).Validate(d); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc.partition, err)
		}
	}
}

// FuzzRead gives the reader the first and the last sectors of a disk, with the
// primary header's checksums set right so that they don't hide the rest.
func FuzzRead(f *testing.F) {
	for _, sectorSize := range []int64{512, 4096} {
		d := newDisk(64*mib, sectorSize)
		windowsTable(f, d)
		start, end := make([]byte, 6*sectorSize), make([]byte, 5*sectorSize)
		if _, err := d.Image.ReadAt(start, 0); err != nil {
			f.Fatal(err)
		}
		if _, err := d.Image.ReadAt(end, d.Size-int64(len(end))); err != nil {
			f.Fatal(err)
		}
		f.Add(start, end, sectorSize == 4096)
	}
	f.Add([]byte(strings.Repeat("\x00", 510)+"\x55\xAA"), []byte{}, false)
	f.Fuzz(func(t *testing.T, start, end []byte, big bool) {
		d := newDisk(mib, 512)
		if big {
			d.SectorSize = 4096
		}
		start, end = start[:min(len(start), mib)], end[:min(len(end), mib)]
		if _, err := d.Image.WriteAt(end, mib-int64(len(end))); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Image.WriteAt(start, 0); err != nil {
			t.Fatal(err)
		}
		sign(t, d)
		table, err := Read(d)
		if err != nil {
			if _, err := ReadMBR(d); err != nil && !errors.Is(err, ErrNoTable) {
				t.Error(err)
			}
			return
		}
		if err := table.Validate(); err != nil {
			t.Errorf("read a table that isn't valid: %v", err)
		}
		for i, p := range table.Slots {
			if p.Used() && table.Room(i) < p.Last {
				t.Errorf("partition %d ends at %d and can grow to %d", i+1, p.Last, table.Room(i))
			}
		}
	})
}

// sign sets the checksums of the primary copy.
func sign(t *testing.T, d Disk) {
	t.Helper()
	h := make([]byte, d.SectorSize)
	if _, err := d.Image.ReadAt(h, d.SectorSize); err != nil {
		t.Fatal(err)
	}
	entries := make([]byte, min(le.Uint32(h[80:]), maxEntries)*entrySize)
	if _, err := d.Image.ReadAt(entries, int64(le.Uint64(h[72:]))%d.sectors()*d.SectorSize); err == nil {
		le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
	}
	clear(h[16:20])
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:min(int64(le.Uint32(h[12:])), d.SectorSize)]))
	if _, err := d.Image.WriteAt(h, d.SectorSize); err != nil {
		t.Fatal(err)
	}
}

// export writes the disk to a file for foreign tools.
func export(t *testing.T, d Disk) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(d.Size))
	must(t, d.Image.(*sparse.Image).Export(f))
	return name
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Windows' partition types as sgdisk spells them.
const (
	sgdiskReserved  = "E3C9E316-0B5C-4DB8-817D-F92DF00215AE"
	sgdiskBasicData = "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"
)

// TestSgdisk has a foreign program read the table. It knows files with sectors of
// 512 bytes only.
func TestSgdisk(t *testing.T) {
	d := newDisk(64*mib, 512)
	table := windowsTable(t, d)
	name := export(t, d)
	if out := tool(t, "sgdisk", "-v", name); !strings.Contains(out, "No problems found") {
		t.Errorf("sgdisk -v:\n%s", out)
	}
	if out := tool(t, "sgdisk", "-p", name); !strings.Contains(out, strings.ToUpper(table.DiskID.String())) {
		t.Errorf("sgdisk -p doesn't show the disk id %s:\n%s", table.DiskID, out)
	}
	for i, typ := range []string{sgdiskReserved, sgdiskBasicData} {
		p := table.Slots[i]
		out := tool(t, "sgdisk", "-i", fmt.Sprint(i+1), name)
		for _, want := range []string{
			typ, strings.ToUpper(p.ID.String()), fmt.Sprintf("First sector: %d ", p.First),
			fmt.Sprintf("Last sector: %d ", p.Last),
			fmt.Sprintf("Attribute flags: %016X", p.Attributes), "'" + p.Name + "'",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("sgdisk -i %d: no %q in\n%s", i+1, want, out)
			}
		}
	}
}

// TestReadForeign reads a table that a foreign program wrote: the first three
// sectors of a disk of 64 MiB after
//
//	sgdisk -U 8f4b5a3e-2d1c-4b6f-9a7e-102030405060 -n 3:4096:8191 -t 3:0700 \
//	  -u 3:0fc63daf-8483-4772-8e79-3d69d8477de4 -c 3:Grüße -A 3:set:63 disk.img
func TestReadForeign(t *testing.T) {
	b, err := os.ReadFile("testdata/sgdisk.gpt")
	must(t, err)
	d := newDisk(64*mib, 512)
	if _, err := d.Image.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	got, err := Read(d)
	must(t, err)
	want := &Table{FirstUsable: 34, LastUsable: d.sectors() - 34, Slots: make([]Partition, 128)}
	want.DiskID, _ = winid.ParseGUID("8f4b5a3e-2d1c-4b6f-9a7e-102030405060")
	want.Slots[2] = Partition{Type: win.PartitionTypeBasicData, First: 4096, Last: 8191,
		Attributes: win.GPTAttributeNoDriveLetter, Name: "Grüße"}
	want.Slots[2].ID, _ = winid.ParseGUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestFdisk has a foreign program read the table of a disk with sectors of 4096
// bytes.
func TestFdisk(t *testing.T) {
	d := newDisk(64*mib, 4096)
	table := windowsTable(t, d)
	out := tool(t, "fdisk", "-b", "4096", "-l", "-o", "Start,End,UUID", export(t, d))
	for _, p := range table.Slots[:2] {
		if row := fmt.Sprintf(`(?m)^\s*%d\s+%d\s+%s\s*$`, p.First, p.Last, strings.ToUpper(p.ID.String())); !regexp.MustCompile(row).MatchString(out) {
			t.Errorf("no row %s in\n%s", row, out)
		}
	}
	if strings.Contains(out, "corrupt") || strings.Contains(out, "mismatch") {
		t.Errorf("fdisk found a fault:\n%s", out)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
