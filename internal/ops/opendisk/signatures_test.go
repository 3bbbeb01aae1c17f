// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk/signaturetest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	sector     = 512
	mediumSize = 4 << 20
)

// disk is a reader that, like a disk, refuses runs that aren't whole sectors.
type disk struct {
	b   []byte
	err error
}

func (m disk) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	if off%sector != 0 || len(p)%sector != 0 {
		return 0, winerr.ErrorInvalidParameter
	}
	return copy(p, m.b[min(off, int64(len(m.b))):]), nil
}

func recognise(t *testing.T, b []byte) string {
	t.Helper()
	found, err := Recognise(t.Context(), disk{b: b}, int64(len(b)), sector)
	simtest.Must(t, err)
	return found
}

// noting is a disk that notes the buffer of the read of its start.
type noting struct {
	disk
	buffer *byte
}

func (m *noting) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off == 0 {
		m.buffer = &p[0]
	}
	return m.disk.ReadAt(ctx, p, off)
}

// Buffers are used again, but not that of a read that failed: Windows may still write to it.
func TestBuffers(t *testing.T) {
	read := func(err error) *byte {
		m := noting{disk: disk{b: make([]byte, mediumSize), err: err}}
		_, readErr := Recognise(t.Context(), &m, mediumSize, sector)
		simtest.WantErrorOf(t, "Recognise", readErr, err)
		return m.buffer
	}
	isReused := func(err error) bool {
		for range 50 { // the pool may drop a buffer at any time
			if before := read(err); read(nil) == before {
				return true
			}
		}
		return false
	}
	if !isReused(nil) {
		t.Error("no buffer is used again")
	}
	if isReused(context.DeadlineExceeded) {
		t.Error("the buffer of a failed read is used again")
	}
}

// What mkfs and its kind leave behind is recognised, and of the table each.
func TestRecognise(t *testing.T) {
	known := make(map[string]bool)
	for _, m := range signaturetest.Media {
		known[m.Name] = true
		b := make([]byte, mediumSize)
		m.Parts(mediumSize, func(offset int64, s string) { copy(b[offset:], s) })
		simtest.Want(t, fmt.Sprintf("%+v", m), recognise(t, b), m.Name)
	}
	bare(mediumSize, func(s signature, _ string, _ int64) {
		if !known[s.name] {
			t.Errorf("there is no medium with %s", s.name)
		}
	})
}

// What is no signature, but has a part of one, or is like one.
func TestRecogniseNothing(t *testing.T) {
	end := int64(mediumSize)
	for _, parts := range []map[int64]string{
		{},
		// The magic alone is chance.
		{1024 + 0x38: "\x53\xef", 1024 + 0x4c: "\x77"},
		{512: "\xfe\xed\xba\xbe", 512 + 11: "\x02"},
		{1024: "BD", 1024 + 23: "\x02"},
		{1024: "\x10\x00\x10\x00\x00\x00", 1024 + 16: "\x8f\x13"}, // no room for the inodes
		{8: "\x01\x00\x10\x00"},
		{end - 512: "JM"},
		{end - 512 + 0x63: "\x2f"},
		{end - 512: "\x55\xaa"},
		{508: "\xda\xbe"},
		{0: "ER\x08\x00", 512: "PM"},
		{0x1d2: "\x01GEM\x00\x00\x00\x02\x00\x00\x10\x00"}, // beyond the disk
		// What boot loaders and Windows write into the first sector of a disk.
		{0: "\xeb\x63\x90", 510: "\x55\xaa"},
		{0: "\x33\xc0\x8e\xd0\xbc", 510: "\x55\xaa"},
		{512: "LABELONE"},
	} {
		b := make([]byte, mediumSize)
		for offset, s := range parts {
			copy(b[offset:], s)
		}
		simtest.Want(t, fmt.Sprint(parts), recognise(t, b), "")
	}
}

// Each signature of the table is read and found, whatever the size and the sectors of a disk.
func TestTable(t *testing.T) {
	for _, size := range []int64{8 << 20, 8<<20 + 37*sector} {
		for _, sectorSize := range []uint32{sector, 4096} {
			size -= size % int64(sectorSize)
			b := make([]byte, size)
			bare(size, func(s signature, magic string, offset int64) {
				if s.check != nil {
					return // TestRecognise has it
				}
				copy(b[offset:], magic)
				found, err := Recognise(t.Context(), disk{b: b}, size, sectorSize)
				clear(b[offset:][:len(magic)])
				if err != nil || found != s.name {
					t.Errorf("%q at %d of %d in sectors of %d: found %q, %v; want %q", magic, offset, size, sectorSize, found, err, s.name)
				}
			})
		}
	}
}

// What a check costs: how much is read of a disk, in how many calls.
func TestReads(t *testing.T) {
	const size = 1 << 40
	for name, c := range map[string]struct {
		recognise    func(context.Context, Reader, int64, uint32) (string, error)
		calls, bytes int
	}{
		"volume": {Recognise, 4, 1<<20 + 3*4<<10 + 3087*sector},
		"disk":   {recogniseDisk, 7, 1<<20 + 3*4<<10 + 3087*sector + 3*sector},
	} {
		var r counter
		if found, err := c.recognise(t.Context(), &r, size, sector); found != "" || err != nil {
			t.Errorf("%s: %q, %v", name, found, err)
		}
		simtest.Want(t, name+": calls", r.calls, c.calls)
		simtest.Want(t, name+": bytes", r.bytes, c.bytes)
	}
}

// counter is a blank disk that counts what is read of it.
type counter struct{ calls, bytes int }

func (c *counter) ReadAt(_ context.Context, p []byte, _ int64) (int, error) {
	clear(p)
	c.calls++
	c.bytes += len(p)
	return len(p), nil
}

// A disk that reports strange sectors is refused before any memory is taken for them.
func TestSectorSizes(t *testing.T) {
	const size = 1 << 40
	for sectorSize, want := range map[uint32]error{
		512: nil, 4096: nil, 64 << 10: nil,
		0: csiproxy.ErrFailedPrecondition, 256: csiproxy.ErrFailedPrecondition, 520: csiproxy.ErrFailedPrecondition,
		128 << 10: csiproxy.ErrFailedPrecondition, 1 << 31: csiproxy.ErrFailedPrecondition, 1<<32 - 1: csiproxy.ErrFailedPrecondition,
	} {
		for name, read := range map[string]func(Reader) error{
			"Recognise":    func(r Reader) error { _, err := Recognise(t.Context(), r, size, sectorSize); return err },
			"IsBlank":      func(r Reader) error { _, err := IsBlank(t.Context(), r, size, sectorSize); return err },
			"ReadContents": func(r Reader) error { _, err := ReadContents(t.Context(), r, size, sectorSize); return err },
		} {
			var r counter
			simtest.WantErrorOf(t, fmt.Sprintf("%s with sectors of %d bytes", name, sectorSize), read(&r), want)
			if (r.bytes > 0) != (want == nil) || r.bytes > 5<<20 {
				t.Errorf("%s with sectors of %d bytes reads %d bytes", name, sectorSize, r.bytes)
			}
		}
	}
}

func TestLeftoversAreNotRecognised(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	for range 20 {
		b := make([]byte, 1<<20)
		random.Read(b)
		simtest.Want(t, "random bytes", recognise(t, b), "")
	}
}

func TestSmallMediumAndErrors(t *testing.T) {
	for _, size := range []int{0, 1, sector, 3 * sector, 1000} {
		simtest.Want(t, fmt.Sprintf("%d bytes", size), recognise(t, bytes.Repeat([]byte{0}, size)), "")
	}
	if _, err := Recognise(t.Context(), disk{err: winerr.ErrorIODevice}, mediumSize, sector); !errors.Is(err,
		winerr.ErrorIODevice) {
		t.Errorf("a broken medium gave %v", err)
	}
}

func FuzzRecognise(f *testing.F) {
	f.Add([]byte("XFSB"), 1024)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		Recognise(t.Context(), disk{b: b}, int64(size%(1<<20)), sector)
	})
}

// The places of MD RAID's superblocks are aligned, whatever the size of the disk.
func TestMDOnOddSizes(t *testing.T) {
	const size = mediumSize + 5*sector
	for _, place := range []int64{(size - 8<<10) / 4096 * 4096, size/(64<<10)*(64<<10) - 64<<10} {
		b := make([]byte, size)
		copy(b[place:], "\xfc\x4e\x2b\xa9")
		simtest.Want(t, fmt.Sprintf("at %d", place), recognise(t, b), "a Linux MD RAID member")
	}
	b := make([]byte, size)
	copy(b[size-8<<10:], "\xfc\x4e\x2b\xa9") // nobody writes one there
	simtest.Want(t, "what isn't aligned", recognise(t, b), "")
}

// The copy of a boot sector is in the last sector, of 512 bytes or of 4096.
func TestCopyOfTheBootSector(t *testing.T) {
	for _, s := range []uint32{512, 4096} {
		b := make([]byte, mediumSize)
		copy(b[mediumSize-int(s):], "\xeb\x52\x90NTFS    ")
		found, err := Recognise(t.Context(), disk{b: b}, mediumSize, s)
		if err != nil || found != "an NTFS file system with a damaged boot sector" {
			t.Errorf("sectors of %d: %q, %v", s, found, err)
		}
	}
}

func recogniseDisk(ctx context.Context, r Reader, size int64, sectorSize uint32) (string, error) {
	d, err := ReadContents(ctx, r, size, sectorSize)
	return d.Recognised, err
}

func TestRecogniseDisk(t *testing.T) {
	const size = 200 << 20
	for _, c := range []struct {
		sectorSize uint32
		want       string
		parts      map[int64]string
	}{
		{512, "", nil},
		{512, "an XFS file system", map[int64]string{0: "XFSB"}},
		{512, "(sector 1)", map[int64]string{512: "EFI PART"}},
		{512, "(sector 8)", map[int64]string{4096: "EFI PART"}},
		{4096, "(sector 0)", map[int64]string{512: "EFI PART"}},
		{4096, "(sector 1)", map[int64]string{4096: "EFI PART"}},
		{512, "(sector 409599)", map[int64]string{size - 512: "EFI PART"}},
		{512, "(sector 409592)", map[int64]string{size - 4096: "EFI PART"}},
		{4096, "(sector 51199)", map[int64]string{size - 512: "EFI PART"}},
		{512, "", map[int64]string{1 << 20: "EFI PART"}},
		{512, "an exFAT file system where a partition usually begins (sector 2048)", map[int64]string{1<<20 + 3: "EXFAT   "}},
		{512, "a FAT32 file system where a partition usually begins (sector 32768)",
			map[int64]string{16<<20 + 82: "FAT32   ", 16<<20 + 510: "\x55\xaa"}},
		{512, "", map[int64]string{16<<20 + 82: "FAT32   "}}, // no boot sector
		{512, "an NTFS file system where a partition usually begins (sector 264192)",
			map[int64]string{129<<20 + 3: "NTFS    "}},
		{512, "", map[int64]string{40<<20 + 3: "NTFS    "}}, // a leftover
	} {
		b := make([]byte, size)
		for offset, s := range c.parts {
			copy(b[offset:], s)
		}
		got, err := recogniseDisk(t.Context(), disk{b: b}, size, c.sectorSize)
		if err != nil || !strings.HasSuffix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%v with sectors of %d: %q, %v; want %q", c.parts, c.sectorSize, got, err, c.want)
		}
	}
	for _, small := range []int64{0, 512, 1024, 4096, 5000} {
		if got, err := recogniseDisk(t.Context(), disk{b: make([]byte, small)}, small, 512); got != "" || err != nil {
			t.Errorf("%d bytes: %q, %v", small, got, err)
		}
	}
}

func TestHasTable(t *testing.T) {
	const size = 2 << 20
	table := func(end string, entry int, kind byte, start string) map[int64]string {
		return map[int64]string{510: end, 446 + 16*int64(entry) + 4: string(kind), 446 + 16*int64(entry) + 8: start}
	}
	exFAT := table("\x55\xaa", 0, 7, "\x00\x08")
	exFAT[3] = "EXFAT   "
	for _, c := range []struct {
		name  string
		parts map[int64]string
		want  bool
	}{
		{"zeros", nil, false},
		{"NTFS", table("\x55\xaa", 0, 7, "\x00\x08"), true},
		{"FAT32 in the last entry", table("\x55\xaa", 3, 0x0C, "\x00\x08"), true},
		{"extended", table("\x55\xaa", 1, 5, "\x00\x08"), true},
		{"protective", map[int64]string{510: "\x55\xaa", 450: "\xee", 454: "\x01"}, true},
		{"Linux", table("\x55\xaa", 0, 0x42, "\x00\x08"), false},
		{"no start", table("\x55\xaa", 0, 7, ""), false},
		{"no signature", table("\x55", 0, 7, "\x00\x08"), false},
		{"exFAT without a table", exFAT, false},
	} {
		for _, sector := range []uint32{512, 4096} {
			b := make([]byte, size)
			for offset, s := range c.parts {
				copy(b[offset:], s)
			}
			d, err := ReadContents(t.Context(), disk{b: b}, size, sector)
			if err != nil || d.HasTable != c.want {
				t.Errorf("%s, sectors of %d: %t, %v; want %t", c.name, sector, d.HasTable, err, c.want)
			}
		}
	}
	for small := range int64(3) {
		if d, err := ReadContents(t.Context(), disk{b: make([]byte, 512*small)}, 512*small, 512); d.HasTable || err != nil {
			t.Errorf("%d sectors: %v", small, err)
		}
	}
}
