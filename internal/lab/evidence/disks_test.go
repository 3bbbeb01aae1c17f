// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Row is what Windows said of one disk.
type Row struct {
	Name    string     `json:"name"`
	Source  string     `json:"source"`  // where it was published
	Windows string     `json:"windows"` // its version
	Size    int64      `json:"size,omitempty"`
	Bus     uint32     `json:"bus"`
	Vendor  string     `json:"vendor,omitempty"`
	Product string     `json:"product,omitempty"`
	Serial  string     `json:"serial,omitempty"`
	Place   string     `json:"location,omitempty"`
	Path    string     `json:"path,omitempty"` // the device interface's
	IDs     []RowID    `json:"ids,omitempty"`
	Layout  string     `json:"layout,omitempty"` // hex
	MBR     string     `json:"mbr,omitempty"`    // hex, without zeros at its beginning
	Want    RowMeaning `json:"want"`
}

// RowID is a designator of page 83.
type RowID struct {
	CodeSet     uint32 `json:"codeSet"`
	Type        uint32 `json:"type"`
	Association uint32 `json:"association"`
	ID          string `json:"id"` // hex
}

// RowMeaning is what a row means, as far as the source says it.
type RowMeaning struct {
	NoTable    bool   `json:"noTable,omitempty"` // nobody has partitioned it
	Partitions []int  `json:"partitions,omitempty"`
	LUN        string `json:"lun,omitempty"`
	Page83     string `json:"page83,omitempty"`
	Scratch    bool   `json:"scratch,omitempty"` // of a container
}

// knownDisks are what Windows said of disks, of which testdata/disks.json has the values. Serial
// numbers and ids are masked.
func knownDisks(t *testing.T) (rows []Row) {
	text, err := os.ReadFile("testdata/disks.json")
	simtest.Must(t, err)
	simtest.Must(t, json.Unmarshal(text, &rows))
	for _, row := range rows {
		if row.Name == "" || row.Source == "" || row.Windows == "" {
			t.Errorf("a row has no name, source or Windows: %+v", row)
		}
	}
	return rows
}

func unhex(t *testing.T, text string) []byte {
	b, err := hex.DecodeString(text)
	simtest.Must(t, err)
	return b
}

// Tables of real disks are read as Windows meant them: with the numbers and places that its partition
// manager had given, and, for an MBR, with what the sector itself says.
func TestKnownTables(t *testing.T) {
	for _, row := range knownDisks(t) {
		if row.Layout == "" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			table := unhex(t, row.Layout)
			layout, err := win.DecodeDriveLayout(table)
			simtest.Must(t, err)
			var numbers []int
			end := int64(0)
			for _, p := range layout.Partitions {
				if p.Number == 0 {
					continue
				}
				numbers = append(numbers, int(p.Number))
				if p.StartingOffset < end || p.End() > row.Size {
					t.Errorf("partition %d lies at %d to %d, behind %d, on %d bytes", p.Number, p.StartingOffset, p.End(), end, row.Size)
				}
				end = p.End()
			}
			simtest.Want(t, "partition numbers", numbers, row.Want.Partitions)
			if !bytes.Equal(withoutUnused(layout, layout.Encode()), withoutUnused(layout, table)) {
				t.Errorf("the table is written otherwise than Windows had it:\n%x\n%x", layout.Encode(), table)
			}
			switch layout.Style {
			case win.StyleGPT:
				// The header, 128 entries of 128 bytes, and the same at the end, in sectors of 512 bytes.
				simtest.Want(t, "usable area", [3]int64{layout.StartingUsableOffset, layout.StartingUsableOffset + layout.UsableLength,
					int64(layout.MaxPartitionCount)}, [3]int64{34 * 512, row.Size - 33*512, 128})
			case win.StyleMBR:
				compareMBR(t, layout, unhex(t, row.MBR))
			}
		})
	}
}

// withoutUnused clears what we neither read nor write of a table: the sum over an MBR, whether Windows
// knows its types, how many sectors lie before a partition, and what is behind a name.
func withoutUnused(l *win.DriveLayout, b []byte) []byte {
	b = bytes.Clone(b)
	if l.Style == win.StyleMBR {
		clear(b[12:16])
	}
	for i, p := range l.Partitions {
		entry := b[48+144*i:][:144]
		switch p.Style {
		case win.StyleMBR:
			clear(entry[34:40])
		case win.StyleGPT:
			clear(entry[72+2*len(p.Name):])
		}
	}
	return b
}

// compareMBR compares a table with the sector of the same event, of which the zeros at the beginning
// were left out.
func compareMBR(t *testing.T, l *win.DriveLayout, sector []byte) {
	sector = append(make([]byte, 512-len(sector)), sector...)
	for i, p := range l.Partitions[:min(4, len(l.Partitions))] {
		entry := sector[446+16*i:][:16]
		sectors := func(b []byte) int64 { return 512 * (int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16 | int64(b[3])<<24) }
		got := [4]any{p.MBRType, p.BootIndicator, p.StartingOffset, p.Length}
		simtest.Want(t, "entry of the sector", got, [4]any{entry[4], entry[0] == 0x80, sectors(entry[8:]), sectors(entry[12:])})
	}
}

// A node whose disks say what real ones said lists them as drivers need it.
func TestKnownDisks(t *testing.T) {
	for _, row := range knownDisks(t) {
		if row.Layout == "" && row.Place == "" {
			continue // it has left, or the source says nothing of where it is
		}
		t.Run(row.Name, func(t *testing.T) {
			spec := winsim.DiskSpec{SizeBytes: 1 << 30, BusType: win.BusType(row.Bus), VendorID: row.Vendor, ProductID: row.Product,
				Serial: row.Serial, Location: row.Place, Page83Error: winerr.ErrorInvalidFunction}
			for _, id := range row.IDs {
				spec.Page83Error = 0
				spec.Page83 = append(spec.Page83, win.Identifier{CodeSet: win.CodeSet(id.CodeSet), Type: win.IdentifierType(id.Type),
					Association: win.Association(id.Association), ID: unhex(t, id.ID)})
			}
			sys := simtest.Open(t, winsim.Delays{})
			number := simtest.Attach(t, sys, spec)
			ops, err := nodeops.New(sys, nodeops.Options{})
			simtest.Must(t, err)
			all, err := ops.Disk.ListDiskLocations(t.Context())
			simtest.Must(t, err)
			if got := all[number].LUNID; row.Bus != uint32(win.BusTypeNVMe) && got != row.Want.LUN {
				t.Errorf("LUN %q, want %q", got, row.Want.LUN)
			}
			if row.Want.Scratch {
				disks, err := ops.Storage.ListDisks(t.Context(), csiproxy.Selector{})
				simtest.Must(t, err)
				for _, d := range disks {
					if d.Number == number {
						t.Errorf("the scratch disk is listed: %+v", d)
					}
				}
				return
			}
			ids, err := ops.Disk.ListDiskIDs(t.Context())
			simtest.Must(t, err)
			want := row.Want.Page83
			if len(row.IDs) > 0 && row.IDs[0].CodeSet == uint32(win.CodeSetASCII) {
				want = string(unhex(t, row.IDs[0].ID))
			}
			simtest.Want(t, "page 83", ids[number].Page83, want)
			if row.Serial != "" {
				simtest.Want(t, "serial number", ids[number].SerialNumber, row.Serial)
			}
		})
	}
}

// The serial numbers of NVMe disks have the form that Windows makes of an EUI-64, and their identifier
// is the same as a name.
func TestKnownNVMeSerials(t *testing.T) {
	tried := 0
	for _, row := range knownDisks(t) {
		if row.Bus != uint32(win.BusTypeNVMe) || row.Serial == "" {
			continue
		}
		tried++
		var n win.NVMeNamespace
		digits := strings.NewReplacer("_", "", ".", "").Replace(row.Serial)
		copy(n.EUI64[:], unhex(t, digits))
		simtest.Want(t, "serial number", win.NVMeSerial("", 1, n), row.Serial)
		for _, id := range row.IDs {
			if name := string(unhex(t, id.ID)); id.CodeSet != 3 || id.Type != 8 || len(name) != len("eui.")+16 || !strings.HasPrefix(name, "eui.") {
				t.Errorf("the identifier is %+v: %q", id, name)
			}
		}
	}
	if tried == 0 {
		t.Error("no row has an NVMe disk")
	}
}

// Only the table of a disk that nobody has partitioned is taken for none, and no other is ever replaced.
func TestKnownTablesAreKept(t *testing.T) {
	for _, row := range knownDisks(t) {
		if row.Layout == "" {
			continue
		}
		t.Run(row.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys := simtest.Open(t, winsim.Delays{})
				number := simtest.Attach(t, sys, winsim.DiskSpec{SizeBytes: row.Size})
				answer := true
				ops, err := nodeops.New(simtest.Controlled{System: sys,
					Answer: func(path string, code win.IoctlCode, out []byte, do func() (int, error)) (int, error) {
						if n, err := do(); !answer || code != win.IoctlDiskGetDriveLayoutEx {
							return n, err
						}
						if table := unhex(t, row.Layout); len(table) <= len(out) {
							return copy(out, table), nil
						}
						return 0, winerr.ErrorInsufficientBuffer
					}}, nodeops.Options{})
				simtest.Must(t, err)
				disks, err := ops.Storage.ListDisks(t.Context(), csiproxy.Selector{Number: &number})
				simtest.Must(t, err)
				if len(disks) != 1 || (disks[0].Style == csiproxy.PartitionStyleRAW) != row.Want.NoTable || disks[0].Error != "" {
					t.Errorf("no table: %v, but listed is %+v", row.Want.NoTable, disks)
				}
				answer = !row.Want.NoTable // the table that is made is read again
				err = ops.Disk.PartitionDisk(t.Context(), number)
				if made := sys.Calls()["IOCTL_DISK_CREATE_DISK"]; (made == 1) != row.Want.NoTable ||
					made != sys.Calls()["IOCTL_DISK_SET_DRIVE_LAYOUT_EX"] || made == 1 && err != nil {
					t.Errorf("no table: %v, but %d tables are made, %v", row.Want.NoTable, made, err)
				}
			})
		})
	}
}
