// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"fmt"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// buses are the names of STORAGE_BUS_TYPE.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ne-winioctl-storage_bus_type
var buses = map[win.BusType]csiproxy.Bus{
	1: csiproxy.BusSCSI, 2: "ATAPI", 3: "ATA", 4: "1394", 5: "SSA", 6: "Fibre Channel", 7: "USB", 8: "RAID",
	9:  csiproxy.BusISCSI,
	10: csiproxy.BusSAS, 11: csiproxy.BusSATA, 12: "SD", 13: "MMC", 14: "Virtual", 15: csiproxy.BusFile,
	16: "Storage Spaces",
	17: csiproxy.BusNVMe, 18: "SCM", 19: "UFS",
}

// BusNames returns the names of all buses.
func BusNames() (names []string) {
	for _, name := range buses {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// Bus names the bus of a disk.
func Bus(t win.BusType) csiproxy.Bus {
	if name, ok := buses[t]; ok {
		return name
	}
	return csiproxy.Bus(fmt.Sprintf("bus type %d", t))
}
