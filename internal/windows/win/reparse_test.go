// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"testing"
)

func TestReparsePoints(t *testing.T) {
	const volume = `\\?\Volume{ebd0a0a2-b9e5-4433-87c0-68b6b72699c7}\`
	for _, c := range []struct {
		name       string
		point      ReparsePoint
		substitute string
		target     string
		volume     string
	}{
		{"absolute symlink", NewSymlink(`C:\var\lib`), `\??\C:\var\lib`, `C:\var\lib`, ""},
		{"relative symlink", NewSymlink(`..\x`), `..\x`, `..\x`, ""},
		{"UNC symlink", NewSymlink(`\\server\share\`), `\??\UNC\server\share\`, `\\server\share\`, ""},
		{"long symlink", NewSymlink(`\\?\C:\x`), `\??\C:\x`, `C:\x`, ""},
		{"junction", NewJunction(`C:\x`), `\??\C:\x`, `C:\x`, ""},
		{"mount point", NewMountPoint(volume), `\??\Volume{ebd0a0a2-b9e5-4433-87c0-68b6b72699c7}\`, volume, volume},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := DecodeReparsePoint(c.point.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if got != c.point {
				t.Errorf("%+v became %+v", c.point, got)
			}
			if got.SubstituteName != c.substitute {
				t.Errorf("substitute name %q, want %q", got.SubstituteName, c.substitute)
			}
			if got.Target() != c.target {
				t.Errorf("target %q, want %q", got.Target(), c.target)
			}
			if v, ok := got.Volume(); v != c.volume || ok != (c.volume != "") {
				t.Errorf("volume %q, %v, want %q", v, ok, c.volume)
			}
		})
	}
}

func TestUnknownReparseTagIsKept(t *testing.T) {
	got, err := DecodeReparsePoint([]byte{0x17, 0, 0, 0x80, 4, 0, 0, 0, 1, 2, 3, 4})
	if err != nil || got != (ReparsePoint{Tag: 0x80000017}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzDecodeReparsePoint(f *testing.F) {
	f.Add(NewSymlink(`C:\x`).Encode())
	f.Add(NewMountPoint(`\\?\Volume{ebd0a0a2-b9e5-4433-87c0-68b6b72699c7}\`).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeReparsePoint(b)
		if err != nil || r.Tag != TagSymlink && r.Tag != TagMountPoint {
			return
		}
		got, err := DecodeReparsePoint(r.Encode())
		if err != nil || got != r {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
	})
}
