// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"encoding/binary"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Source: cfgmgr32.h and devpropdef.h of the Windows SDK.
const (
	volumeNameGUID = 1 // VOLUME_NAME_GUID of GetFinalPathNameByHandleW

	cmLocateDevNodeNormal    = 0
	cmReenumerateSynchronous = 1
	cmNotifyDeviceInterface  = 0 // CM_NOTIFY_FILTER_TYPE_DEVICEINTERFACE
	maxDeviceIDLen           = 200
	devpropTypeString        = 0x12
)

// threadTerminate is THREAD_TERMINATE, the right required by CancelSynchronousIo.
const threadTerminate = 0x1

// notifyFilter is CM_NOTIFY_FILTER for a class of device interfaces: 416 bytes, ending with a
// union.
//
// Source: https://learn.microsoft.com/windows/win32/api/cfgmgr32/ns-cfgmgr32-cm_notify_filter
type notifyFilter struct {
	size       uint32
	flags      uint32
	filterType uint32
	reserved   uint32
	classGUID  winid.GUID
	_          [384]byte // the union's largest member is WCHAR[MAX_DEVICE_ID_LEN]
}

// fileTagInfo is FILE_ATTRIBUTE_TAG_INFO.
//
// Source: https://learn.microsoft.com/windows/win32/api/winbase/ns-winbase-file_attribute_tag_info
type fileTagInfo struct {
	attributes uint32
	reparseTag uint32
}

// fileBasicInfo is FILE_BASIC_INFO. Zero times and attributes stay unchanged.
//
// Source: https://learn.microsoft.com/windows/win32/api/winbase/ns-winbase-file_basic_info
type fileBasicInfo struct {
	_          [4]int64 // CreationTime, LastAccessTime, LastWriteTime, ChangeTime
	attributes uint32
	_          uint32
}

// fileProcessIDsUsingFile is FileProcessIdsUsingFileInformation.
const fileProcessIDsUsingFile = 47

// Offset and size in bytes of the ids in FILE_PROCESS_IDS_USING_FILE_INFORMATION, on 64-bit
// Windows: they are ULONG_PTRs.
const (
	processIDList = 8
	processIDSize = 8
)

// decodeProcessIDs reads a FILE_PROCESS_IDS_USING_FILE_INFORMATION.
//
// Source:
// https://learn.microsoft.com/windows-hardware/drivers/ddi/ntifs/ns-ntifs-_file_process_ids_using_file_information
func decodeProcessIDs(b []byte) ([]win.ProcessID, error) {
	const what = "FILE_PROCESS_IDS_USING_FILE_INFORMATION"
	if len(b) < processIDList {
		return nil, fmt.Errorf("%s: %d bytes", what, len(b))
	}
	count := int64(binary.LittleEndian.Uint32(b))
	if count > int64(len(b)-processIDList)/processIDSize {
		return nil, fmt.Errorf("%s: %d ids don't fit into %d bytes", what, count, len(b))
	}
	ids := make([]win.ProcessID, count)
	for i := range ids {
		ids[i] = win.ProcessID(binary.LittleEndian.Uint64(b[processIDList+processIDSize*i:]))
	}
	return ids, nil
}
