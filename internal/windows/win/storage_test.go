// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Old drivers mark a missing string with an offset of all ones.
func TestMissingSerialNumber(t *testing.T) {
	b := DeviceDescriptor{BusType: BusTypeSCSI}.Encode()
	le.PutUint32(b[24:], 0xFFFFFFFF)
	got, err := DecodeDeviceDescriptor(b)
	if err != nil || got.SerialNumber != "" {
		t.Errorf("%+v, %v", got, err)
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
	bad := DeviceDescriptor{SerialNumber: "x"}.Encode()
	bad[24] = 0xf0
	if got, err := DecodeDeviceDescriptor(bad); err == nil {
		t.Errorf("a string outside: decoded to %+v", got)
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
