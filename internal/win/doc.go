// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package win is the seam between portable code and Windows: error numbers,
// GUIDs, control codes, the structures that cross the boundary and the two
// interfaces through which they do.
//
// The level is the documented Win32 call. Whoever implements the seam
// (internal/winsys on Windows, internal/winsim anywhere) only carries bytes;
// whoever uses it builds and reads each structure with this package. So the
// exact bytes are tested and fuzzed on every system.
//
// Structures are read and written field by field at the offsets that the
// Windows SDK headers give, little endian, on every architecture: amd64 and
// arm64 Windows have the same layouts. Every decoder checks all sizes and
// offsets against the bytes it was given.
package win
