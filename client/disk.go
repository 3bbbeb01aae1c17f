// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"maps"
	"slices"
	"strconv"

	csiproxy "github.com/csi-proxy/csi-proxy"
	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	diskv1alpha1 "github.com/csi-proxy/csi-proxy/api/disk/v1alpha1"
	diskv1beta2 "github.com/csi-proxy/csi-proxy/api/disk/v1beta2"
	"github.com/csi-proxy/csi-proxy/published"
)

// Disk calls the disk group. A [Client] has one.
type Disk struct{ group *group }

// Version returns the version in use, such as "v1". If there is none yet, Version chooses the
// newest version served.
func (d *Disk) Version(ctx context.Context) (string, error) { return d.group.version(ctx) }

// ListDiskLocations implements [published.DiskOperations]: returns the location of each disk.
func (d *Disk) ListDiskLocations(ctx context.Context) (map[csiproxy.DiskNumber]published.DiskLocation, error) {
	locations := make(map[csiproxy.DiskNumber]published.DiskLocation)
	err := d.group.call(ctx, "ListDiskLocations", "",
		result("ListDiskLocations", &diskv1.ListDiskLocationsRequest{}, func(r *diskv1.ListDiskLocationsResponse) {
			for n, l := range r.DiskLocations {
				locations[csiproxy.DiskNumber(n)] = published.DiskLocation{Adapter: l.Adapter, Bus: l.Bus, Target: l.Target, LUNID: l.LUNID}
			}
		}),
		checkedResult("ListDiskLocations", &diskv1beta2.ListDiskLocationsRequest{},
			func(r *diskv1beta2.ListDiskLocationsResponse) error {
				for s, l := range r.DiskLocations {
					n, err := parseNumber(s)
					if err != nil {
						return err
					}
					locations[n] = published.DiskLocation{Adapter: l.Adapter, Bus: l.Bus, Target: l.Target, LUNID: l.LUNID}
				}
				return nil
			}),
	)
	if err != nil {
		return nil, err
	}
	return locations, nil
}

// ListDiskIDs implements [published.DiskOperations]: returns the ids of each disk. Needs v1beta1.
func (d *Disk) ListDiskIDs(ctx context.Context) (disks map[csiproxy.DiskNumber]published.DiskIDs, err error) {
	err = d.group.call(ctx, "ListDiskIDs", "", listDiskIDs(func(listed map[csiproxy.DiskNumber]published.DiskIDs) error {
		disks = listed
		return nil
	})...)
	return disks, err
}

// listDiskIDs returns the variants for getting the ids of all disks. Each variant passes the result to
// read.
func listDiskIDs(read func(map[csiproxy.DiskNumber]published.DiskIDs) error) []variant {
	disks := make(map[csiproxy.DiskNumber]published.DiskIDs)
	return []variant{
		checkedResult("ListDiskIDs", &diskv1.ListDiskIDsRequest{}, func(r *diskv1.ListDiskIDsResponse) error {
			for n, ids := range r.DiskIDs {
				disks[csiproxy.DiskNumber(n)] = published.DiskIDs{Page83: ids.Page83, SerialNumber: ids.SerialNumber}
			}
			return read(disks)
		}),
		checkedResult("ListDiskIDs", &diskv1beta2.ListDiskIDsRequest{}, func(r *diskv1beta2.ListDiskIDsResponse) error {
			for s, ids := range r.DiskIDs {
				n, err := parseNumber(s)
				if err != nil {
					return err
				}
				disks[n] = published.DiskIDs{Page83: ids.Identifiers["page83"], SerialNumber: ids.Identifiers["serialNumber"]}
			}
			return read(disks)
		}),
	}
}

// FindDiskByPage83 implements [published.DiskOperations]: finds the disk with a page 83 identifier.
func (d *Disk) FindDiskByPage83(ctx context.Context, page83 string) (n csiproxy.DiskNumber, err error) {
	const op = "FindDiskByPage83"
	object := strconv.Quote(page83)
	if page83 == "" {
		return 0, &csiproxy.Error{Op: op, Object: object, Kind: csiproxy.ErrInvalidArgument,
			Detail: "the identifier is empty"}
	}
	variants := listDiskIDs(func(disks map[csiproxy.DiskNumber]published.DiskIDs) error {
		for _, candidate := range slices.Sorted(maps.Keys(disks)) {
			if disks[candidate].Page83 == page83 {
				n = candidate
				return nil
			}
		}
		return csiproxy.Errorf(csiproxy.ErrNotFound, "no disk has this page 83 identifier")
	})
	request := &diskv1alpha1.GetDiskNumberByNameRequest{DiskName: page83}
	variants = append(variants, checkedResult("GetDiskNumberByName", request,
		func(r *diskv1alpha1.GetDiskNumberByNameResponse) (err error) {
			n, err = parseNumber(r.DiskNumber)
			return err
		}))
	err = d.group.call(ctx, op, object, variants...)
	return n, err
}

// PartitionDisk implements [published.DiskOperations]: makes a data partition if the disk has none.
func (d *Disk) PartitionDisk(ctx context.Context, n csiproxy.DiskNumber) error {
	return d.group.call(ctx, "PartitionDisk", diskObject(n),
		noResult("PartitionDisk", &diskv1.PartitionDiskRequest{DiskNumber: uint32(n)}),
		noResult("PartitionDisk", &diskv1beta2.PartitionDiskRequest{DiskID: n.String()}),
	)
}

// Rescan implements [published.DiskOperations]: Windows looks for added, removed and grown disks.
func (d *Disk) Rescan(ctx context.Context) error {
	return d.group.act(ctx, "Rescan", "", &diskv1.RescanRequest{})
}

// GetDiskStats implements [published.DiskOperations]: returns the size of a disk. Needs v1beta1.
func (d *Disk) GetDiskStats(ctx context.Context, n csiproxy.DiskNumber) (stats published.DiskStats, err error) {
	err = d.group.call(ctx, "GetDiskStats", diskObject(n),
		result("GetDiskStats", &diskv1.GetDiskStatsRequest{DiskNumber: uint32(n)}, func(r *diskv1.GetDiskStatsResponse) {
			stats.SizeBytes = r.TotalBytes
		}),
		result("DiskStats", &diskv1beta2.DiskStatsRequest{DiskID: n.String()}, func(r *diskv1beta2.DiskStatsResponse) {
			stats.SizeBytes = r.DiskSize
		}),
	)
	return stats, err
}

// SetDiskState implements [published.DiskOperations]: takes a disk online or offline. Needs
// v1beta2.
func (d *Disk) SetDiskState(ctx context.Context, n csiproxy.DiskNumber, online bool) error {
	return d.group.call(ctx, "SetDiskState", diskObject(n),
		noResult("SetDiskState", &diskv1.SetDiskStateRequest{DiskNumber: uint32(n), IsOnline: online}),
		noResult("SetAttachState", &diskv1beta2.SetAttachStateRequest{DiskID: n.String(), IsOnline: online}),
	)
}

// GetDiskState implements [published.DiskOperations]: reports whether a disk is online. Needs
// v1beta2.
func (d *Disk) GetDiskState(ctx context.Context, n csiproxy.DiskNumber) (online bool, err error) {
	err = d.group.call(ctx, "GetDiskState", diskObject(n),
		result("GetDiskState", &diskv1.GetDiskStateRequest{DiskNumber: uint32(n)}, func(r *diskv1.GetDiskStateResponse) {
			online = r.IsOnline
		}),
		result("GetAttachState", &diskv1beta2.GetAttachStateRequest{DiskID: n.String()},
			func(r *diskv1beta2.GetAttachStateResponse) {
				online = r.IsOnline
			}),
	)
	return online, err
}

func diskObject(n csiproxy.DiskNumber) string { return "disk " + n.String() }

// parseNumber reads a disk number from a response.
func parseNumber(s string) (csiproxy.DiskNumber, error) {
	n, err := csiproxy.ParseDiskNumber(s)
	if err != nil {
		return 0, malformedError("the invalid disk number %q", s)
	}
	return n, nil
}
