// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// buses are the names of STORAGE_BUS_TYPE.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ne-winioctl-storage_bus_type
var buses = map[win.BusType]storage.Bus{
	1: storage.BusSCSI, 2: "ATAPI", 3: "ATA", 4: "1394", 5: "SSA", 6: "Fibre Channel", 7: "USB", 8: "RAID",
	9:  storage.BusISCSI,
	10: storage.BusSAS, 11: storage.BusSATA, 12: "SD", 13: "MMC", 14: "Virtual", 15: storage.BusFile,
	16: "Storage Spaces",
	17: storage.BusNVMe, 18: "SCM", 19: "UFS",
}

// Bus names the bus of a disk.
func Bus(t win.BusType) storage.Bus {
	if name, ok := buses[t]; ok {
		return name
	}
	return storage.Bus(fmt.Sprintf("bus type %d", t))
}
