// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/volume"
)

// ntfs stages volumes with an NTFS file system on a disk of their own, by mounting the
// file system at the staging path.
type ntfs struct {
	proxy Proxy
	disk  attachment
}

// attachment is how a disk comes to the node.
type attachment interface {
	// attach returns the number of the volume's disk. The number may be another one
	// each time the disk arrives.
	attach(ctx context.Context, rec *record, secrets map[string]string) (disk.Number, error)
	// detach detaches the disk.
	detach(ctx context.Context, rec *record) error
}

func (v ntfs) stage(ctx context.Context, rec *record, secrets map[string]string) error {
	number, err := v.disk.attach(ctx, rec, secrets)
	if err != nil {
		return err
	}
	if !rec.ReadOnly {
		if err := prepare(ctx, v.proxy.Disk, number); err != nil {
			return err
		}
	}
	rec.Volume, err = v.proxy.Volume.DataVolumeOfDisk(ctx, number)
	if rec.ReadOnly && errors.Is(err, csiproxy.ErrNotFound) {
		return status.Errorf(codes.FailedPrecondition, "volume %s has no file system, and can't get one since it is attached read-only", rec.VolumeID)
	}
	if err != nil {
		return err
	}
	formatted, err := v.proxy.Volume.IsVolumeFormatted(ctx, rec.Volume)
	if err != nil {
		return err
	}
	if !formatted {
		if err := v.proxy.Volume.FormatVolume(ctx, rec.Volume); err != nil {
			return err
		}
	}
	return v.proxy.Volume.MountVolume(ctx, rec.Volume, rec.StagingPath)
}

// prepare makes sure that a disk is online, which it often isn't when the cloud attaches
// it, and has a partition. When CSI Proxy brings a disk online, it also clears the
// read-only attribute. So a disk that is attached read-only must arrive online.
func prepare(ctx context.Context, disks Disk, number disk.Number) error {
	if err := disks.SetDiskState(ctx, number, true); err != nil {
		return err
	}
	return disks.PartitionDisk(ctx, number)
}

func (v ntfs) unstage(ctx context.Context, rec *record) error {
	if err := unmount(ctx, v.proxy, rec.StagingPath, rec.Volume); err != nil {
		return err
	}
	return v.disk.detach(ctx, rec)
}

// unmount unmounts a volume from a staging path, which writes out its cache, and takes
// its disk offline, so that nothing on the node uses it when it is detached. If a crash
// came before the id was recorded, there is no id, and any volume at the path is
// unmounted. With an id, another volume at the path isn't touched.
func unmount(ctx context.Context, p Proxy, stagingPath string, id volume.ID) error {
	mounted, err := p.Volume.GetVolumeIDFromTargetPath(ctx, stagingPath)
	if err != nil && !errors.Is(err, csiproxy.ErrNotFound) {
		return err
	}
	nothing := err != nil // or a volume that has left the node
	if id == "" {
		id = mounted
	}
	if id == "" {
		return nil
	}
	if nothing || mounted.Equal(id) {
		if err := p.Volume.UnmountVolume(ctx, id, stagingPath); err != nil {
			return err
		}
	}
	number, err := p.Volume.GetDiskNumberFromVolumeID(ctx, id)
	if errors.Is(err, csiproxy.ErrNotFound) {
		return nil // offline already, or gone
	}
	if err != nil {
		return err
	}
	return p.Disk.SetDiskState(ctx, number, false)
}

func (v ntfs) health(ctx context.Context, rec *record) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	// If a disk is gone or offline, Windows doesn't know its volume.
	_, err := v.proxy.Volume.GetDiskNumberFromVolumeID(ctx, rec.Volume)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
		return inaccessible("DiskMissing", "the volume's disk isn't attached, or is offline"), nil
	case err != nil:
		return nil, err
	}
	mounted, err := v.proxy.Volume.GetVolumeIDFromTargetPath(ctx, rec.StagingPath)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound) || err == nil && !mounted.Equal(rec.Volume):
		return inaccessible("NotMounted", "the volume isn't mounted at its staging path"), nil
	case err != nil:
		return nil, err
	}
	// Any error that keeps Windows from reading the file system is a health status.
	if _, err := v.proxy.Volume.GetVolumeStats(ctx, rec.Volume); err != nil && ctx.Err() == nil {
		return inaccessible("FileSystemUnreadable", err.Error()), nil
	}
	return nil, ctx.Err()
}

// cloudDisk is a disk that the Controller has attached. Its serial number is the volume
// id.
type cloudDisk struct{ disks Disk }

func (c cloudDisk) attach(ctx context.Context, rec *record, _ map[string]string) (disk.Number, error) {
	number, err := c.find(ctx, rec.VolumeID)
	if !errors.Is(err, csiproxy.ErrNotFound) {
		return number, err
	}
	// A rescan is slow, so it is made only if needed.
	if err := c.disks.Rescan(ctx); err != nil {
		return 0, err
	}
	return c.find(ctx, rec.VolumeID)
}

// find returns the disk with a serial number.
func (c cloudDisk) find(ctx context.Context, serial string) (disk.Number, error) {
	disks, err := c.disks.ListDiskIDs(ctx)
	if err != nil {
		return 0, err
	}
	for number, ids := range disks {
		if ids.SerialNumber == serial {
			return number, nil
		}
	}
	return 0, &csiproxy.Error{
		Op: "find", Object: "disk " + serial, Kind: csiproxy.ErrNotFound,
		Detail: "no disk of the node has this serial number",
	}
}

// detach does nothing, since the cloud detaches the disk.
func (cloudDisk) detach(context.Context, *record) error { return nil }
