// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the host side of package disk, over CSI Proxy's operations.
package api

import (
	"context"
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
)

// HostAPI is what package disk needs of the node. v2.0.0-alpha.1 and alpha.2 lack SetDiskReadOnly and
// GetDiskReadOnly, which are of https://github.com/kubernetes-csi/csi-proxy/pull/438.
type HostAPI interface {
	// ListDiskLocations returns where each disk is attached, by disk number.
	ListDiskLocations() (map[uint32]DiskLocation, error)
	// IsDiskInitialized reports whether a disk has a partition table.
	IsDiskInitialized(diskNumber uint32) (bool, error)
	// InitializeDisk gives a disk a partition table.
	InitializeDisk(diskNumber uint32) error
	// BasicPartitionsExist reports whether a disk has a data partition.
	BasicPartitionsExist(diskNumber uint32) (bool, error)
	// CreateBasicPartition gives a disk a data partition.
	CreateBasicPartition(diskNumber uint32) error
	// Rescan has Windows look for new disks.
	Rescan() error
	// ListDiskIDs returns what each disk says of itself, by disk number.
	ListDiskIDs() (map[uint32]DiskIDs, error)
	// GetDiskStats returns the size of a disk in bytes.
	GetDiskStats(diskNumber uint32) (int64, error)
	// SetDiskState takes a disk online or offline.
	SetDiskState(diskNumber uint32, isOnline bool) error
	// GetDiskState reports whether a disk is online.
	GetDiskState(diskNumber uint32) (bool, error)
	// SetDiskReadOnly makes a disk writable or read-only.
	SetDiskReadOnly(diskNumber uint32, isReadOnly bool) error
	// GetDiskReadOnly reports whether nothing can be written to a disk.
	GetDiskReadOnly(diskNumber uint32) (bool, error)
}

// DiskAPI is the node's disks. Its zero value is ready.
type DiskAPI struct{ in host.API }

var _ HostAPI = DiskAPI{}

// New returns the node's disks.
func New() DiskAPI { return DiskAPI{} }

// WithContext returns the same disks, for calls that end with ctx.
func (DiskAPI) WithContext(ctx context.Context) HostAPI { return DiskAPI{host.In(ctx)} }

func (d DiskAPI) ListDiskLocations() (map[uint32]DiskLocation, error) {
	return host.Get(d.in, func(ctx context.Context, n *node.Node) (map[uint32]DiskLocation, error) {
		all, err := n.Disk.ListDiskLocations(ctx)
		if err != nil {
			return nil, err
		}
		locations := make(map[uint32]DiskLocation, len(all))
		for number, l := range all {
			locations[uint32(number)] = DiskLocation(l)
		}
		return locations, nil
	})
}

// describe returns what the storage group knows of a disk.
func (d DiskAPI) describe(diskNumber uint32) (csiproxy.Disk, error) {
	number := csiproxy.DiskNumber(diskNumber)
	return host.Get(d.in, func(ctx context.Context, n *node.Node) (csiproxy.Disk, error) {
		found, err := n.Storage.ListDisks(ctx, csiproxy.Selector{Number: &number})
		switch {
		case err != nil:
			return csiproxy.Disk{}, err
		case len(found) == 0:
			return csiproxy.Disk{}, csiproxy.Errorf(csiproxy.ErrNotFound, "there is no disk %d", diskNumber)
		case found[0].Error != "": // what it doesn't tell must not be taken for a raw disk
			return csiproxy.Disk{}, csiproxy.Errorf(csiproxy.ErrUnavailable, "disk %d: %s", diskNumber, found[0].Error)
		}
		return found[0], nil
	})
}

func (d DiskAPI) IsDiskInitialized(diskNumber uint32) (bool, error) {
	one, err := d.describe(diskNumber)
	return err == nil && one.Style != csiproxy.PartitionStyleRAW, err
}

// InitializeDisk implements [HostAPI]. It makes the data partition, too: CSI Proxy looks for
// data of others right before it writes, and gives a disk both in one step.
func (d DiskAPI) InitializeDisk(diskNumber uint32) error { return d.partition(diskNumber) }

func (d DiskAPI) BasicPartitionsExist(diskNumber uint32) (bool, error) {
	one, err := d.describe(diskNumber)
	if err != nil {
		return false, err
	}
	for _, p := range one.Partitions {
		if p.Data {
			return true, nil
		}
	}
	return false, nil
}

// CreateBasicPartition implements [HostAPI]. A disk that has a data partition stays as it is.
func (d DiskAPI) CreateBasicPartition(diskNumber uint32) error { return d.partition(diskNumber) }

func (d DiskAPI) partition(diskNumber uint32) error {
	return host.Do(d.in, func(ctx context.Context, n *node.Node) error {
		return n.Disk.PartitionDisk(ctx, csiproxy.DiskNumber(diskNumber))
	})
}

func (d DiskAPI) Rescan() error {
	return host.Do(d.in, func(ctx context.Context, n *node.Node) error { return n.Disk.Rescan(ctx) })
}

func (d DiskAPI) ListDiskIDs() (map[uint32]DiskIDs, error) {
	return host.Get(d.in, func(ctx context.Context, n *node.Node) (map[uint32]DiskIDs, error) {
		all, err := n.Disk.ListDiskIDs(ctx)
		if err != nil {
			return nil, err
		}
		ids := make(map[uint32]DiskIDs, len(all))
		for number, one := range all {
			ids[uint32(number)] = DiskIDs(one)
		}
		return ids, nil
	})
}

func (d DiskAPI) GetDiskStats(diskNumber uint32) (int64, error) {
	return host.Get(d.in, func(ctx context.Context, n *node.Node) (int64, error) {
		stats, err := n.Disk.GetDiskStats(ctx, csiproxy.DiskNumber(diskNumber))
		return stats.SizeBytes, err
	})
}

func (d DiskAPI) SetDiskState(diskNumber uint32, isOnline bool) error {
	return host.Do(d.in, func(ctx context.Context, n *node.Node) error {
		return n.Disk.SetDiskState(ctx, csiproxy.DiskNumber(diskNumber), isOnline)
	})
}

func (d DiskAPI) GetDiskState(diskNumber uint32) (bool, error) {
	return host.Get(d.in, func(ctx context.Context, n *node.Node) (bool, error) {
		return n.Disk.GetDiskState(ctx, csiproxy.DiskNumber(diskNumber))
	})
}

func (d DiskAPI) GetDiskReadOnly(diskNumber uint32) (bool, error) {
	described, err := d.describe(diskNumber)
	return described.ReadOnly, err
}

// SetDiskReadOnly implements [HostAPI]. CSI Proxy makes a disk writable as it brings it online, so a
// read-only offline disk goes online, too. It makes a disk read-only only by staging it: Windows keeps the
// attribute for the disk's place, and gives it to the next disk there, unless somebody clears it.
func (d DiskAPI) SetDiskReadOnly(diskNumber uint32, isReadOnly bool) error {
	described, err := d.describe(diskNumber)
	switch {
	case err != nil || described.ReadOnly == isReadOnly:
		return err
	case isReadOnly:
		return csiproxy.Errorf(csiproxy.ErrUnimplemented, "disk %d can't be made read-only here; "+
			"stage its volume with StageVolume of CSI Proxy's storage group and ReadOnly", diskNumber)
	}
	if err := d.SetDiskState(diskNumber, true); err != nil {
		return err
	}
	if described, err = d.describe(diskNumber); err == nil && described.ReadOnly {
		err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"disk %d stays read-only, since its volume is staged read-only; unstage that first", diskNumber)
	}
	return err
}

// GetDiskNumberWithID returns the number of the disk that has an identifier of page 83.
func (d DiskAPI) GetDiskNumberWithID(page83ID string) (uint32, error) {
	ids, err := d.ListDiskIDs()
	if err != nil {
		return 0, err
	}
	for number, one := range ids {
		if one.Page83 == page83ID {
			return number, nil
		}
	}
	return 0, csiproxy.Errorf(csiproxy.ErrNotFound, "no disk has the identifier %q", page83ID)
}

// page83 returns the identifier of page 83 of a disk.
func (d DiskAPI) page83(diskNumber uint32) (string, error) {
	ids, err := d.ListDiskIDs()
	if err != nil {
		return "", err
	}
	one, ok := ids[diskNumber]
	if !ok {
		return "", fmt.Errorf("disk %d: %w", diskNumber, csiproxy.ErrNotFound)
	}
	return one.Page83, nil
}
