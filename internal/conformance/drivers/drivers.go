// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drivers has the node halves of shipped CSI drivers, as kubelet calls them. Each makes
// the calls of its driver in that driver's order, and draws its conclusions from the answers, with
// its quirks: what isn't checked there isn't checked here.
//
// Package conformance calls any daemon with them, and the module test/published, which has links
// to these files, calls ours with the published client. So this package imports nothing but the
// standard library and protobuf's reflection, which the published client has in an old version.
package drivers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Driver is the node half of a driver. Each step may be repeated.
type Driver interface {
	Stage(staging string) error
	Publish(staging, target string) error
	Unpublish(target string) error
	Unstage(staging string) error
}

// Node is what makes the calls.
type Node interface {
	// Call calls a method of v1, or of v1alpha2 for iSCSI. The request has its fields by their names
	// in the .proto file; it returns the response as JSON, also with these names.
	Call(ctx context.Context, method string, request Fields) ([]byte, error)
}

// Calls are the calls that drivers make.
type Calls struct{ Node }

func (c Calls) do(ctx context.Context, method string, request Fields) error {
	_, err := c.Call(ctx, method, request)
	return err
}

// get makes a call and returns a field of the response.
func get[T any](ctx context.Context, c Calls, method string, request Fields, field string) (value T, err error) {
	text, err := c.Call(ctx, method, request)
	if err != nil {
		return value, err
	}
	var response map[string]json.RawMessage
	if err := json.Unmarshal(text, &response); err != nil {
		return value, fmt.Errorf("%s: %w", method, err)
	}
	raw := response[field]
	if _, ok := any(value).(int64); ok {
		raw = bytes.Trim(raw, `"`) // numbers of 64 bits are texts in protobuf's JSON
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, fmt.Errorf("%s, field %s: %w", method, field, err)
	}
	return value, nil
}

// DiskIDs are the identifiers of a disk.
type DiskIDs struct {
	SerialNumber string `json:"serial_number"`
	Page83       string `json:"page83"`
}

func (c Calls) Rescan(ctx context.Context) error { return c.do(ctx, "Rescan", nil) }

func (c Calls) PartitionDisk(ctx context.Context, disk uint32) error {
	return c.do(ctx, "PartitionDisk", Fields{"disk_number": disk})
}

func (c Calls) SetDiskState(ctx context.Context, disk uint32, online bool) error {
	return c.do(ctx, "SetDiskState", Fields{"disk_number": disk, "is_online": online})
}

func (c Calls) DiskSize(ctx context.Context, disk uint32) (int64, error) {
	return get[int64](ctx, c, "GetDiskStats", Fields{"disk_number": disk}, "total_bytes")
}

func (c Calls) ListVolumesOnDisk(ctx context.Context, disk uint32) ([]string, error) {
	return get[[]string](ctx, c, "ListVolumesOnDisk", Fields{"disk_number": disk}, "volume_ids")
}

func (c Calls) FormatVolume(ctx context.Context, volume string) error {
	return c.do(ctx, "FormatVolume", Fields{"volume_id": volume})
}

func (c Calls) MountVolume(ctx context.Context, volume, path string) error {
	return c.do(ctx, "MountVolume", Fields{"volume_id": volume, "target_path": path})
}

func (c Calls) UnmountVolume(ctx context.Context, volume, path string) error {
	return c.do(ctx, "UnmountVolume", Fields{"volume_id": volume, "target_path": path})
}

func (c Calls) VolumeAt(ctx context.Context, path string) (string, error) {
	return get[string](ctx, c, "GetVolumeIDFromTargetPath", Fields{"target_path": path}, "volume_id")
}

func (c Calls) DiskOf(ctx context.Context, volume string) (uint32, error) {
	return get[uint32](ctx, c, "GetDiskNumberFromVolumeID", Fields{"volume_id": volume}, "disk_number")
}

func (c Calls) VolumeSize(ctx context.Context, volume string) (int64, error) {
	return get[int64](ctx, c, "GetVolumeStats", Fields{"volume_id": volume}, "total_bytes")
}

func (c Calls) ResizeVolume(ctx context.Context, volume string, size int64) error {
	return c.do(ctx, "ResizeVolume", Fields{"volume_id": volume, "size_bytes": size})
}

func (c Calls) PathExists(ctx context.Context, path string) (bool, error) {
	return get[bool](ctx, c, "PathExists", Fields{"path": path}, "exists")
}

func (c Calls) IsSymlink(ctx context.Context, path string) (bool, error) {
	return get[bool](ctx, c, "IsSymlink", Fields{"path": path}, "is_symlink")
}

func (c Calls) Mkdir(ctx context.Context, path string) error {
	return c.do(ctx, "Mkdir", Fields{"path": path})
}

func (c Calls) Rmdir(ctx context.Context, path string, force bool) error {
	return c.do(ctx, "Rmdir", Fields{"path": path, "force": force})
}

func (c Calls) CreateSymlink(ctx context.Context, source, target string) error {
	return c.do(ctx, "CreateSymlink", Fields{"source_path": source, "target_path": target})
}

// diskWith returns the disk that isDisk recognises.
func (c Calls) diskWith(ctx context.Context, isDisk func(DiskIDs) bool) (uint32, error) {
	all, err := get[map[uint32]DiskIDs](ctx, c, "ListDiskIDs", nil, "diskIDs")
	if err != nil {
		return 0, err
	}
	for disk, ids := range all {
		if isDisk(ids) {
			return disk, nil
		}
	}
	return 0, fmt.Errorf("none of %d disks is the volume's", len(all))
}

// ensureDir makes a directory unless the path exists.
func (c Calls) ensureDir(ctx context.Context, path string) error {
	exists, err := c.PathExists(ctx, path)
	if err != nil || exists {
		return err
	}
	return c.Mkdir(ctx, path)
}

// clear removes a path if it exists.
func (c Calls) clear(ctx context.Context, path string) error {
	exists, err := c.PathExists(ctx, path)
	if err != nil || !exists {
		return err
	}
	return c.Rmdir(ctx, path, true)
}

// isMounted takes an error for "no".
func (c Calls) isMounted(ctx context.Context, path string) bool {
	is, err := c.IsSymlink(ctx, path)
	return err == nil && is
}

// prepare partitions a disk, formats its first volume unless that is formatted, and mounts it.
// Three of the drivers don't look whether there is a volume, and would crash.
func (c Calls) prepare(ctx context.Context, disk uint32, setOnline bool, path string) error {
	if err := c.PartitionDisk(ctx, disk); err != nil {
		return err
	}
	if setOnline {
		if err := c.SetDiskState(ctx, disk, true); err != nil {
			return err
		}
	}
	volumes, err := c.ListVolumesOnDisk(ctx, disk)
	if err != nil {
		return err
	}
	if len(volumes) == 0 {
		return fmt.Errorf("disk %d has no volumes: the driver crashes", disk)
	}
	if err := c.Format(ctx, volumes[0]); err != nil {
		return err
	}
	return c.MountVolume(ctx, volumes[0], path)
}

// Format formats a volume unless it is formatted.
func (c Calls) Format(ctx context.Context, volume string) error {
	formatted, err := get[bool](ctx, c, "IsVolumeFormatted", Fields{"volume_id": volume}, "formatted")
	if err != nil || formatted {
		return err
	}
	return c.FormatVolume(ctx, volume)
}

// Unpublish removes the link, as most drivers do.
func (c Calls) Unpublish(target string) error {
	return c.Rmdir(context.Background(), target, true)
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '\\')] }
