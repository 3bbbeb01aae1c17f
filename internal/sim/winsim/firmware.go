// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
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
			return fmt.Errorf("set BIOS serial number %q: %w", serial, winerr.ErrorInvalidParameter)
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
	bios := "\x01\x02" + // numbers of texts: vendor, version
		"\x00\xe0" + // segment of its start
		"\x03\x01" + // the text of its date; 128 KiB of ROM
		"\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00" + // its characteristics aren't told
		"\x04\x06\xff\xff" // release 4.6; no embedded controller
	machine := []byte("\x01\x02\x03\x04" + // texts: manufacturer, product, version, serial number
		strings.Repeat("\xff", 16) + // the UUID isn't set
		"\x06\x00\x00") // woken up by the power switch
	texts := []string{"VMware, Inc.", "VMware7,1", "None", serial}
	if serial == "" {
		machine[3], texts = 0, texts[:3]
	}
	table := slices.Concat(
		smbiosStructure(0, 0, []byte(bios), "Phoenix Technologies LTD", "6.00", "11/12/2020"),
		smbiosStructure(1, 1, machine, texts...), smbiosStructure(127, 2, nil))
	header := []byte{0, 2, 7, 0} // not by the 2.0 calling method, SMBIOS 2.7, DMI revision
	return append(binary.LittleEndian.AppendUint32(header, uint32(len(table))), table...)
}

// smbiosStructure is one structure of the table: its header, what has places of its own, and texts,
// which are counted from 1.
func smbiosStructure(kind, handle byte, formatted []byte, texts ...string) []byte {
	const headerSize = 4
	b := append([]byte{kind, byte(headerSize + len(formatted)), handle, 0}, formatted...)
	for _, text := range texts {
		b = append(append(b, text...), 0)
	}
	if len(texts) == 0 {
		b = append(b, 0)
	}
	return append(b, 0)
}
