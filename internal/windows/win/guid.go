// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// GUID is a GUID as Windows lays it out in memory: the first three fields little
// endian, the last eight bytes in order.
type GUID [16]byte

// Device interface classes.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/install/guid-devinterface-disk
// and its neighbours.
var (
	InterfaceClassDisk        = mustGUID("53f56307-b6bf-11d0-94f2-00a0c91efb8b")
	InterfaceClassVolume      = mustGUID("53f5630d-b6bf-11d0-94f2-00a0c91efb8b")
	InterfaceClassStoragePort = mustGUID("2accfe60-c130-11d2-b082-00a0c91efb8b")
)

// GPT partition types.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-partition_information_gpt
var (
	PartitionTypeBasicData         = mustGUID("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7")
	PartitionTypeMicrosoftReserved = mustGUID("e3c9e316-0b5c-4db8-817d-f92df00215ae")
	PartitionTypeEFISystem         = mustGUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
)

// NewGUID returns a random (version 4) GUID.
func NewGUID() GUID {
	var g GUID
	rand.Read(g[:]) // never fails: crypto/rand ends the process instead
	g[7] = g[7]&0x0f | 0x40
	g[8] = g[8]&0x3f | 0x80
	return g
}

// IsZero reports whether g is the null GUID.
func (g GUID) IsZero() bool { return g == GUID{} }

// String returns the GUID in lower case without braces.
func (g GUID) String() string {
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x",
		binary.LittleEndian.Uint32(g[0:]), binary.LittleEndian.Uint16(g[4:]),
		binary.LittleEndian.Uint16(g[6:]), g[8:10], g[10:])
}

// ParseGUID reads the form that String writes, in either case.
func ParseGUID(s string) (GUID, bool) {
	var g GUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return g, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(g) {
		return g, false
	}
	binary.LittleEndian.PutUint32(g[0:], binary.BigEndian.Uint32(b[0:]))
	binary.LittleEndian.PutUint16(g[4:], binary.BigEndian.Uint16(b[4:]))
	binary.LittleEndian.PutUint16(g[6:], binary.BigEndian.Uint16(b[6:]))
	copy(g[8:], b[8:])
	return g, true
}

func mustGUID(s string) GUID {
	g, ok := ParseGUID(s)
	if !ok {
		panic("win: bad GUID " + s)
	}
	return g
}
