// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrNoSystem is the error of tables without information about the system.
var ErrNoSystem = errors.New("the SMBIOS tables have no system information")

const (
	rawHeader       = 8 // of RawSMBIOSData
	structureHeader = 4 // type, length, handle

	typeSystem     = 1
	typeEndOfTable = 127

	// serialNumber is the offset, in the system information, of the number of the serial number's
	// string.
	serialNumber = 7
)

// SystemSerial returns the serial number in RawSMBIOSData, the result of GetSystemFirmwareTable for
// 'RSMB'. Blanks at the end are removed. The serial number is any text from the firmware's maker,
// even "" or "To be filled by O.E.M.". If the system information is missing, the error is
// ErrNoSystem. Invalid tables give another error.
//
//	struct RawSMBIOSData {
//	  BYTE  Used20CallingMethod;
//	  BYTE  SMBIOSMajorVersion;
//	  BYTE  SMBIOSMinorVersion;
//	  BYTE  DmiRevision;
//	  DWORD Length;
//	  BYTE  SMBIOSTableData[];
//	};
//
// Source: https://learn.microsoft.com/windows/win32/api/sysinfoapi/nf-sysinfoapi-getsystemfirmwaretable,
// DSP0134 (SMBIOS Reference Specification), 6.1 and 7.2
func SystemSerial(raw []byte) (string, error) {
	if len(raw) < rawHeader {
		return "", fmt.Errorf("the SMBIOS tables of %d bytes have no header", len(raw))
	}
	length := binary.LittleEndian.Uint32(raw[4:])
	table := raw[rawHeader:]
	if uint64(length) > uint64(len(table)) {
		return "", fmt.Errorf("the SMBIOS tables are cut off: %d of %d bytes", len(table), length)
	}
	table = table[:length]
	for len(table) > 0 {
		s, rest, err := next(table)
		if err != nil {
			return "", fmt.Errorf("the SMBIOS tables at byte %d: %w", int(length)-len(table), err)
		}
		switch s.formatted[0] {
		case typeSystem:
			return s.serial()
		case typeEndOfTable:
			return "", ErrNoSystem
		}
		table = rest
	}
	return "", ErrNoSystem
}

// structure is one structure of the tables.
type structure struct {
	formatted []byte   // the header and the fields
	strings   [][]byte // the fields refer to the strings by number, from 1 on
}

// next takes the first structure off the table.
func next(table []byte) (s structure, rest []byte, err error) {
	if len(table) < structureHeader {
		return s, nil, errors.New("the table is too short for a structure")
	}
	length := int(table[1])
	if length < structureHeader || length > len(table) {
		return s, nil, fmt.Errorf("a structure of type %d has %d bytes", table[0], length)
	}
	s.formatted, rest = table[:length], table[length:]
	if none, ok := bytes.CutPrefix(rest, []byte{0, 0}); ok {
		return s, none, nil
	}
	for {
		text, after, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			return s, nil, fmt.Errorf("the strings of a structure of type %d don't end", table[0])
		}
		rest = after
		if len(text) == 0 {
			return s, rest, nil
		}
		s.strings = append(s.strings, text)
	}
}

// serial returns the serial number in the system information.
func (s structure) serial() (string, error) {
	if len(s.formatted) <= serialNumber {
		return "", nil // before SMBIOS 2.0
	}
	number := int(s.formatted[serialNumber])
	if number == 0 {
		return "", nil // no serial number
	}
	if number > len(s.strings) {
		return "", fmt.Errorf("the serial number is string %d of %d in the SMBIOS system information", number, len(s.strings))
	}
	return strings.TrimRight(text(s.strings[number-1]), " "), nil
}

// text decodes a string. Since SMBIOS 3.0 strings are UTF-8. Before, the meaning of bytes above 127
// was undefined. Invalid UTF-8 is read as Latin-1.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}
