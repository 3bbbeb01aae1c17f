// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// checkLUNs looks for disks that a driver may take for each other if it looks at the LUN
// alone, as that of Azure Disk does: two with the same LUN, and the temporary disk of a
// machine in Azure. Such a driver asks for the locations of all disks, in which those that
// Windows runs from, and those of protected volumes, are left out.
func checkLUNs(ctx context.Context, n *Node, disks []csiproxy.Disk) (string, []Finding, error) {
	if n.Daemon.Disk == nil {
		return "", nil, n.needsWindows()
	}
	locations, err := n.Daemon.Disk.ListDiskLocations(ctx)
	if err != nil {
		return "", nil, err
	}
	var faults []Finding
	byLUN := map[string]csiproxy.Disk{}
	for _, disk := range disks {
		location, ok := locations[disk.Number]
		if !ok || !isOfAzure(disk) {
			continue
		}
		temporary, mountPoint := n.temporary(ctx, disk)
		if temporary {
			faults = append(faults, warning("start the daemon with -protected-volume="+mountPoint+", in the Helm chart "+
				"protectedVolumes, or use a machine size without a temporary disk",
				"%s is Azure's temporary disk, at %s, with LUN %s: a driver that goes by the LUN alone may take it for a "+
					"volume's disk", disk, mountPoint, location.LUNID))
		}
		first, taken := byLUN[location.LUNID]
		if !taken {
			byLUN[location.LUNID] = disk
			continue
		}
		faults = append(faults, warning("start the daemon with -protected-volume for the volume of the disk that is no "+
			"volume's, or attach the other one with another LUN; if the flag is set, see the check protected-volumes; "+
			"docs/drivers.md#lun-0 has more",
			"%s and %s have the same LUN, %s: a driver that goes by the LUN alone takes either", first, disk, location.LUNID))
	}
	fine := fmt.Sprintf("no two disks have the same LUN where a driver goes by that alone (disks: %d)", len(disks))
	return fine, faults, nil
}

// isOfAzure reports whether a disk is one as Azure and Hyper-V attach them. Others' adapters
// all have a LUN 0.
func isOfAzure(disk csiproxy.Disk) bool {
	hyperV := strings.EqualFold(disk.Vendor, "Msft") && strings.EqualFold(disk.Product, "Virtual Disk")
	return hyperV || disk.Bus == csiproxy.BusNVMe && strings.HasPrefix(strings.ToLower(disk.Product), "msft nvme accele")
}

// temporary reports whether a disk is Azure's temporary disk, and the drive on which its
// volume is. It is known by the label of its volume, or by a file on it. Newer machine sizes
// have local NVMe disks (model "Microsoft NVMe Direct Disk") in its place: these are raw, and
// have no location, so no driver finds them by a LUN.
//
// Source: https://learn.microsoft.com/azure/virtual-machines/managed-disks-overview#temporary-disk,
// https://learn.microsoft.com/azure/virtual-machines/enable-nvme-temp-faqs and, for the file, the
// Azure data source of https://github.com/canonical/cloud-init
func (n *Node) temporary(ctx context.Context, disk csiproxy.Disk) (is bool, mountPoint string) {
	for _, p := range disk.Partitions {
		for _, path := range p.Paths {
			if len(path) > len(`D:\`) {
				continue
			}
			is := p.Label == "Temporary Storage"
			if n.Windows != nil && !is {
				_, err := n.Windows.FileAttributes(ctx, path+"DATALOSS_WARNING_README.txt")
				is = err == nil
			}
			if is {
				return true, strings.TrimSuffix(path, `\`)
			}
		}
	}
	return false, ""
}
