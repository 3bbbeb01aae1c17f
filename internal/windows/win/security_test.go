// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"bytes"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

func TestSID(t *testing.T) {
	for text, want := range map[string]struct {
		sid   winid.SID
		bytes []byte
	}{
		"S-1-5-32-545":       {winid.SIDUsers, []byte{1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x21, 2, 0, 0}},
		"s-1-5-93-2-2":       {winid.SIDContainerUser, []byte{1, 3, 0, 0, 0, 0, 0, 5, 93, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0}},
		"S-1-01-00":          {winid.SIDEveryone, []byte{1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}},
		"S-1-0x5-18":         {winid.SIDSystem, []byte{1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0}},
		"S-1-5-4294967295":   {"S-1-5-4294967295", []byte{1, 1, 0, 0, 0, 0, 0, 5, 255, 255, 255, 255}},
		"S-1-0x1234567890-1": {"S-1-0x001234567890-1", []byte{1, 1, 0, 0x12, 0x34, 0x56, 0x78, 0x90, 1, 0, 0, 0}},
	} {
		sid, err := winid.ParseSID(text)
		if err != nil || sid != want.sid || !bytes.Equal(sid.Encode(), want.bytes) {
			t.Errorf("%s is %s, % x, %v", text, sid, sid.Encode(), err)
		}
		if back, ok := winid.DecodeSID(append(want.bytes, 1, 2, 3)); !ok || back != want.sid {
			t.Errorf("% x is %s, %t", want.bytes, back, ok)
		}
	}
	for _, text := range []string{
		"", "Users", "S-1", "S-1-5", "S-1-5-", "S-2-5-18", "S-1-5-4294967296", "S-1-5--1", "S-1-5-+18", "S-1-+5-18", "S-1-5-0x12",
		"S-1-281474976710656-1", "S-1-5-18 ", "S-1-5-1-2-3-4-5-6-7-8-9-10-11-12-13-14-15-16",
	} {
		if sid, err := winid.ParseSID(text); err == nil {
			t.Errorf("%q is %s", text, sid)
		}
	}
	for name, b := range map[string][]byte{
		"empty": nil, "of another revision": {2, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0}, "cut off": {1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0},
		"without a number": {1, 0, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0}, "of too many": append([]byte{1, 16, 0, 0, 0, 0, 0, 5}, make([]byte, 64)...),
	} {
		if sid, ok := winid.DecodeSID(b); ok {
			t.Errorf("one that is %s is %s", name, sid)
		}
	}
}

func FuzzDecodeSID(f *testing.F) {
	f.Add(winid.SIDUsers.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		sid, ok := winid.DecodeSID(b)
		if !ok {
			return
		}
		if again, err := winid.ParseSID(string(sid)); err != nil || again != sid || !bytes.HasPrefix(b, sid.Encode()) {
			t.Errorf("% x is %s, and that is %s, % x, %v", b, sid, again, sid.Encode(), err)
		}
	})
}
