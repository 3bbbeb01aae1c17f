// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/ops/machine"
)

// structure is a structure of a table: its type, the fields behind the header, and its
// strings.
func structure(kind byte, fields []byte, texts ...string) []byte {
	b := append([]byte{kind, byte(4 + len(fields)), 0, kind}, fields...)
	for _, text := range texts {
		b = append(b, text...)
		b = append(b, 0)
	}
	if len(texts) == 0 {
		b = append(b, 0)
	}
	return append(b, 0)
}

// system are the fields of the system information of SMBIOS 2.4 and later.
func system(manufacturer, product, version, serial, sku, family byte) []byte {
	b := []byte{manufacturer, product, version, serial}
	b = append(b, make([]byte, 16)...) // UUID
	return append(b, 6, sku, family)
}

// raw is RawSMBIOSData with the tables.
func raw(tables ...[]byte) []byte {
	table := slices.Concat(tables...)
	b := []byte{0, 2, 8, 0}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(table)))
	return append(b, table...)
}

// The shapes in which vendors lay out their tables: what comes before the system
// information, which strings it has and in which order, and whether the table has an
// end.
func vendors() map[string]struct {
	raw    []byte
	serial string
} {
	end := structure(127, nil)
	bios := structure(0, make([]byte, 20), "Phoenix Technologies LTD", "6.00", "11/12/2020")
	return map[string]struct {
		raw    []byte
		serial string
	}{
		"VMware": {
			raw(bios, structure(1, system(1, 2, 3, 4, 0, 0), "VMware, Inc.", "VMware7,1", "None",
				"VMware-42 1c 7a 5c 9a 5f 6d 3e-8a 0b 5e 44 4f 22 10 9c"), end),
			"VMware-42 1c 7a 5c 9a 5f 6d 3e-8a 0b 5e 44 4f 22 10 9c",
		},
		"Hyper-V": { // the system information comes behind others
			raw(bios, structure(2, make([]byte, 11), "Microsoft Corporation", "Virtual Machine"), structure(3, make([]byte, 17)),
				structure(1, system(1, 2, 4, 3, 5, 6), "Microsoft Corporation", "Virtual Machine",
					"0000-0011-5139-3321-9311-7405-34", "Hyper-V UEFI Release v4.1", "None", "Virtual Machine"), end),
			"0000-0011-5139-3321-9311-7405-34",
		},
		"Dell": { // vendor structures before, strings padded with blanks, no end
			raw(structure(218, make([]byte, 70)), bios,
				structure(1, system(1, 2, 0, 3, 4, 5), "Dell Inc.", "PowerEdge R740", "7XK2PQ2  ",
					"SKU=NotProvided;ModelName=PowerEdge R740", "PowerEdge")),
			"7XK2PQ2",
		},
		"QEMU without a serial number": {
			raw(bios, structure(1, system(1, 2, 3, 0, 0, 0), "QEMU", "Standard PC (i440FX + PIIX, 1996)", "pc-i440fx-6.2"), end),
			"",
		},
		"Nutanix": {
			raw(bios, structure(1, system(1, 2, 3, 4, 0, 5), "Nutanix", "AHV", "2020-02-10",
				"1c1a3bb4-9a0f-4d26-8d3b-6cf7f4f0b1a2", "Virtual Machine"), end),
			"1c1a3bb4-9a0f-4d26-8d3b-6cf7f4f0b1a2",
		},
		"AWS": { // the same string for two fields
			raw(bios, structure(1, system(1, 2, 0, 3, 3, 0), "Amazon EC2", "m5.large", "ec2c1d2e-4f3a-9b8c-7d6e-5f4a3b2c1d0e"),
				end),
			"ec2c1d2e-4f3a-9b8c-7d6e-5f4a3b2c1d0e",
		},
		"a blank one":               {raw(structure(1, system(0, 0, 0, 1, 0, 0), "   "), end), ""},
		"of SMBIOS 2.0":             {raw(structure(1, []byte{1, 2, 0, 3}, "ACME", "PC", "S123"), end), "S123"},
		"without room for a number": {raw(structure(1, []byte{1, 2, 0}, "ACME", "PC"), end), ""},
		"Latin-1":                   {raw(structure(1, system(0, 0, 0, 1, 0, 0), "M\xfcnchen"), end), "München"},
		"UTF-8":                     {raw(structure(1, system(0, 0, 0, 1, 0, 0), "München"), end), "München"},
		"the first of two systems": {raw(structure(1, system(0, 0, 0, 1, 0, 0), "first"),
			structure(1, system(0, 0, 0, 1, 0, 0), "second"), end), "first"},
		"rubbish behind the table": {append(raw(structure(1, system(0, 0, 0, 1, 0, 0), "S"), end), 0xff, 0xff), "S"},
	}
}

func TestSystemSerial(t *testing.T) {
	for name, v := range vendors() {
		t.Run(name, func(t *testing.T) {
			if got, err := machine.SystemSerial(v.raw); err != nil || got != v.serial {
				t.Errorf("got %q, %v; want %q", got, err, v.serial)
			}
		})
	}
}

func TestNoSystem(t *testing.T) {
	for name, table := range map[string][]byte{
		"no structures":  raw(),
		"none of them":   raw(structure(0, make([]byte, 20), "x"), structure(3, nil)),
		"behind the end": raw(structure(127, nil), structure(1, system(0, 0, 0, 1, 0, 0), "S")),
	} {
		if serial, err := machine.SystemSerial(table); !errors.Is(err, machine.ErrNoSystem) {
			t.Errorf("%s: %q, %v", name, serial, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	whole := raw(structure(0, make([]byte, 20), "x"), structure(1, system(1, 2, 3, 4, 0, 0), "a", "b", "c", "d"))
	for name, table := range map[string][]byte{
		"nothing":             nil,
		"half a header":       whole[:7],
		"cut off":             whole[:len(whole)-1],
		"a short structure":   raw([]byte{1, 3, 0, 0, 0, 0}),
		"a long structure":    raw([]byte{1, 200, 0, 0, 0, 0}),
		"half a structure":    raw([]byte{1, 4}),
		"strings without end": raw([]byte{1, 8, 0, 0, 0, 0, 0, 1, 'x', 0}),
		"a string without":    raw([]byte{1, 8, 0, 0, 0, 0, 0, 1, 'x'}),
		"no such string":      raw(structure(1, system(0, 0, 0, 2, 0, 0), "one")),
	} {
		if serial, err := machine.SystemSerial(table); err == nil || errors.Is(err, machine.ErrNoSystem) {
			t.Errorf("%s: %q, %v", name, serial, err)
		}
	}
}

func FuzzSystemSerial(f *testing.F) {
	for _, v := range vendors() {
		f.Add(v.raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		serial, err := machine.SystemSerial(raw)
		if err != nil && serial != "" {
			t.Errorf("%q and the error %v", serial, err)
		}
		if !utf8.ValidString(serial) || strings.HasSuffix(serial, " ") || strings.Contains(serial, "\x00") {
			t.Errorf("the serial number is %q", serial)
		}
	})
}
