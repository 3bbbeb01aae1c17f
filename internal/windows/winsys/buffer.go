// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"slices"
	"unsafe"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// aligned returns n zero bytes, aligned for every structure.
func aligned(n int) []byte {
	if n == 0 {
		return nil
	}
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

// growAttempts limits the attempts with larger buffers. The result may grow between two calls, but
// not forever.
const growAttempts = 8

// grown calls f with buffers of increasing size, first with one of size bytes, and returns the
// buffer that was large enough. For a small buffer, f returns [winerr.ErrorInsufficientBuffer] or
// [winerr.ErrorMoreData], and the required number of bytes. Buffers are aligned for every
// structure.
func grown(size int, f func(buf []byte) (needed uint32, err error)) ([]byte, error) {
	for range growAttempts {
		buf := aligned(size)
		switch needed, err := f(buf); err {
		case nil:
			return buf, nil
		case winerr.ErrorInsufficientBuffer, winerr.ErrorMoreData:
			size = max(int(needed), 2*size) // even if Windows doesn't say how many
		default:
			return nil, err
		}
	}
	return nil, winerr.ErrorInsufficientBuffer
}

// multiString reads strings that each end with a NUL, up to an empty one.
func multiString(units []uint16) []string {
	var texts []string
	for len(units) > 0 && units[0] != 0 {
		end := slices.Index(units, 0)
		if end < 0 {
			end = len(units)
		}
		texts = append(texts, win.StringFromUTF16(units[:end]))
		units = units[min(end+1, len(units)):]
	}
	return texts
}
