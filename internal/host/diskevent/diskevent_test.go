// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package diskevent

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// anEvent has the form of Windows' XML, with quote around attributes.
func anEvent(quote string, fields ...string) string {
	var b strings.Builder
	b.WriteString("<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System>" +
		"<Provider Name='Microsoft-Windows-Partition' Guid='{412bdff2-a8c4-470d-8f33-63fe0d8c20e2}'/>" +
		"<EventID>1006</EventID></System><EventData>")
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(&b, "<Data Name='%s'>%s</Data>", fields[i], fields[i+1])
	}
	return strings.ReplaceAll(b.String()+"</EventData></Event>", "'", quote)
}

var (
	diskID      = winid.GUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	partitionID = winid.GUID{0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff, 0xf0}
	table       = func() []byte {
		b := (&win.DriveLayout{Style: win.StyleGPT, DiskID: diskID, StartingUsableOffset: 17408, UsableLength: 1 << 30,
			MaxPartitionCount: 128, Partitions: []win.Partition{{Style: win.StyleGPT, StartingOffset: 1 << 20, Length: 1 << 24,
				Number: 1, Type: winid.GUID{1}, ID: partitionID, Name: "data"}}}).Encode()
		copy(b[48+72+20:], "memory of the kernel")
		return b
	}()
	mbr = func() []byte {
		b := make([]byte, 512)
		copy(b, "somebody's data")
		copy(b[440:], "\x11\x22\x33\x44")
		b[450], b[510], b[511] = 7, 0x55, 0xaa
		return b
	}()
)

func disk(quote string) string {
	return anEvent(quote, "DiskNumber", "3", "Capacity", "5368709120", "BusType", "17", "Manufacturer", "NULL", "Model", "Fast &amp; new",
		"SerialNumber", "AB12_cd34.", "Location", "Integrated : Adapter 0", "ParentId", "USB\\VID_1\\SECRET9",
		"DiskId", "{12345678-9ABC-0000-0000-1234567890AB}", "PoolId", "{00000000-0000-0000-0000-000000000000}",
		"StorageIdCount", "2", "StorageIdCodeSet", "1", "StorageIdType", "3", "StorageIdAssociation", "0", "StorageId", "60022480DDE68D41",
		"PartitionTable", strings.ToUpper(hex.EncodeToString(table)), "Mbr", hex.EncodeToString(mbr), "Vbr0", "EB52904E544653")
}

func TestParse(t *testing.T) {
	for _, quote := range []string{"'", `"`} {
		d, ok, err := Parse(disk(quote))
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if d.Number != 3 || d.Capacity != 5368709120 || d.Descriptor != (win.DeviceDescriptor{BusType: 17, ProductID: "Fast & new",
			SerialNumber: "AB12_cd34."}) || d.Location != "Integrated : Adapter 0" || !bytes.Equal(d.Layout, table) ||
			!bytes.Equal(d.MBR, mbr) || len(d.Identifiers) != 1 || d.Identifiers[0].Type != win.IdentifierNAA {
			t.Errorf("read %+v", d)
		}
	}
	// A disk that has left, as Windows 10 writes it; bytes with dashes, as people copy them.
	d, ok, err := Parse(anEvent(`"`, "DiskNumber", "1", "Capacity", "0", "StorageIdCount", "0", "StorageId", "", "PartitionTable", "",
		"Mbr", "00-FF"))
	if err != nil || !ok || d.Capacity != 0 || len(d.Layout) != 0 || !bytes.Equal(d.MBR, []byte{0, 0xff}) || d.Identifiers != nil {
		t.Errorf("%+v, %v, %v", d, ok, err)
	}
	for _, bad := range []string{"<Event ", anEvent("'", "Capacity", "much"), anEvent("'", "PartitionTable", "0g")} {
		if d, _, err := Parse(bad); err == nil {
			t.Errorf("%q is %+v", bad, d)
		}
	}
	if d, ok, err := Parse(strings.Replace(disk("'"), "1006", "1007", 1)); ok || err != nil {
		t.Errorf("another event is %+v, %v", d, err)
	}
}

// Masked events say nothing that is in one machine only, and have the same form.
func TestMasker(t *testing.T) {
	m := Masker{Key: []byte("k")}
	text := m.Event(disk("'"))
	for _, secret := range []string{"AB12", "cd34", "SECRET9", "12345678-9ABC", "1234567890AB", "80DDE68D41", hex.EncodeToString(diskID[:]),
		hex.EncodeToString(partitionID[:]), hex.EncodeToString([]byte("somebody")), hex.EncodeToString([]byte("kernel")), "11223344", "4E544653"} {
		if strings.Contains(strings.ToUpper(text), strings.ToUpper(secret)) {
			t.Errorf("%s is still in %s", secret, text)
		}
	}
	d, ok, err := Parse(text)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if d.Number != 3 || d.Descriptor.ProductID != "Fast & new" || d.Location != "Integrated : Adapter 0" ||
		!regexp.MustCompile(`^[A-Z]{2}[0-9]{2}_[a-z]{2}[0-9]{2}\.$`).MatchString(d.Descriptor.SerialNumber) ||
		!bytes.HasPrefix(d.Identifiers[0].ID, []byte("\x60\x02\x24\x80")) || len(d.Identifiers[0].ID) != 8 ||
		!strings.Contains(text, "{00000000-0000-0000-0000-000000000000}") {
		t.Errorf("the form has changed: %s", text)
	}
	l, err := win.DecodeDriveLayout(d.Layout)
	if err != nil || l.UsableLength != 1<<30 || len(l.Partitions) != 1 || l.Partitions[0].Name != "data" ||
		l.Partitions[0].StartingOffset != 1<<20 || l.DiskID == diskID || l.DiskID == (winid.GUID{}) {
		t.Errorf("the table is %+v, %v", l, err)
	}
	if !bytes.Equal(d.MBR[446:], mbr[446:]) || !bytes.Equal(d.MBR[:20], append(bytes.Repeat([]byte{0xff}, 15), 0, 0, 0, 0, 0)) {
		t.Errorf("the sector is %x", d.MBR)
	}
	if again := m.Event(disk("'")); again != text {
		t.Errorf("equal disks differ: %s", again)
	}
	if other := (Masker{Key: []byte("l")}).Event(disk("'")); other == text {
		t.Error("two bundles have the same names")
	}
	// A blank disk stays blank, and what nobody understands is left out.
	zeros := strings.Repeat("00", 48)
	if got, want := m.Event(anEvent("'", "PartitionTable", zeros, "Mbr", strings.Repeat("00", 512), "SerialNumber", "NULL")),
		anEvent("'", "PartitionTable", zeros, "Mbr", strings.Repeat("00", 512), "SerialNumber", "NULL"); got != want {
		t.Errorf("a blank disk became %s", got)
	}
	if got, want := m.Event(anEvent("'", "PartitionTable", "0102", "Mbr", "xyz")), anEvent("'", "PartitionTable", "", "Mbr", ""); got != want {
		t.Errorf("what isn't understood became %s", got)
	}
}
