// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

func TestCreateDisk(t *testing.T) {
	for _, tc := range []struct {
		name       string
		sectorSize uint32
		automatic  bool
		start      int64
		reserved   bool
	}{
		{"512 bytes", 512, false, 17408, false},
		{"4096 bytes", 4096, false, 24576, false},
		{"automatic reserved partition", 512, true, 17408, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newNode(t, Delays{})
			must(t, s.SetSettings(Settings{AutomaticMSR: tc.automatic}))
			n := attach(t, s, DiskSpec{SectorSize: tc.sectorSize})
			wantNoTable(t, s, n)
			createGPT(t, s, n)
			l := layoutOf(t, s, n)
			end := l.StartingUsableOffset + l.UsableLength
			if l.Style != win.StyleGPT || l.MaxPartitionCount != 128 || l.StartingUsableOffset != tc.start ||
				end+tc.start-int64(tc.sectorSize) != 10*gib {
				t.Errorf("layout %+v", l)
			}
			if tc.reserved != (len(l.Partitions) == 1) {
				t.Fatalf("partitions %+v", l.Partitions)
			}
			if tc.reserved {
				p := l.Partitions[0]
				if p.Number != 1 || p.Type != win.PartitionTypeMicrosoftReserved || p.StartingOffset != 17408 ||
					p.Length != 16759808 || p.Name != "Microsoft reserved partition" {
					t.Errorf("reserved partition %+v", p)
				}
			}
			must(t, setLayout(s, t, n, data(16*mib, gib)))
			createGPT(t, s, n) // once more: what was partitioned is gone
			if l := layoutOf(t, s, n); tc.reserved != (len(l.Partitions) == 1) {
				t.Errorf("after another initialisation: %+v", l.Partitions)
			}
		})
	}
}

func TestSetLayout(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{})
	wantErr(t, "layout of a raw disk", setLayout(s, t, n, data(16*mib, gib)), winerr.ErrorInvalidParameter)
	createGPT(t, s, n)
	id := layoutOf(t, s, n).DiskID

	numbered, first, second := data(5*gib, gib), data(mib, gib), data(2*gib, gib)
	numbered.Number = 2
	must(t, setLayout(s, t, n, first, numbered, second, win.Partition{Style: win.StyleGPT}))
	got := layoutOf(t, s, n)
	first.Number, second.Number = 1, 3
	want := []win.Partition{first, numbered, second}
	for i := range want {
		want[i].RewritePartition = false
	}
	if diff := cmp.Diff(want, got.Partitions); diff != "" || got.DiskID != id {
		t.Errorf("disk id %v, want %v; partitions (-want +got):\n%s", got.DiskID, id, diff)
	}
	must(t, setLayout(s, t, n, second)) // the others are left out
	if diff := cmp.Diff(want[2:], layoutOf(t, s, n).Partitions); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
}

func TestSetLayoutErrors(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{})
	createGPT(t, s, n)
	keep := data(mib, gib)
	must(t, setLayout(s, t, n, keep))
	want := layoutOf(t, s, n)

	change := func(p win.Partition, f func(*win.Partition)) win.Partition {
		f(&p)
		return p
	}
	for name, parts := range map[string][]win.Partition{
		"overlap":               {data(mib, gib), data(gib, gib)},
		"before the usable":     {data(512, gib)},
		"to the end":            {data(mib, 10*gib-mib)},
		"behind the end":        {data(11*gib, gib)},
		"offset overflows":      {data(1<<62, 1<<62)},
		"offset not in sectors": {data(mib+1, gib)},
		"length not in sectors": {data(mib, gib+1)},
		"no length":             {data(mib, 0)},
		"negative length":       {data(mib, -512)},
		"no id":                 {change(keep, func(p *win.Partition) { p.ID = winid.GUID{} })},
		"an id twice":           {keep, change(keep, func(p *win.Partition) { p.StartingOffset = 2 * gib })},
		"a number twice": {change(data(mib, mib), func(p *win.Partition) { p.Number = 1 }),
			change(data(gib, mib), func(p *win.Partition) { p.Number = 1 })},
		"a number too great": {change(keep, func(p *win.Partition) { p.Number = 129 })},
	} {
		wantErr(t, name, setLayout(s, t, n, parts...), winerr.ErrorInvalidParameter)
		if diff := cmp.Diff(want, layoutOf(t, s, n)); diff != "" {
			t.Fatalf("%s: the table changed:\n%s", name, diff)
		}
	}
	var many []win.Partition
	for i := range int64(129) {
		many = append(many, data((i+1)*mib, mib))
	}
	wantErr(t, "129 partitions", setLayout(s, t, n, many...), winerr.ErrorInvalidParameter)
	must(t, setLayout(s, t, n, many[:128]...))

	mbr := win.DriveLayout{Style: win.StyleMBR}
	_, err := control(t, s, drivePath(n), win.IoctlDiskSetDriveLayoutEx, mbr.Encode())
	wantErr(t, "an MBR layout", err, winerr.ErrorInvalidParameter)
	raw := win.DriveLayout{Style: win.StyleRAW}
	_, err = control(t, s, drivePath(n), win.IoctlDiskSetDriveLayoutEx, raw.Encode())
	wantErr(t, "a raw layout", err, winerr.ErrorInvalidParameter)
}

func TestTableOfProtectedDisk(t *testing.T) {
	for _, attribute := range []win.DiskAttributes{win.DiskOffline, win.DiskReadOnly} {
		s := newNode(t, Delays{})
		n := attach(t, s, DiskSpec{})
		createGPT(t, s, n)
		must(t, setLayout(s, t, n, data(mib, gib)))
		must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Attributes: attribute, Mask: attribute}))
		want := layoutOf(t, s, n)
		if attribute == win.DiskReadOnly { // an offline disk can be given new ids
			wantErr(t, "set layout", setLayout(s, t, n), winerr.ErrorWriteProtect)
		}
		_, err := control(t, s, drivePath(n), win.IoctlDiskCreateDisk, win.CreateDisk{Style: win.StyleGPT}.Encode())
		wantErr(t, "create disk", err, winerr.ErrorWriteProtect)
		_, err = control(t, s, drivePath(n), win.IoctlDiskGrowPartition,
			win.GrowPartition{PartitionNumber: 1, BytesToGrow: mib}.Encode())
		wantErr(t, "grow partition", err, winerr.ErrorWriteProtect)
		if diff := cmp.Diff(want, layoutOf(t, s, n)); diff != "" {
			t.Errorf("the table changed:\n%s", diff)
		}
	}
}

func TestGrowPartition(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{})
	createGPT(t, s, n)
	must(t, setLayout(s, t, n, data(mib, gib), data(2*gib, gib)))
	grow := func(number uint32, bytes int64) error {
		_, err := control(t, s, drivePath(n), win.IoctlDiskGrowPartition,
			win.GrowPartition{PartitionNumber: number, BytesToGrow: bytes}.Encode())
		return err
	}
	wantErr(t, "number 0", grow(0, mib), winerr.ErrorInvalidParameter)
	wantErr(t, "number 3", grow(3, mib), winerr.ErrorInvalidParameter)
	wantErr(t, "number beyond the table", grow(1<<31, mib), winerr.ErrorInvalidParameter)
	wantErr(t, "by nothing", grow(1, 0), winerr.ErrorInvalidParameter)
	wantErr(t, "by less than nothing", grow(1, -512), winerr.ErrorInvalidParameter)
	wantErr(t, "by half a sector", grow(1, mib+256), winerr.ErrorInvalidParameter)
	wantErr(t, "into the next one", grow(1, gib-mib+512), winerr.ErrorInvalidParameter)
	wantErr(t, "beyond the end", grow(2, 10*gib), winerr.ErrorInvalidParameter)
	wantErr(t, "by the greatest number", grow(2, 1<<62), winerr.ErrorInvalidParameter)
	wantErr(t, "up to the next one", grow(1, gib-mib), 0)
	wantErr(t, "of what has no room", grow(1, 512), winerr.ErrorInvalidParameter)
	if p := layoutOf(t, s, n).Partitions; p[0].End() != 2*gib || p[1].Length != gib {
		t.Errorf("partitions %+v", p)
	}
}

// TestGrowDisk: the usable range follows when the driver reads the capacity.
func TestGrowDisk(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{})
	createGPT(t, s, n)
	must(t, setLayout(s, t, n, data(mib, gib)))
	before := layoutOf(t, s, n)
	must(t, s.GrowDisk(n, 20*gib))
	if got := layoutOf(t, s, n); !cmp.Equal(before, got) {
		t.Errorf("the layout followed at once: %+v", got)
	}
	mustControl(t, s, drivePath(n), win.IoctlDiskUpdateDriveSize, nil)
	got := layoutOf(t, s, n)
	if want := before.UsableLength + 10*gib; got.UsableLength != want || !cmp.Equal(before.Partitions, got.Partitions) {
		t.Errorf("usable %d, want %d; partitions %+v", got.UsableLength, want, got.Partitions)
	}
	must(t, s.WriteImage(n, make([]byte, 512), 512)) // the backup is at the new end
	if again := layoutOf(t, s, n); !cmp.Equal(got, again) {
		t.Errorf("the backup says %+v", again)
	}
}

// TestForeignTables: what a disk holds is decided by its bytes, at each call.
func TestForeignTables(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{SizeBytes: gib})
	createGPT(t, s, n)
	must(t, setLayout(s, t, n, data(mib, mib)))
	want := layoutOf(t, s, n)
	must(t, s.WriteImage(n, make([]byte, 1024), 512))
	if got := layoutOf(t, s, n); !cmp.Equal(want, got) {
		t.Errorf("without the primary header: %+v", got)
	}
	must(t, s.WriteImage(n, make([]byte, 512), gib-512))
	wantNoTable(t, s, n)
	mbr := make([]byte, 512)
	copy(mbr[440:], "\x78\x56\x34\x12")
	copy(mbr[446:], "\x80\x00\x00\x00\x07\x00\x00\x00\x00\x08\x00\x00\x00\x10\x00\x00")
	copy(mbr[446+32:], "\x00\x00\x00\x00\x83\x00\x00\x00\x00\x18\x00\x00\x00\x10\x00\x00")
	copy(mbr[510:], "\x55\xAA")
	must(t, s.WriteImage(n, mbr, 0))
	got := layoutOf(t, s, n)
	wantMBR := &win.DriveLayout{Style: win.StyleMBR, Signature: 0x12345678, Partitions: []win.Partition{
		{Number: 1, MBRType: 7, BootIndicator: true, StartingOffset: mib, Length: 2 * mib},
		{},
		{Number: 2, MBRType: 0x83, StartingOffset: 3 * mib, Length: 2 * mib},
		{},
	}}
	if diff := cmp.Diff(wantMBR, got); diff != "" {
		t.Errorf("MBR (-want +got):\n%s", diff)
	}
	s.Settle()
	if volumes := s.VolumesOfDisk(n); len(volumes) != 1 { // that of type 7
		t.Errorf("volumes %q", volumes)
	}
	must(t, s.WriteImage(n, []byte("hsqs"), 510-4)) // its boot code is no matter
	if got := layoutOf(t, s, n); got.Style != win.StyleMBR {
		t.Errorf("layout %+v", got)
	}
	must(t, s.WriteImage(n, []byte{0, 0}, 510))
	wantNoTable(t, s, n)
	if volumes := s.VolumesOfDisk(n); len(volumes) != 0 {
		t.Errorf("volumes %q", volumes)
	}
}

func TestMBRLayout(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{})
	mustControl(t, s, drivePath(n), win.IoctlDiskCreateDisk,
		win.CreateDisk{Style: win.StyleMBR, DiskID: winid.GUID{1, 2, 3, 4}}.Encode())
	if l := layoutOf(t, s, n); l.Style != win.StyleMBR || l.Signature != 0x04030201 {
		t.Errorf("layout %+v", l)
	}
	l := win.DriveLayout{Style: win.StyleMBR, Signature: 5, Partitions: []win.Partition{
		{Style: win.StyleMBR, MBRType: 7, StartingOffset: mib, Length: gib},
	}}
	mustControl(t, s, drivePath(n), win.IoctlDiskSetDriveLayoutEx, l.Encode())
	s.Settle()
	if volumes := s.VolumesOfDisk(n); len(volumes) != 1 {
		t.Errorf("volumes %q", volumes)
	}
	l.Partitions[0].Length = 10 * gib
	_, err := control(t, s, drivePath(n), win.IoctlDiskSetDriveLayoutEx, l.Encode())
	wantErr(t, "beyond the end", err, winerr.ErrorInvalidParameter)
	// Up to the next partition.
	l.Partitions[0].Length = gib
	l.Partitions = append(l.Partitions, win.Partition{Style: win.StyleMBR, MBRType: 7, StartingOffset: 2 * gib, Length: gib})
	mustControl(t, s, drivePath(n), win.IoctlDiskSetDriveLayoutEx, l.Encode())
	for _, g := range []struct {
		number uint32
		bytes  int64
		want   winerr.Errno
	}{
		{1, gib, winerr.ErrorInvalidParameter}, {1, gib - mib, 0}, {1, 512, winerr.ErrorInvalidParameter},
		{2, mib + 1, winerr.ErrorInvalidParameter}, {2, -mib, winerr.ErrorInvalidParameter}, {2, 100 * gib, winerr.ErrorInvalidParameter},
		{2, mib, 0}, {3, mib, winerr.ErrorInvalidParameter}, {0, mib, winerr.ErrorInvalidParameter},
	} {
		_, err = control(t, s, drivePath(n), win.IoctlDiskGrowPartition,
			win.GrowPartition{PartitionNumber: g.number, BytesToGrow: g.bytes}.Encode())
		wantErr(t, fmt.Sprint("grow partition ", g.number, " by ", g.bytes), err, g.want)
	}
	if got := layoutOf(t, s, n).Partitions; got[0].Length != 2*gib-mib || got[1].Length != gib+mib {
		t.Errorf("the partitions are %+v", got)
	}
}
