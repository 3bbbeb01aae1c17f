// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestGrown(t *testing.T) {
	type answer struct {
		needed uint32
		err    error
	}
	for name, tt := range map[string]struct {
		answers []answer // the last one is repeated
		sizes   []int    // of the buffers asked for
		err     error
	}{
		"large enough":     {[]answer{{}}, []int{16}, nil},
		"a byte too small": {[]answer{{17, winerr.ErrorInsufficientBuffer}, {}}, []int{16, 32}, nil},
		"much too small":   {[]answer{{1000, winerr.ErrorMoreData}, {}}, []int{16, 1000}, nil},
		"ever too small": {[]answer{{0, winerr.ErrorMoreData}},
			[]int{16, 32, 64, 128, 256, 512, 1024, 2048}, winerr.ErrorInsufficientBuffer},
		"another error": {[]answer{{100, winerr.ErrorInsufficientBuffer}, {100, winerr.ErrorAccessDenied}},
			[]int{16, 100}, winerr.ErrorAccessDenied},
	} {
		t.Run(name, func(t *testing.T) {
			var sizes []int
			buf, err := grown(16, func(buf []byte) (uint32, error) {
				if uintptr(unsafe.Pointer(&buf[0]))%8 != 0 {
					t.Errorf("the buffer of %d bytes isn't aligned", len(buf))
				}
				buf[len(buf)-1] = byte(len(sizes))
				a := tt.answers[min(len(sizes), len(tt.answers)-1)]
				sizes = append(sizes, len(buf))
				return a.needed, a.err
			})
			if diff := cmp.Diff(tt.sizes, sizes); err != tt.err || diff != "" {
				t.Errorf("error %v, want %v; sizes (-want +got):\n%s", err, tt.err, diff)
			}
			if err == nil && (len(buf) != sizes[len(sizes)-1] || int(buf[len(buf)-1]) != len(sizes)-1) {
				t.Error("it isn't the last buffer that is returned")
			}
		})
	}
}

func TestMultiString(t *testing.T) {
	for text, want := range map[string][]string{
		"":                          nil,
		"\x00":                      nil,
		"\x00\x00":                  nil,
		"C:\\\x00\x00rubbish":       {`C:\`},
		"C:\\\x00C:\\dir\\\x00\x00": {`C:\`, `C:\dir\`},
		"C:\\":                      {`C:\`}, // cut off
	} {
		if got := multiString(win.AppendUTF16(nil, text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestDecodeProcessIDs(t *testing.T) {
	b := []byte{2, 0, 0, 0, 9, 9, 9, 9, 4, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x27, 0, 0, 0, 0, 0, 0}
	got, err := decodeProcessIDs(append(b, 7, 7)) // Windows doesn't say how much it wrote
	if want := []win.ProcessID{4, 10000}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for name, bad := range map[string][]byte{"nothing": nil, "no list": b[:7], "cut off": b[:23],
		"many": {255, 255, 255, 255, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}} {
		if got, err := decodeProcessIDs(bad); err == nil {
			t.Errorf("%s gives %v", name, got)
		}
	}
}
