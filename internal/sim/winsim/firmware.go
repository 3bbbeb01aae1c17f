// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// defaultBIOSSerial is the serial number of a new node, in the form that virtual
// machines on vSphere have.
const defaultBIOSSerial = "VMware-56 4d 8b 1e 3a 6c 2f 90-b1 d4 7e 05 9a c3 68 f2"

// SetBIOSSerial changes the serial number in the firmware: up to 64 printable ASCII
// characters, or "" for a firmware that has none.
func (s *System) SetBIOSSerial(serial string) error {
	const maxLen = 64 // of a string before SMBIOS 3.0
	return s.control(func() error {
		unprintable := func(r rune) bool { return r < ' ' || r > '~' }
		if len(serial) > maxLen || strings.ContainsFunc(serial, unprintable) {
			return fmt.Errorf("set BIOS serial number %q: %w", serial, win.ErrorInvalidParameter)
		}
		s.biosSerial, s.changed = serial, true
		return nil
	})
}

// FirmwareTable is GetSystemFirmwareTable('RSMB'): RawSMBIOSData.
func (s *System) FirmwareTable(ctx context.Context) ([]byte, error) {
	return ask(ctx, s, Call{win.CallFirmwareTable, "RSMB"}, func() ([]byte, error) { return rawSMBIOS(s.biosSerial), nil })
}

// rawSMBIOS encodes the tables of BIOS, system, and end.
//
// Sources: DMTF DSP0134 2.7, sections 6.1, 7.1, 7.2 and 7.45;
// https://learn.microsoft.com/windows/win32/api/sysinfoapi/nf-sysinfoapi-getsystemfirmwaretable
func rawSMBIOS(serial string) []byte {
	bios := smbiosStructure{kind: 0, handle: 0, formatted: make([]byte, 0x18-smbiosHeaderSize)}
	f := bios.formatted
	f[0] = bios.text("Phoenix Technologies LTD")
	f[1] = bios.text("6.00")
	binary.LittleEndian.PutUint16(f[2:], 0xe000) // segment of its start
	f[4] = bios.text("11/12/2020")
	f[5] = 1                                      // 128 KiB of ROM
	binary.LittleEndian.PutUint64(f[6:], 1<<3)    // its characteristics aren't told
	f[16], f[17], f[18], f[19] = 4, 6, 0xff, 0xff // release 4.6; no embedded controller

	machine := smbiosStructure{kind: 1, handle: 1, formatted: make([]byte, 0x1b-smbiosHeaderSize)}
	f = machine.formatted
	f[0] = machine.text("VMware, Inc.")
	f[1] = machine.text("VMware7,1")
	f[2] = machine.text("None")
	f[3] = machine.text(serial)
	copy(f[4:20], bytes.Repeat([]byte{0xff}, 16)) // the UUID isn't set
	f[20] = 6                                     // woken up by the power switch

	end := smbiosStructure{kind: 127, handle: 2}
	table := slices.Concat(bios.encode(), machine.encode(), end.encode())
	header := []byte{0, 2, 7, 0} // not by the 2.0 calling method, SMBIOS 2.7, DMI revision
	return append(binary.LittleEndian.AppendUint32(header, uint32(len(table))), table...)
}

const smbiosHeaderSize = 4

// smbiosStructure is one structure of the table.
type smbiosStructure struct {
	kind      byte
	handle    uint16
	formatted []byte // behind the header
	strings   []string
}

// text adds a string and returns its number, 0 for none.
func (t *smbiosStructure) text(s string) byte {
	if s == "" {
		return 0
	}
	t.strings = append(t.strings, s)
	return byte(len(t.strings))
}

func (t *smbiosStructure) encode() []byte {
	b := []byte{t.kind, byte(smbiosHeaderSize + len(t.formatted)), byte(t.handle), byte(t.handle >> 8)}
	b = append(b, t.formatted...)
	for _, s := range t.strings {
		b = append(append(b, s...), 0)
	}
	if len(t.strings) == 0 {
		b = append(b, 0)
	}
	return append(b, 0)
}
