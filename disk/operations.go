// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import "context"

// Operations are the operations of this group, with the same meaning in process
// (package node) and over the pipe (package client). All methods may be called
// concurrently. Errors are of the classes in package csiproxy.
type Operations interface {
	// ListDiskLocations returns where each disk is attached. Disks on a bus without
	// such locations are left out, and so are those that Windows runs from: nothing may be
	// done to these. Of NVMe disks, only those that Azure attaches have one, with the LUN
	// that Azure gave them; Windows has no location of others. A disk that doesn't answer
	// is left out, too.
	ListDiskLocations(ctx context.Context) (map[Number]Location, error)
	// ListDiskIDs returns the identities of all disks, also of those that are
	// offline. A disk that can't answer, or doesn't within node.Options.SilentDiskTimeout,
	// has empty ones; one that leaves during the call is left out.
	ListDiskIDs(ctx context.Context) (map[Number]IDs, error)
	// FindDiskByPage83 returns the disk that has exactly this page 83 identifier, as
	// ListDiskIDs gives it.
	FindDiskByPage83(ctx context.Context, page83 string) (Number, error)
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
	PartitionDisk(ctx context.Context, n Number) error
	// Rescan makes Windows see new, removed and grown disks before it returns.
	// Callers at the same time share one scan, which begins after each of them has
	// called. A disk or adapter that refuses, or doesn't answer, is passed over.
	Rescan(ctx context.Context) error
	// GetDiskStats returns the figures of a disk. Windows reads a disk's size when
	// the disk arrives and on Rescan.
	GetDiskStats(ctx context.Context, n Number) (Stats, error)
	// SetDiskState brings a disk online or takes it offline, also for after a
	// restart of the node. Going online also clears the read-only attribute, which
	// Windows sets together with offline under the SAN policy OfflineShared, and
	// returns when the volumes of the disk can be used. Going offline writes out
	// what is cached of the disk's volumes first.
	//
	// A disk that Windows runs from gives csiproxy.ErrFailedPrecondition, and so does a
	// copy of a disk that is online if Windows gives it no new ids: see node.Options.RefuseClones.
	SetDiskState(ctx context.Context, n Number, online bool) error
	// GetDiskState reports whether a disk is online.
	GetDiskState(ctx context.Context, n Number) (online bool, err error)
}
