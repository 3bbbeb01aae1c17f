// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Old drivers mark a missing string with an offset of all ones. One outside of the bytes, of a sick
// driver, costs that string only.
func TestMissingString(t *testing.T) {
	for _, offset := range []uint32{0xFFFFFFFF, 0xf0, 1 << 31} {
		b := DeviceDescriptor{BusType: BusTypeSCSI, VendorID: "vendor", SerialNumber: "x"}.Encode()
		le.PutUint32(b[24:], offset)
		got, err := DecodeDeviceDescriptor(b)
		if want := (DeviceDescriptor{BusType: BusTypeSCSI, VendorID: "vendor"}); err != nil || got != want {
			t.Errorf("offset %x: %+v, %v", offset, got, err)
		}
		b = DeviceLocation{Adapter: 3, Text: "text"}.Encode()
		le.PutUint32(b[32:], offset)
		if got, err := DecodeDeviceLocation(b); err != nil || got != (DeviceLocation{Adapter: 3}) {
			t.Errorf("offset %x: %+v, %v", offset, got, err)
		}
	}
}

func TestStoragePropertiesRefuseBadBytes(t *testing.T) {
	ids := func(change func(b []byte)) []byte {
		b := EncodeDeviceIDs([]Identifier{{CodeSetASCII, 0, 0, []byte("abcd")}, {CodeSetASCII, 0, 0, []byte("efgh")}})
		change(b)
		return b
	}
	for name, b := range map[string][]byte{
		"cut off":              ids(func([]byte) {})[:30],
		"size beyond":          ids(func(b []byte) { b[4] = 0xff }),
		"size below":           ids(func(b []byte) { b[4] = 3 }),
		"identifier too long":  ids(func(b []byte) { b[12+8] = 0xff }),
		"next offset beyond":   ids(func(b []byte) { b[12+10] = 0xff }),
		"next offset too near": ids(func(b []byte) { b[12+10] = 4 }),
	} {
		if got, err := DecodeDeviceIDs(b); err == nil {
			t.Errorf("%s: decoded to %+v", name, got)
		}
	}
	if got, err := DecodeDiskExtents([]byte{2, 0, 0, 0, 0, 0, 0, 0}); err == nil {
		t.Errorf("extents outside: decoded to %+v", got)
	}
}

func FuzzDecodeDeviceIDs(f *testing.F) {
	f.Add(EncodeDeviceIDs([]Identifier{{CodeSetBinary, 3, 0, []byte{1, 2, 3}}, {CodeSetASCII, 1, 2, []byte("x")}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, err := DecodeDeviceIDs(b)
		if err != nil {
			return
		}
		got, err := DecodeDeviceIDs(EncodeDeviceIDs(ids))
		if err != nil || !cmp.Equal(got, ids) {
			t.Errorf("%+v became %+v, %v", ids, got, err)
		}
	})
}

func FuzzDecodeDescriptors(f *testing.F) {
	f.Add(DeviceDescriptor{VendorID: "v", ProductID: "p", SerialNumber: "s"}.Encode())
	f.Add(DeviceLocation{Text: "PCI Slot 3 : Adapter 0"}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := DecodeDeviceDescriptor(b); err == nil {
			if got, err := DecodeDeviceDescriptor(d.Encode()); err != nil || got != d {
				t.Errorf("%+v became %+v, %v", d, got, err)
			}
		}
		if l, err := DecodeDeviceLocation(b); err == nil {
			if got, err := DecodeDeviceLocation(l.Encode()); err != nil || got != l {
				t.Errorf("%+v became %+v, %v", l, got, err)
			}
		}
	})
}

// Windows lets each identifier begin on a multiple of four bytes.
func TestIdentifiersAreAligned(t *testing.T) {
	b := EncodeDeviceIDs([]Identifier{{CodeSet: CodeSetBinary, ID: make([]byte, 5)},
		{CodeSet: CodeSetBinary, ID: []byte{7}}})
	if next := le.Uint16(b[12+10:]); next != 24 || len(b) != 12+24+20 || b[12+24+16] != 7 {
		t.Errorf("the second begins %d bytes after the first of 5 bytes; % x", next, b)
	}
}

// Identifiers that overlap would take many times the memory of the answer.
func TestIdentifiersDoNotOverlap(t *testing.T) {
	b := EncodeDeviceIDs([]Identifier{{ID: make([]byte, 64)}, {ID: make([]byte, 64)}})
	if ids, err := DecodeDeviceIDs(b); err != nil || len(ids) != 2 {
		t.Errorf("separate identifiers: %v, %v", ids, err)
	}
	le.PutUint16(b[12+10:], 16) // the second one begins in the first one
	if ids, err := DecodeDeviceIDs(b); err == nil {
		t.Errorf("overlapping identifiers: %v", ids)
	}
}
