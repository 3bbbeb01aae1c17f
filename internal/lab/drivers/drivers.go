// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drivers has the node halves of shipped CSI drivers, as kubelet calls them. Each makes
// the calls of its driver in that driver's order, and draws its conclusions from the answers, with
// its quirks: a result that the driver ignores is ignored here.
//
// Its tests call our daemon on a simulated node. The module test/windows calls our daemon with the
// published client. So this package imports only the standard library and protobuf's reflection,
// of which the published client has an old version.
//
// Sources, beside those at Trident, VSphere and democraticCSI:
//
//	EBS         https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/pkg/mounter/safe_mounter_windows.go
//	AzureDisk   https://github.com/kubernetes-sigs/azuredisk-csi-driver/blob/master/pkg/mounter/safe_mounter_windows.go
//	GCEPD       https://github.com/kubernetes-sigs/gcp-compute-persistent-disk-csi-driver/blob/master/pkg/mount-manager/safe-mounter-v1_windows.go
//	SMB         https://github.com/kubernetes-csi/csi-driver-smb/blob/master/pkg/mounter/safe_mounter_windows.go
package drivers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// Step returns the calls of one step of a driver.
func (c Calls) Step(ctx context.Context) *Step { return &Step{node: c.Node, ctx: ctx} }

// Step has the calls of one step of a driver. A driver ends a step at the first call that fails: the
// error is Err then, and further calls aren't made and return zero values.
type Step struct {
	Err  error
	node Node
	ctx  context.Context
}

// attempt makes calls that may fail, and returns the error if one does. The step goes on.
func (s *Step) attempt(calls func(*Step)) error {
	if s.Err != nil {
		return s.Err
	}
	attempted := &Step{node: s.node, ctx: s.ctx}
	calls(attempted)
	return attempted.Err
}

// failf ends the step, unless it has ended already.
func (s *Step) failf(format string, args ...any) {
	if s.Err == nil {
		s.Err = fmt.Errorf(format, args...)
	}
}

// do makes a call, and returns the response.
func (s *Step) do(method string, request Fields) (response []byte) {
	if s.Err == nil {
		response, s.Err = s.node.Call(s.ctx, method, request)
	}
	return response
}

// get makes a call and returns a field of the response.
func get[T any](s *Step, method string, request Fields, field string) (value T) {
	text := s.do(method, request)
	if s.Err != nil {
		return value
	}
	var response map[string]json.RawMessage
	if err := json.Unmarshal(text, &response); err != nil {
		s.failf("%s: %w", method, err)
		return value
	}
	raw := response[field]
	if _, ok := any(value).(int64); ok {
		raw = bytes.Trim(raw, `"`) // numbers of 64 bits are texts in protobuf's JSON
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		s.failf("%s, field %s: %w", method, field, err)
	}
	return value
}

// DiskIDs are the identifiers of a disk.
type DiskIDs struct {
	SerialNumber string `json:"serial_number"`
	Page83       string `json:"page83"`
}

func (s *Step) Rescan() { s.do("Rescan", nil) }

func (s *Step) PartitionDisk(disk uint32) { s.do("PartitionDisk", Fields{"disk_number": disk}) }

func (s *Step) SetDiskState(disk uint32, online bool) {
	s.do("SetDiskState", Fields{"disk_number": disk, "is_online": online})
}

func (s *Step) DiskSize(disk uint32) int64 {
	return get[int64](s, "GetDiskStats", Fields{"disk_number": disk}, "total_bytes")
}

func (s *Step) ListVolumesOnDisk(disk uint32) []string {
	return get[[]string](s, "ListVolumesOnDisk", Fields{"disk_number": disk}, "volume_ids")
}

func (s *Step) FormatVolume(volume string) { s.do("FormatVolume", Fields{"volume_id": volume}) }

func (s *Step) MountVolume(volume, path string) {
	s.do("MountVolume", Fields{"volume_id": volume, "target_path": path})
}

func (s *Step) UnmountVolume(volume, path string) {
	s.do("UnmountVolume", Fields{"volume_id": volume, "target_path": path})
}

func (s *Step) VolumeAt(path string) string {
	return get[string](s, "GetVolumeIDFromTargetPath", Fields{"target_path": path}, "volume_id")
}

func (s *Step) DiskOf(volume string) uint32 {
	return get[uint32](s, "GetDiskNumberFromVolumeID", Fields{"volume_id": volume}, "disk_number")
}

func (s *Step) VolumeSize(volume string) int64 {
	return get[int64](s, "GetVolumeStats", Fields{"volume_id": volume}, "total_bytes")
}

func (s *Step) ResizeVolume(volume string, size int64) {
	s.do("ResizeVolume", Fields{"volume_id": volume, "size_bytes": size})
}

func (s *Step) PathExists(path string) bool {
	return get[bool](s, "PathExists", Fields{"path": path}, "exists")
}

func (s *Step) IsSymlink(path string) bool {
	return get[bool](s, "IsSymlink", Fields{"path": path}, "is_symlink")
}

func (s *Step) Mkdir(path string) { s.do("Mkdir", Fields{"path": path}) }

func (s *Step) Rmdir(path string, force bool) {
	s.do("Rmdir", Fields{"path": path, "force": force})
}

func (s *Step) CreateSymlink(source, target string) {
	s.do("CreateSymlink", Fields{"source_path": source, "target_path": target})
}

// diskWith returns the disk that isDisk recognises.
func (s *Step) diskWith(isDisk func(DiskIDs) bool) uint32 {
	all := get[map[uint32]DiskIDs](s, "ListDiskIDs", nil, "diskIDs")
	for disk, ids := range all {
		if isDisk(ids) {
			return disk
		}
	}
	s.failf("none of %d disks is the volume's", len(all))
	return 0
}

// ensureDir makes a directory unless the path exists.
func (s *Step) ensureDir(path string) {
	if !s.PathExists(path) {
		s.Mkdir(path)
	}
}

// clear removes a path if it exists.
func (s *Step) clear(path string) {
	if s.PathExists(path) {
		s.Rmdir(path, true)
	}
}

// isMounted takes an error for "no".
func (s *Step) isMounted(path string) (is bool) {
	err := s.attempt(func(s *Step) { is = s.IsSymlink(path) })
	return err == nil && is
}

// prepare partitions a disk, formats its first volume unless that is formatted, and mounts it.
// Three of the drivers don't look whether there is a volume, and would crash.
func (s *Step) prepare(disk uint32, setOnline bool, path string) {
	s.PartitionDisk(disk)
	if setOnline {
		s.SetDiskState(disk, true)
	}
	volumes := s.ListVolumesOnDisk(disk)
	if len(volumes) == 0 {
		s.failf("disk %d has no volumes: the driver crashes", disk)
		return
	}
	s.ensureFormatted(volumes[0])
	s.MountVolume(volumes[0], path)
}

// ensureFormatted formats a volume unless it is formatted.
func (s *Step) ensureFormatted(volume string) {
	if !get[bool](s, "IsVolumeFormatted", Fields{"volume_id": volume}, "formatted") {
		s.FormatVolume(volume)
	}
}

// Unpublish removes the link, as most drivers do.
func (c Calls) Unpublish(target string) error {
	s := c.Step(context.Background())
	s.Rmdir(target, true)
	return s.Err
}
