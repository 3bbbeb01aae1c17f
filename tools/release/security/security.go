// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package security makes Windows' security descriptors in their binary form.
//
// https://learn.microsoft.com/en-us/openspecs/windows_protocols/ms-dtyp/cca27429-5689-4a16-b2b4-9325d93e4ba2
package security

import "encoding/binary"

// SID is an account of Windows in its binary form.
type SID []byte

// Accounts that each Windows has.
var (
	System         = newSID(18)      // S-1-5-18
	Administrators = newSID(32, 544) // S-1-5-32-544
	Users          = newSID(32, 545) // S-1-5-32-545
)

// newSID returns S-1-5-x-y.
func newSID(authorities ...uint32) SID {
	s := SID{1, byte(len(authorities)), 0, 0, 0, 0, 0, 5}
	for _, a := range authorities {
		s = little.AppendUint32(s, a)
	}
	return s
}

var little = binary.LittleEndian

// Entry gives an account rights to an object.
type Entry struct {
	Account SID
	Rights  uint32 // an access mask
	Inherit byte   // what has them too: ObjectInherit, ContainerInherit
}

// What is below an object and has its rights.
const (
	ObjectInherit    = 1 // files
	ContainerInherit = 2 // directories, registry keys
)

// Descriptor returns the self-relative security descriptor with an owner, a group and an
// access list.
func Descriptor(owner, group SID, entries ...Entry) []byte {
	const headerSize, listHeaderSize = 20, 8
	var list []byte
	for _, e := range entries {
		list = append(list, 0, e.Inherit) // 0 is ACCESS_ALLOWED
		list = little.AppendUint16(list, uint16(8+len(e.Account)))
		list = little.AppendUint32(list, e.Rights)
		list = append(list, e.Account...)
	}
	ownerAt := headerSize + listHeaderSize + len(list)

	d := []byte{1, 0}                  // revision
	d = little.AppendUint16(d, 0x8004) // self-relative, with an access list
	d = little.AppendUint32(d, uint32(ownerAt))
	d = little.AppendUint32(d, uint32(ownerAt+len(owner))) // the group's place
	d = little.AppendUint32(d, 0)                          // no audit list
	d = little.AppendUint32(d, headerSize)                 // the access list's place
	d = append(d, 2, 0)                                    // its revision
	d = little.AppendUint16(d, uint16(listHeaderSize+len(list)))
	d = little.AppendUint32(d, uint32(len(entries)))
	d = append(d, list...)
	d = append(d, owner...)
	return append(d, group...)
}
