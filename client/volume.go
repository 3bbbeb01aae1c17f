// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"math"

	csiproxy "github.com/csi-proxy/csi-proxy"
	volumev1beta2 "github.com/csi-proxy/csi-proxy/api/volume/v1beta2"
	volumev2alpha1 "github.com/csi-proxy/csi-proxy/api/volume/v2alpha1"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/published"
)

// Volume calls the volume group. A [Client] has one.
type Volume struct{ group *group }

// Version returns the version in use, such as "v2alpha1". If there is none yet, Version chooses the
// newest version served.
func (v *Volume) Version(ctx context.Context) (string, error) { return v.group.version(ctx) }

// ListVolumesOnDisk implements [published.VolumeOperations]: returns the volumes of a disk's
// partition or, for partition 0, of all data partitions. A partition other than 0 needs v1beta3.
func (v *Volume) ListVolumesOnDisk(ctx context.Context, n csiproxy.DiskNumber, partition uint32) (ids []csiproxy.VolumeID, err error) {
	object := diskObject(n)
	if partition != 0 {
		object += fmt.Sprintf(" partition %d", partition)
	}
	return v.list(ctx, "ListVolumesOnDisk", object, n, partition)
}

// list lists volumes for an operation on an object.
func (v *Volume) list(ctx context.Context, op, object string, n csiproxy.DiskNumber,
	partition uint32) (ids []csiproxy.VolumeID, err error) {
	read := func(texts []string) {
		for _, text := range texts {
			if text != "" { // for no volume, published daemons up to 1.2.1 return one empty id
				ids = append(ids, csiproxy.VolumeID(text))
			}
		}
	}
	variants := []variant{result("ListVolumesOnDisk",
		&volumev2alpha1.ListVolumesOnDiskRequest{DiskNumber: uint32(n), PartitionNumber: partition},
		func(r *volumev2alpha1.ListVolumesOnDiskResponse) { read(r.VolumeIds) })}
	if partition == 0 { // the old request has no partition number
		variants = append(variants, result("ListVolumesOnDisk", &volumev1beta2.ListVolumesOnDiskRequest{DiskId: n.String()},
			func(r *volumev1beta2.ListVolumesOnDiskResponse) { read(r.VolumeIds) }))
	}
	err = v.group.call(ctx, op, object, variants...)
	return ids, err
}

// DataVolumeOfDisk implements [published.VolumeOperations]: returns the only data volume of a disk.
func (v *Volume) DataVolumeOfDisk(ctx context.Context, n csiproxy.DiskNumber) (csiproxy.VolumeID, error) {
	const op = "DataVolumeOfDisk"
	ids, err := v.list(ctx, op, diskObject(n), n, 0)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", &csiproxy.Error{Op: op, Object: diskObject(n), Kind: csiproxy.ErrNotFound,
			Detail: "it has no data volume"}
	case len(ids) > 1:
		return "", &csiproxy.Error{Op: op, Object: diskObject(n), Kind: csiproxy.ErrFailedPrecondition,
			Detail: fmt.Sprintf("it has %d data volumes", len(ids))}
	}
	return ids[0], nil
}

// MountVolume implements [published.VolumeOperations]: mounts a volume at a directory.
func (v *Volume) MountVolume(ctx context.Context, id csiproxy.VolumeID, targetPath string) error {
	return v.group.call(ctx, "MountVolume", volumeObject(id),
		noResult("MountVolume", &volumev2alpha1.MountVolumeRequest{VolumeId: string(id), TargetPath: targetPath}),
		noResult("MountVolume", &volumev1beta2.MountVolumeRequest{VolumeId: string(id), Path: targetPath}),
	)
}

// UnmountVolume implements [published.VolumeOperations]: flushes a volume and unmounts a directory.
func (v *Volume) UnmountVolume(ctx context.Context, id csiproxy.VolumeID, targetPath string) error {
	return v.group.call(ctx, "UnmountVolume", volumeObject(id),
		noResult("UnmountVolume", &volumev2alpha1.UnmountVolumeRequest{VolumeId: string(id), TargetPath: targetPath}),
		noResult("DismountVolume", &volumev1beta2.DismountVolumeRequest{VolumeId: string(id), Path: targetPath}),
	)
}

// IsVolumeFormatted implements [published.VolumeOperations]: reports whether a volume has a file
// system.
func (v *Volume) IsVolumeFormatted(ctx context.Context, id csiproxy.VolumeID) (formatted bool, err error) {
	return ask(ctx, v.group, "IsVolumeFormatted", volumeObject(id),
		&volumev2alpha1.IsVolumeFormattedRequest{VolumeId: string(id)},
		func(r *volumev2alpha1.IsVolumeFormattedResponse) bool { return r.Formatted })
}

// FormatVolume implements [published.VolumeOperations]: formats a volume with NTFS. The published
// daemon also formats a volume with a file system or other data.
func (v *Volume) FormatVolume(ctx context.Context, id csiproxy.VolumeID) error {
	return v.group.act(ctx, "FormatVolume", volumeObject(id), &volumev2alpha1.FormatVolumeRequest{VolumeId: string(id)})
}

// ResizeVolume implements [published.VolumeOperations]: grows a volume and its file system.
func (v *Volume) ResizeVolume(ctx context.Context, id csiproxy.VolumeID, sizeBytes int64) error {
	const op = "ResizeVolume"
	// For one driver's sake, the daemon also accepts a disk number here, meaning the disk's only
	// volume. In process a disk number is an error; the client follows package node.
	if _, err := csiproxy.ParseVolumeID(string(id)); err != nil {
		return &csiproxy.Error{Op: op, Object: volumeObject(id), Err: err}
	}
	return v.group.call(ctx, op, volumeObject(id),
		noResult("ResizeVolume", &volumev2alpha1.ResizeVolumeRequest{VolumeId: string(id), SizeBytes: sizeBytes}),
		noResult("ResizeVolume", &volumev1beta2.ResizeVolumeRequest{VolumeId: string(id), Size: sizeBytes}),
	)
}

// GetVolumeStats implements [published.VolumeOperations]: returns a volume's size. Needs v1beta1.
func (v *Volume) GetVolumeStats(ctx context.Context, id csiproxy.VolumeID) (stats published.VolumeStats, err error) {
	err = v.group.call(ctx, "GetVolumeStats", volumeObject(id),
		result("GetVolumeStats", &volumev2alpha1.GetVolumeStatsRequest{VolumeId: string(id)},
			func(r *volumev2alpha1.GetVolumeStatsResponse) {
				stats = published.VolumeStats{SizeBytes: r.TotalBytes, UsedBytes: r.UsedBytes}
			}),
		result("VolumeStats", &volumev1beta2.VolumeStatsRequest{VolumeId: string(id)},
			func(r *volumev1beta2.VolumeStatsResponse) {
				stats = published.VolumeStats{SizeBytes: r.VolumeSize, UsedBytes: r.VolumeUsedSize}
			}),
	)
	return stats, err
}

// GetDiskNumberFromVolumeID implements [published.VolumeOperations]: returns the disk of a volume.
// Needs v1beta1.
func (v *Volume) GetDiskNumberFromVolumeID(ctx context.Context, id csiproxy.VolumeID) (n csiproxy.DiskNumber, err error) {
	err = v.group.call(ctx, "GetDiskNumberFromVolumeID", volumeObject(id),
		result("GetDiskNumberFromVolumeID", &volumev2alpha1.GetDiskNumberFromVolumeIDRequest{VolumeId: string(id)},
			func(r *volumev2alpha1.GetDiskNumberFromVolumeIDResponse) { n = csiproxy.DiskNumber(r.DiskNumber) }),
		checkedResult("GetVolumeDiskNumber", &volumev1beta2.VolumeDiskNumberRequest{VolumeId: string(id)},
			func(r *volumev1beta2.VolumeDiskNumberResponse) error {
				if r.DiskNumber < 0 || r.DiskNumber > math.MaxUint32 {
					return malformedError("the invalid disk number %d", r.DiskNumber)
				}
				n = csiproxy.DiskNumber(r.DiskNumber)
				return nil
			}),
	)
	return n, err
}

// GetVolumeIDFromTargetPath implements [published.VolumeOperations]: returns the volume mounted at
// a path. Needs v1beta1.
func (v *Volume) GetVolumeIDFromTargetPath(ctx context.Context, path string) (id csiproxy.VolumeID, err error) {
	err = v.group.call(ctx, "GetVolumeIDFromTargetPath", quote.Text(path),
		result("GetVolumeIDFromTargetPath", &volumev2alpha1.GetVolumeIDFromTargetPathRequest{TargetPath: path},
			func(r *volumev2alpha1.GetVolumeIDFromTargetPathResponse) { id = csiproxy.VolumeID(r.VolumeId) }),
		result("GetVolumeIDFromMount", &volumev1beta2.VolumeIDFromMountRequest{Mount: path},
			func(r *volumev1beta2.VolumeIDFromMountResponse) { id = csiproxy.VolumeID(r.VolumeId) }),
	)
	return id, err
}

// GetClosestVolumeIDFromTargetPath implements [published.VolumeOperations]: returns the volume on
// which a path lies. Needs v2alpha1.
func (v *Volume) GetClosestVolumeIDFromTargetPath(ctx context.Context, path string) (id csiproxy.VolumeID, err error) {
	return ask(ctx, v.group, "GetClosestVolumeIDFromTargetPath", quote.Text(path),
		&volumev2alpha1.GetClosestVolumeIDFromTargetPathRequest{TargetPath: path},
		func(r *volumev2alpha1.GetClosestVolumeIDFromTargetPathResponse) csiproxy.VolumeID {
			return csiproxy.VolumeID(r.VolumeId)
		})
}

// WriteVolumeCache implements [published.VolumeOperations]: flushes a volume. Needs v1beta2.
func (v *Volume) WriteVolumeCache(ctx context.Context, id csiproxy.VolumeID) error {
	return v.group.act(ctx, "WriteVolumeCache", volumeObject(id),
		&volumev2alpha1.WriteVolumeCacheRequest{VolumeId: string(id)})
}

func volumeObject(id csiproxy.VolumeID) string { return "volume " + quote.Text(string(id)) }
