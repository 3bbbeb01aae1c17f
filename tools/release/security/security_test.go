// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package security

import (
	"encoding/hex"
	"testing"
)

// The bytes are those of [MS-DTYP] for O:BAG:SYD:(A;OICI;FA;;;SY)(A;CI;0x1200a9;;;BU).
func TestDescriptor(t *testing.T) {
	got := Descriptor(Administrators, System,
		Entry{System, 0x1f01ff, ObjectInherit | ContainerInherit},
		Entry{Users, 0x1200a9, ContainerInherit})
	want := "01000480" + "48000000" + "58000000" + "00000000" + "14000000" + // header
		"02003400" + "02000000" + // access list: size, entries
		"00031400" + "ff011f00" + "010100000000000512000000" +
		"00021800" + "a9001200" + "01020000000000052000000021020000" +
		"01020000000000052000000020020000" + // owner
		"010100000000000512000000" // group
	if hex.EncodeToString(got) != want {
		t.Errorf("it is  %x\nwant   %s", got, want)
	}
}
