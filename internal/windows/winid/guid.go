// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winid has the ids of Windows: GUIDs, and the SIDs of accounts.
package winid

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
