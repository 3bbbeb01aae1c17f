// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"encoding/binary"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

var le = binary.LittleEndian

// Offsets of FILE_FULL_DIR_INFO, an entry of a directory.
//
// Source: https://learn.microsoft.com/windows/win32/api/winbase/ns-winbase-file_full_dir_info
const (
	entryNext       = 0  // ULONG NextEntryOffset, 0 in the last entry
	entryCreated    = 8  // LARGE_INTEGER CreationTime
	entrySize       = 40 // LARGE_INTEGER EndOfFile
	entryAttributes = 56 // ULONG FileAttributes
	entryNameLength = 60 // ULONG FileNameLength, in bytes
	entryReparseTag = 64 // ULONG EaSize, which is the tag of a reparse point
	entryName       = 68 // WCHAR FileName[]
)

// decodeDirectory reads the output of GetFileInformationByHandleEx(FileFullDirectoryInfo), without
// "." and "..".
func decodeDirectory(b []byte) ([]win.DirEntry, error) {
	var entries []win.DirEntry
	for {
		if len(b) < entryName {
			return nil, fmt.Errorf("FILE_FULL_DIR_INFO: %d bytes, at least %d are needed", len(b), entryName)
		}
		length := le.Uint32(b[entryNameLength:])
		if uint64(length) > uint64(len(b)-entryName) || length%2 != 0 {
			return nil, fmt.Errorf("FILE_FULL_DIR_INFO: a name of %d bytes doesn't fit into %d", length, len(b)-entryName)
		}
		e := win.DirEntry{
			Name:     win.StringFromUTF16(decodeUnits(b[entryName : entryName+length])),
			FileInfo: fileInfo(le.Uint32(b[entryAttributes:]), le.Uint32(b[entryReparseTag:])),
			Created:  win.FileTime(le.Uint64(b[entryCreated:])),
			Size:     int64(le.Uint64(b[entrySize:])),
		}
		if e.Name != "." && e.Name != ".." {
			entries = append(entries, e)
		}
		next := le.Uint32(b[entryNext:])
		if next == 0 {
			return entries, nil
		}
		if uint64(next) > uint64(len(b)) || next < entryName {
			return nil, fmt.Errorf("FILE_FULL_DIR_INFO: bad next offset %d in %d bytes", next, len(b))
		}
		b = b[next:]
	}
}

// decodeUnits reads UTF-16 units from bytes.
func decodeUnits(b []byte) []uint16 {
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = le.Uint16(b[2*i:])
	}
	return u
}

// fileInfo decodes FILE_ATTRIBUTE_TAG_INFO. The tag is defined only for reparse points.
func fileInfo(attributes, tag uint32) win.FileInfo {
	i := win.FileInfo{Attributes: win.FileAttributes(attributes)}
	if i.IsReparsePoint() {
		i.ReparseTag = win.ReparseTag(tag)
	}
	return i
}
