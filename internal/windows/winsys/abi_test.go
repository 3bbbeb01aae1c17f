// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// What a C compiler made of the headers of Windows.
const abiDir = "../win/testdata/abi"

func TestABI(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	abi.Check(abitest.Constants{
		"CM_LOCATE_DEVNODE_NORMAL":              cmLocateDevNodeNormal,
		"CM_REENUMERATE_SYNCHRONOUS":            cmReenumerateSynchronous,
		"CM_NOTIFY_FILTER_TYPE_DEVICEINTERFACE": cmNotifyDeviceInterface,
		"MAX_DEVICE_ID_LEN":                     maxDeviceIDLen,
		"DEVPROP_TYPE_STRING":                   devpropTypeString,
		"THREAD_TERMINATE":                      threadTerminate,

		"ACCESS_DENIED_ACE_TYPE":   uint64(denyCreationACE[0]),
		"SE_DACL_PRESENT":          daclPresent,
		"SE_DACL_AUTO_INHERIT_REQ": daclAutoInheritReq,
		"SE_DACL_AUTO_INHERITED":   daclAutoInherited,
		"SE_DACL_PROTECTED":        daclProtected,
		"SE_SELF_RELATIVE":         selfRelative,
		"ERROR_INVALID_ACL":        uint64(errorInvalidACL),
	})
	var filter notifyFilter
	var tag fileTagInfo
	var basic fileBasicInfo
	abi.CheckSizes(map[string]uintptr{
		"CM_NOTIFY_FILTER":        unsafe.Sizeof(filter),
		"FILE_ATTRIBUTE_TAG_INFO": unsafe.Sizeof(tag),
		"FILE_BASIC_INFO":         unsafe.Sizeof(basic),

		"SECURITY_DESCRIPTOR_RELATIVE": descriptorSize,
		"ACL":                          aclHeader,
		"ACE_HEADER":                   aceHeader,
	})
	abi.CheckOffsets(map[string]uintptr{
		"CM_NOTIFY_FILTER.cbSize":                      unsafe.Offsetof(filter.size),
		"CM_NOTIFY_FILTER.Flags":                       unsafe.Offsetof(filter.flags),
		"CM_NOTIFY_FILTER.FilterType":                  unsafe.Offsetof(filter.filterType),
		"CM_NOTIFY_FILTER.Reserved":                    unsafe.Offsetof(filter.reserved),
		"CM_NOTIFY_FILTER.u.DeviceInterface.ClassGuid": unsafe.Offsetof(filter.classGUID),
		"FILE_ATTRIBUTE_TAG_INFO.FileAttributes":       unsafe.Offsetof(tag.attributes),
		"FILE_ATTRIBUTE_TAG_INFO.ReparseTag":           unsafe.Offsetof(tag.reparseTag),
		"FILE_BASIC_INFO.FileAttributes":               unsafe.Offsetof(basic.attributes),
		"FILE_FULL_DIR_INFO.NextEntryOffset":           entryNext,
		"FILE_FULL_DIR_INFO.CreationTime":              entryCreated,
		"FILE_FULL_DIR_INFO.FileAttributes":            entryAttributes,
		"FILE_FULL_DIR_INFO.FileNameLength":            entryNameLength,
		"FILE_FULL_DIR_INFO.EaSize":                    entryReparseTag,
		"FILE_FULL_DIR_INFO.FileName":                  entryName,
		"SECURITY_DESCRIPTOR_RELATIVE.Control":         descriptorControl,
		"SECURITY_DESCRIPTOR_RELATIVE.Dacl":            descriptorDACL,
		"ACL.AclSize":                                  aclSize,
		"ACL.AceCount":                                 aclCount,
		"ACE_HEADER.AceSize":                           aceSize,
	})
}

// directoryEntry returns a FILE_FULL_DIR_INFO, as long as its name needs.
func directoryEntry(abi *abitest.ABI, name string, attributes, eaSize uint32) []byte {
	b := make([]byte, abi.Offset("FILE_FULL_DIR_INFO.FileName"))
	le.PutUint32(b[abi.Offset("FILE_FULL_DIR_INFO.FileAttributes"):], attributes)
	le.PutUint32(b[abi.Offset("FILE_FULL_DIR_INFO.EaSize"):], eaSize)
	for _, u := range win.AppendUTF16(nil, name) {
		b = le.AppendUint16(b, u)
	}
	length := len(b) - abi.Offset("FILE_FULL_DIR_INFO.FileName")
	le.PutUint32(b[abi.Offset("FILE_FULL_DIR_INFO.FileNameLength"):], uint32(length))
	return b
}

// directory chains entries, each of which begins on 8 bytes.
func directory(abi *abitest.ABI, entries ...[]byte) []byte {
	var b []byte
	for i, e := range entries {
		if i < len(entries)-1 {
			e = append(e, make([]byte, -len(e)&7)...)
			le.PutUint32(e[abi.Offset("FILE_FULL_DIR_INFO.NextEntryOffset"):], uint32(len(e)))
		}
		b = append(b, e...)
	}
	return b
}

func TestDecodeDirectory(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	const dir, reparse = uint32(win.AttributeDirectory), uint32(win.AttributeDirectory | win.AttributeReparsePoint)
	b := directory(abi,
		directoryEntry(abi, ".", dir, 0),
		directoryEntry(abi, "..", dir, 0),
		directoryEntry(abi, "file with EAs", 0, 17),
		directoryEntry(abi, "mount", reparse, uint32(win.TagMountPoint)),
		directoryEntry(abi, "...", dir, 0),
		directoryEntry(abi, "名 \U0001f4be", dir, 0),
		directoryEntry(abi, "half a pair \xed\xa0\xbd", dir, 0),
	)
	second := int(le.Uint32(b)) // where the second entry begins
	third := second + int(le.Uint32(b[second:]))
	le.PutUint64(b[third+abi.Offset("FILE_FULL_DIR_INFO.CreationTime"):], 0x0102030405060708)
	le.PutUint64(b[third+abi.Offset("FILE_FULL_DIR_INFO.EndOfFile"):], 5<<30)
	want := []win.DirEntry{
		{Name: "file with EAs", Created: 0x0102030405060708, Size: 5 << 30},
		{Name: "mount", FileInfo: win.FileInfo{Attributes: win.AttributeDirectory | win.AttributeReparsePoint,
			ReparseTag: win.TagMountPoint}},
		{Name: "...", FileInfo: win.FileInfo{Attributes: win.AttributeDirectory}},
		{Name: "名 \U0001f4be", FileInfo: win.FileInfo{Attributes: win.AttributeDirectory}},
		{Name: "half a pair \xed\xa0\xbd", FileInfo: win.FileInfo{Attributes: win.AttributeDirectory}},
	}
	got, err := decodeDirectory(append(b, make([]byte, 100)...)) // Windows doesn't say how much it wrote
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	got, err = decodeDirectory(directory(abi, directoryEntry(abi, ".", dir, 0), directoryEntry(abi, "..", dir, 0)))
	if err != nil || len(got) != 0 {
		t.Errorf("of an empty directory: %v, %v", got, err)
	}
}

func TestDecodeDirectoryRefuses(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	// Misread from its eighth byte on, the first entry has a name of 2 bytes.
	good := directory(abi, directoryEntry(abi, "\x02", 0, 0), directoryEntry(abi, "b", 0, 0))
	put := func(field string, v uint32) []byte {
		b := slices.Clone(good)
		le.PutUint32(b[abi.Offset("FILE_FULL_DIR_INFO."+field):], v)
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":                     nil,
		"a cut off entry":             good[:20],
		"a cut off name":              good[:len(good)-1],
		"an endless name":             put("FileNameLength", 0xFFFFFFFE),
		"half a character":            put("FileNameLength", 1),
		"a next entry behind the end": put("NextEntryOffset", uint32(len(good)+8)),
		"a next entry at the end":     put("NextEntryOffset", uint32(len(good))),
		"a next entry within itself":  put("NextEntryOffset", 8),
	} {
		if got, err := decodeDirectory(b); err == nil {
			t.Errorf("%s gives %v", name, got)
		}
	}
}

func FuzzDecodeDirectory(f *testing.F) {
	abi := abitest.Load(f, abiDir)
	f.Add(directory(abi, directoryEntry(abi, "a", 0, 0),
		directoryEntry(abi, "b", uint32(win.AttributeReparsePoint), uint32(win.TagSymlink))))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := decodeDirectory(b)
		if err != nil && entries != nil {
			t.Errorf("%v beside %v", entries, err)
		}
	})
}
