// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package win is the seam between portable code and Windows: control codes, the structures that
// cross the boundary, and the interfaces for crossing. Error numbers are in package winerr, GUIDs
// and SIDs in package winid.
//
// The calls are documented Win32 calls. An implementation of the seam (internal/windows/winsys on
// Windows, internal/sim/winsim anywhere) only passes bytes on. Code above the seam builds and reads
// each structure with this package, and the exact bytes are tested and fuzzed on every system.
//
// Structures are read and written field by field at the offsets in the Windows SDK headers, little
// endian, on every architecture: amd64 and arm64 Windows have the same layouts. Every decoder
// checks all sizes and offsets against the length of its input.
package win
