// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hive makes registry hives that are valid and empty: a root key without values
// and without other keys.
//
// A hive is a base block of 4096 bytes and then bins, whose sizes are multiples of 4096.
// A bin is a header and cells, which fill it. An empty hive needs two cells in one bin,
// the root key and its security descriptor; the rest is a free cell. All numbers are
// little-endian. Places within the bins count from the first bin's begin.
//
// https://github.com/msuhanov/regf/blob/master/Windows%20registry%20file%20format%20specification.md
package hive

import (
	"encoding/binary"
	"unicode/utf16"

	"github.com/csi-proxy/csi-proxy/tools/release/security"
)

// Size is the size of an empty hive, in bytes.
const Size = baseBlockSize + binSize

const (
	baseBlockSize = 4096
	binSize       = 4096
	binHeaderSize = 32

	none = 0xffffffff // in place of the place of something that isn't there
)

// Times are those of files without a time: 1970, as 100 ns since 1601.
const epoch = 116444736000000000

// Empty returns an empty hive. The name is that of the file and of the root key. It has
// at most 31 characters, which are ASCII.
//
// Windows writes such files as version 1.3 of the format.
func Empty(name string) []byte {
	hive := make([]byte, Size)

	base := fields{b: hive[:baseBlockSize]}
	base.text("regf")
	base.uint32(1) // sequence number of the last write when it began
	base.uint32(1) // and when it ended: the same, so nothing is to be recovered
	base.uint64(epoch)
	base.uint32(1)             // major version
	base.uint32(3)             // minor version
	base.uint32(0)             // a primary file, not a log
	base.uint32(1)             // direct memory load
	base.uint32(binHeaderSize) // the root key's place
	base.uint32(binSize)       // of all bins
	base.uint32(1)             // clustering factor
	for _, unit := range utf16.Encode([]rune(name)) {
		base.uint16(unit)
	}
	var sum uint32
	for i := 0; i < 508; i += 4 {
		sum ^= binary.LittleEndian.Uint32(hive[i:])
	}
	binary.LittleEndian.PutUint32(hive[508:], sum)

	bin := fields{b: hive[baseBlockSize:]}
	bin.text("hbin")
	bin.uint32(0) // its own place
	bin.uint32(binSize)
	bin.uint64(0) // reserved
	bin.uint64(epoch)
	bin.uint32(0) // spare

	// A cell begins with its size, negative if it is in use, and is aligned to 8 bytes.
	keySize := align(4 + 76 + len(name))
	descriptorAt := binHeaderSize + keySize
	bin.uint32(uint32(-keySize))
	bin.text("nk")
	bin.uint16(keyHiveEntry | keyNoDelete | keyASCIIName)
	bin.uint64(epoch)
	bin.uint32(0)    // spare
	bin.uint32(none) // parent
	bin.uint32(0)    // number of keys
	bin.uint32(0)    // number of volatile keys
	bin.uint32(none) // list of keys
	bin.uint32(none) // list of volatile keys
	bin.uint32(0)    // number of values
	bin.uint32(none) // list of values
	bin.uint32(uint32(descriptorAt))
	bin.uint32(none) // class
	bin.uint32(0)    // longest name of a key
	bin.uint32(0)    // longest class of a key
	bin.uint32(0)    // longest name of a value
	bin.uint32(0)    // longest value
	bin.uint32(0)    // unused
	bin.uint16(uint16(len(name)))
	bin.uint16(0) // length of the class
	bin.text(name)

	// The Administrators and SYSTEM may do everything with the key and those below.
	descriptor := security.Descriptor(security.Administrators, security.System,
		security.Entry{Account: security.Administrators, Rights: keyAllAccess, Inherit: security.ContainerInherit},
		security.Entry{Account: security.System, Rights: keyAllAccess, Inherit: security.ContainerInherit})
	descriptorSize := align(4 + 20 + len(descriptor))
	bin.at = descriptorAt
	bin.uint32(uint32(-descriptorSize))
	bin.text("sk")
	bin.uint16(0)                    // reserved
	bin.uint32(uint32(descriptorAt)) // next in the ring of security descriptors
	bin.uint32(uint32(descriptorAt)) // and previous
	bin.uint32(1)                    // keys that have it
	bin.uint32(uint32(len(descriptor)))
	bin.bytes(descriptor)

	bin.at = descriptorAt + descriptorSize
	bin.uint32(uint32(binSize - bin.at)) // positive: free
	return hive
}

// Flags of a key.
const (
	keyHiveEntry = 0x04 // the root
	keyNoDelete  = 0x08
	keyASCIIName = 0x20
)

// keyAllAccess are all rights to a registry key.
const keyAllAccess = 0xf003f

func align(n int) int { return (n + 7) &^ 7 }

// fields writes one field after the other.
type fields struct {
	b  []byte
	at int
}

func (f *fields) uint16(v uint16) { binary.LittleEndian.PutUint16(f.b[f.at:], v); f.at += 2 }
func (f *fields) uint32(v uint32) { binary.LittleEndian.PutUint32(f.b[f.at:], v); f.at += 4 }
func (f *fields) uint64(v uint64) { binary.LittleEndian.PutUint64(f.b[f.at:], v); f.at += 8 }
func (f *fields) bytes(v []byte)  { f.at += copy(f.b[f.at:], v) }
func (f *fields) text(v string)   { f.at += copy(f.b[f.at:], v) }
