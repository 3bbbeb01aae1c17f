// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"slices"
	"testing"
)

func TestNVMeSerial(t *testing.T) {
	eui := [8]byte{0x00, 0x25, 0x38, 0x5B, 0x71, 0xB0, 0x16, 0xAA}
	nguid := [16]byte{0xE8, 0x23, 0x8F, 0xA6, 0xBF, 0x53, 0, 1, 0, 0x1B, 0x44, 0x8B, 0x4A, 0x1A, 0x1B, 0x2B}
	for want, n := range map[string]NVMeNamespace{
		"vol0abc_0000001F.":                        {},
		"0025_385B_71B0_16AA.":                     {EUI64: eui},
		"E823_8FA6_BF53_0001_001B_448B_4A1A_1B2B.": {EUI64: eui, NGUID: nguid},
	} {
		if got := NVMeSerial("vol0abc", 31, n); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

func TestDecodeNVMeRefuses(t *testing.T) {
	put := func(b []byte, offset int, v uint32) []byte {
		b = slices.Clone(b)
		le.PutUint32(b[offset:], v)
		return b
	}
	answer := EncodeNVMeNamespace(1, NVMeNamespace{})
	for name, b := range map[string][]byte{
		"nothing": nil, "no data": answer[:48], "half of the data": answer[:NVMeNamespaceSize/2],
		"another protocol": put(answer, 8, 4), "other data": put(answer, 12, 2),
		"an offset behind the end": put(answer, 24, 1<<31), "an offset before the data": put(answer, 24, 8),
		"a short answer": put(answer, 28, 100), "an endless answer": put(answer, 28, 0xFFFFFFFF),
	} {
		if got, err := DecodeNVMeNamespace(b); err == nil {
			t.Errorf("answer: %s gives %v", name, got)
		}
	}
	query := EncodeNVMeNamespaceQuery(1)
	for name, b := range map[string][]byte{
		"nothing": nil, "cut off": query[:47], "another protocol": put(query, 8, 4), "other data": put(query, 12, 2),
		"the controller": put(query, 16, 1), "an offset before the data": put(query, 24, 8), "no room": put(query, 28, 100),
	} {
		if got, err := DecodeNVMeNamespaceQuery(b); err == nil {
			t.Errorf("query: %s gives %v", name, got)
		}
	}
	if _, err := DecodeVolumeIsDirty(nil); err == nil {
		t.Error("no answer isn't dirty")
	}
}

func FuzzDecodeNVMeNamespace(f *testing.F) {
	f.Add(EncodeNVMeNamespace(1, NVMeNamespace{EUI64: [8]byte{1}}))
	f.Add(EncodeNVMeNamespaceQuery(1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := DecodeNVMeNamespace(b); err != nil && n != (NVMeNamespace{}) {
			t.Errorf("%v beside %v", n, err)
		}
		if id, err := DecodeNVMeNamespaceQuery(b); err != nil && id != 0 {
			t.Errorf("%d beside %v", id, err)
		}
	})
}
