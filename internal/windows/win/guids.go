// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import "github.com/csi-proxy/csi-proxy/internal/windows/winid"

// Device interface classes.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/install/guid-devinterface-disk
// and its neighbours.
var (
	InterfaceClassDisk        = mustGUID("53f56307-b6bf-11d0-94f2-00a0c91efb8b")
	InterfaceClassVolume      = mustGUID("53f5630d-b6bf-11d0-94f2-00a0c91efb8b")
	InterfaceClassStoragePort = mustGUID("2accfe60-c130-11d2-b082-00a0c91efb8b")
)

// GPT partition types.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-partition_information_gpt
var (
	PartitionTypeBasicData         = mustGUID("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7")
	PartitionTypeMicrosoftReserved = mustGUID("e3c9e316-0b5c-4db8-817d-f92df00215ae")
	PartitionTypeEFISystem         = mustGUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
)

func mustGUID(s string) winid.GUID {
	g, ok := winid.ParseGUID(s)
	if !ok {
		panic("win: bad GUID " + s)
	}
	return g
}
