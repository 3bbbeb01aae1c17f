// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package published has the operations of the API groups that the published CSI Proxy has, too:
// disk, volume, filesystem, smb, iscsi and system. They mean the same in process (package node)
// and over the daemon's pipes (package client). All methods may be called concurrently. Errors
// are of the classes in package csiproxy.
package published

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// DiskOperations are the operations on disks.
type DiskOperations interface {
	// ListDiskLocations returns where each disk is attached. Disks on a bus without
	// such locations are left out, and so are those that Windows runs from: nothing may be
	// done to these. Of NVMe disks, only those that Azure attaches have one, with the LUN
	// that Azure gave them; Windows has no location of others. A disk that doesn't answer
	// is left out, too.
	ListDiskLocations(ctx context.Context) (map[csiproxy.DiskNumber]DiskLocation, error)
	// ListDiskIDs returns the identities of all disks, also of those that are
	// offline. A disk that can't answer, or doesn't within node.Options.SilentDiskTimeout,
	// has empty ones; one that leaves during the call is left out.
	ListDiskIDs(ctx context.Context) (map[csiproxy.DiskNumber]DiskIDs, error)
	// FindDiskByPage83 returns the disk that has exactly this page 83 identifier, as
	// ListDiskIDs gives it.
	FindDiskByPage83(ctx context.Context, page83 string) (csiproxy.DiskNumber, error)
	// PartitionDisk makes sure that a disk has a data partition: a disk without a
	// partition table gets a GPT, and a GPT disk without a data partition gets one
	// of the largest possible size, without a drive letter. A disk that has a
	// partition already is left as it is, also when it is offline; one that must be
	// written is brought online first. The Microsoft reserved partition doesn't
	// count.
	//
	// It refuses with csiproxy.ErrFailedPrecondition to write to a disk that has an
	// MBR without partitions or only partitions that Windows has no volumes for, that
	// holds data of another system directly, without a partition table, or what is left of
	// a damaged table; and that Windows runs from. A disk that is refused stays as it was.
	// It returns when the volume of the partition can be used.
	//
	// If another process changes the disk at the same time, the error is
	// csiproxy.ErrUnavailable, and what that process has written stays.
	PartitionDisk(ctx context.Context, n csiproxy.DiskNumber) error
	// Rescan makes Windows see new, removed and grown disks before it returns.
	// Callers at the same time share one scan, which begins after each of them has
	// called. A disk or adapter that refuses, or doesn't answer, is passed over.
	Rescan(ctx context.Context) error
	// GetDiskStats returns the figures of a disk. Windows reads a disk's size when
	// the disk arrives and on Rescan.
	GetDiskStats(ctx context.Context, n csiproxy.DiskNumber) (DiskStats, error)
	// SetDiskState brings a disk online or takes it offline, also for after a
	// restart of the node. Going online also clears the read-only attribute, which
	// Windows sets together with offline under the SAN policy OfflineShared, and
	// returns when the volumes of the disk can be used. Going offline writes out
	// what is cached of the disk's volumes first.
	//
	// A disk that Windows runs from gives csiproxy.ErrFailedPrecondition, and so does a
	// copy of a disk that is online if Windows gives it no new ids: see node.Options.RefuseClones.
	SetDiskState(ctx context.Context, n csiproxy.DiskNumber, online bool) error
	// GetDiskState reports whether a disk is online.
	GetDiskState(ctx context.Context, n csiproxy.DiskNumber) (online bool, err error)
}

// DiskLocation is where a disk is attached, in Windows' words. Each part is a decimal
// string without padding. A part that the bus doesn't have is empty.
type DiskLocation struct {
	Adapter string `json:"adapter"` // number of the host bus adapter
	Bus     string `json:"bus"`     // PCI bus of the adapter; empty if not known
	Target  string `json:"target"`  // SCSI target
	LUNID   string `json:"lun_id"`  // SCSI logical unit number
}

// DiskIDs are the identities that a disk reports of itself.
type DiskIDs struct {
	// Page83 is the first device-associated identifier of VPD page 0x83 whose
	// code set is ASCII (text as is) or binary (lower-case hex). It is empty if the
	// disk has none or its bus can't ask.
	Page83 string `json:"page83"`
	// SerialNumber is the disk's serial number, without blanks around it.
	SerialNumber string `json:"serial_number"`
}

// DiskStats are the figures of a disk.
type DiskStats struct {
	SizeBytes int64 `json:"size_bytes"` // size in bytes
}
