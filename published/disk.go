// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package published has the operations of the API groups shared with the published CSI Proxy: disk,
// volume, filesystem, smb, iscsi and system. They have the same meaning in process (package node) and
// over the daemon's pipes (package client). All methods may be called concurrently. Errors have the
// classes of package csiproxy.
package published

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// DiskOperations are the operations on disks.
type DiskOperations interface {
	// ListDiskLocations returns where each disk is attached. It omits disks on a bus without
	// locations, silent disks, and the disks of Windows itself, which are closed to all
	// operations. An NVMe disk has a location only if Azure has attached the disk: the LUN
	// given by Azure.
	ListDiskLocations(ctx context.Context) (map[csiproxy.DiskNumber]DiskLocation, error)
	// ListDiskIDs returns the identities of all disks, online and offline. A disk that is
	// silent for node.Options.SilentDiskTimeout has empty identities. A disk that leaves
	// during the call is omitted.
	ListDiskIDs(ctx context.Context) (map[csiproxy.DiskNumber]DiskIDs, error)
	// FindDiskByPage83 returns the disk with exactly this page 83 identifier, in the form of
	// ListDiskIDs.
	FindDiskByPage83(ctx context.Context, page83 string) (csiproxy.DiskNumber, error)
	// PartitionDisk makes a data partition on a disk. A disk without a partition table gets a
	// GPT. A GPT disk without a data partition gets a partition of the largest possible size,
	// without a drive letter. PartitionDisk brings the disk online before it writes, and
	// returns when the volume of the partition is usable. A disk with a partition beside
	// Microsoft's reserved one stays as it is, online or offline.
	//
	// These disks are refused with csiproxy.ErrFailedPrecondition, and stay as they are: disks
	// of Windows itself; disks with an MBR and no partitions; disks whose partitions get no
	// volumes from Windows; disks with data of another system in place of a partition table;
	// and disks with the remains of a damaged table.
	//
	// If another process changes the disk at the same time, the error is
	// csiproxy.ErrUnavailable, and the process's data stay.
	PartitionDisk(ctx context.Context, n csiproxy.DiskNumber) error
	// Rescan makes Windows see new, removed and grown disks before Rescan returns. Concurrent
	// callers share a scan that begins after all their calls. Disks and adapters that refuse
	// or stay silent are passed over.
	Rescan(ctx context.Context) error
	// GetDiskStats returns the figures of a disk. Windows reads a disk's size when
	// the disk arrives and on Rescan.
	GetDiskStats(ctx context.Context, n csiproxy.DiskNumber) (DiskStats, error)
	// SetDiskState brings a disk online or takes it offline. The state survives a restart of
	// the node. Going online also clears the read-only attribute, which the SAN policy
	// OfflineShared sets together with offline, and waits until the volumes of the disk are
	// usable. Going offline first writes the cache of the disk's volumes to the disk.
	//
	// A disk of Windows itself is csiproxy.ErrFailedPrecondition. So is a copy of an online
	// disk, if Windows gives the copy no new ids: see node.Options.RefuseClones.
	SetDiskState(ctx context.Context, n csiproxy.DiskNumber, online bool) error
	// GetDiskState reports whether a disk is online.
	GetDiskState(ctx context.Context, n csiproxy.DiskNumber) (online bool, err error)
}

// DiskLocation is where a disk is attached, in Windows' words. Each part is a decimal string
// without padding, or empty if the bus lacks the part.
type DiskLocation struct {
	Adapter string `json:"adapter"` // number of the host bus adapter
	Bus     string `json:"bus"`     // PCI bus of the adapter; empty if not known
	Target  string `json:"target"`  // SCSI target
	LUNID   string `json:"lun_id"`  // SCSI logical unit number
}

// DiskIDs are the identities reported by a disk.
type DiskIDs struct {
	// Page83 is the first device-associated identifier of VPD page 0x83 with the code set ASCII
	// (text as is) or binary (lower-case hex). Page83 is empty if the disk has no such
	// identifier, or the bus can't ask for one.
	Page83 string `json:"page83"`
	// SerialNumber is the disk's serial number, without blanks around it.
	SerialNumber string `json:"serial_number"`
}

// DiskStats are the figures of a disk.
type DiskStats struct {
	SizeBytes int64 `json:"size_bytes"` // size in bytes
}
