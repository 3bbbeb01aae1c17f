// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Driver stages, publishes, grows and unstages a volume as shipped drivers do that have the
// published library, and writes what it found. It knows nothing of CSI Proxy: only its go.mod
// does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kubernetes-csi/csi-proxy/v2/pkg/disk"
	diskapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/disk/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem"
	filesystemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/smb"
	smbapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/smb/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/system"
	systemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/system/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/volume"
	volumeapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/volume/hostapi"
)

const (
	serial  = "vol0abc1234def567890"
	staging = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\ebs.csi.aws.com\0123\globalmount`
	target  = `C:\var\lib\kubelet\pods\4567\volumes\kubernetes.io~csi\pv-1\mount`
	share   = `\\filer\data`
)

func main() {
	phases := map[string]func(*node, context.Context) error{
		"stage": (*node).stage, "unstage": (*node).unstage,
		"stage-share": (*node).stageShare, "unstage-share": (*node).unstageShare,
		"wait": wait,
	}
	n, err := open()
	if err == nil {
		err = phases[os.Args[1]](n, context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

// node is what the published library has for a node.
type node struct {
	disks    disk.Interface
	volumes  volume.Interface
	files    filesystem.Interface
	machine  system.Interface
	mappings smb.Interface
}

func open() (*node, error) {
	disks, disksErr := disk.New(diskapi.New())
	volumes, volumesErr := volume.New(volumeapi.New())
	files, filesErr := filesystem.New(filesystemapi.New())
	machine, machineErr := system.New(systemapi.New())
	mappings, mappingsErr := smb.New(smbapi.New(), files)
	return &node{disks, volumes, files, machine, mappings},
		errors.Join(disksErr, volumesErr, filesErr, machineErr, mappingsErr)
}

// wait does nothing until its standard input ends.
func wait(*node, context.Context) error {
	fmt.Println("waiting")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// find returns the number of the disk with the serial number.
func (n *node) find(ctx context.Context) (uint32, error) {
	if _, err := n.disks.Rescan(ctx, &disk.RescanRequest{}); err != nil {
		return 0, err
	}
	list, err := n.disks.ListDiskIDs(ctx, &disk.ListDiskIDsRequest{})
	if err != nil {
		return 0, err
	}
	for number, ids := range list.DiskIDs {
		if ids.SerialNumber == serial {
			return number, nil
		}
	}
	return 0, fmt.Errorf("no disk has the serial number %s", serial)
}

func (n *node) stage(ctx context.Context) error {
	number, err := n.find(ctx)
	if err != nil {
		return err
	}
	if initialized, err := diskapi.New().IsDiskInitialized(number); err != nil || initialized {
		return fmt.Errorf("the raw disk is initialized: %t, %w", initialized, err)
	}
	if _, err := n.disks.PartitionDisk(ctx, &disk.PartitionDiskRequest{DiskNumber: number}); err != nil {
		return err
	}
	if _, err := n.disks.SetDiskState(ctx, &disk.SetDiskStateRequest{DiskNumber: number, IsOnline: true}); err != nil {
		return err
	}
	list, err := n.volumes.ListVolumesOnDisk(ctx, &volume.ListVolumesOnDiskRequest{DiskNumber: number})
	if err != nil || len(list.VolumeIDs) != 1 {
		return fmt.Errorf("the volumes are %v: %w", list, err)
	}
	id := list.VolumeIDs[0]
	formatted, err := n.volumes.IsVolumeFormatted(ctx, &volume.IsVolumeFormattedRequest{VolumeID: id})
	if err != nil {
		return err
	}
	if !formatted.Formatted {
		if _, err := n.volumes.FormatVolume(ctx, &volume.FormatVolumeRequest{VolumeID: id}); err != nil {
			return err
		}
	}
	if _, err := n.files.Mkdir(ctx, &filesystem.MkdirRequest{Path: staging}); err != nil {
		return err
	}
	if _, err := n.volumes.MountVolume(ctx, &volume.MountVolumeRequest{VolumeID: id, TargetPath: staging}); err != nil {
		return err
	}
	if _, err := n.volumes.ResizeVolume(ctx, &volume.ResizeVolumeRequest{VolumeID: id}); err != nil {
		return err
	}
	if _, err := n.files.Mkdir(ctx, &filesystem.MkdirRequest{Path: target[:len(target)-len(`\mount`)]}); err != nil {
		return err
	}
	if _, err := n.files.CreateSymlink(ctx,
		&filesystem.CreateSymlinkRequest{SourcePath: staging, TargetPath: target}); err != nil {
		return err
	}
	stats, err := n.volumes.GetVolumeStats(ctx, &volume.GetVolumeStatsRequest{VolumeID: id})
	if err != nil {
		return err
	}
	bios, err := n.machine.GetBIOSSerialNumber(ctx, &system.GetBIOSSerialNumberRequest{})
	if err != nil {
		return err
	}
	fmt.Printf("disk %d, %d GiB, machine %s\n", number, stats.TotalBytes>>30, bios.SerialNumber)
	return nil
}

func (n *node) unstage(ctx context.Context) error {
	if _, err := n.files.Rmdir(ctx, &filesystem.RmdirRequest{Path: target, Force: true}); err != nil {
		return err
	}
	at, err := n.volumes.GetVolumeIDFromTargetPath(ctx, &volume.GetVolumeIDFromTargetPathRequest{TargetPath: staging})
	if err != nil {
		return err
	}
	on, err := n.volumes.GetDiskNumberFromVolumeID(ctx, &volume.GetDiskNumberFromVolumeIDRequest{VolumeID: at.VolumeID})
	if err != nil {
		return err
	}
	if _, err := n.volumes.UnmountVolume(ctx,
		&volume.UnmountVolumeRequest{VolumeID: at.VolumeID, TargetPath: staging}); err != nil {
		return err
	}
	if _, err := n.files.Rmdir(ctx, &filesystem.RmdirRequest{Path: staging, Force: true}); err != nil {
		return err
	}
	_, err = n.disks.SetDiskState(ctx, &disk.SetDiskStateRequest{DiskNumber: on.DiskNumber})
	return err
}

func (n *node) stageShare(ctx context.Context) error {
	if valid, err := n.files.PathValid(ctx, &filesystem.PathValidRequest{Path: share}); err != nil || valid.Valid {
		return fmt.Errorf("before it is mapped, the share is valid: %+v, %w", valid, err)
	}
	for range 2 { // kubelet repeats calls
		_, err := n.mappings.NewSMBGlobalMapping(ctx, &smb.NewSMBGlobalMappingRequest{
			RemotePath: share, LocalPath: staging, Username: "app", Password: os.Getenv("PASSWORD"),
		})
		if err != nil {
			return err
		}
	}
	if mapped, err := smbapi.New().IsSMBMapped(share); err != nil || !mapped {
		return fmt.Errorf("mapped: %t, %w", mapped, err)
	}
	valid, err := n.files.PathValid(ctx, &filesystem.PathValidRequest{Path: share})
	if err != nil || !valid.Valid {
		return fmt.Errorf("the share is valid: %+v, %w", valid, err)
	}
	return nil
}

func (n *node) unstageShare(ctx context.Context) error {
	if _, err := n.files.Rmdir(ctx, &filesystem.RmdirRequest{Path: staging, Force: true}); err != nil {
		return err
	}
	_, err := n.mappings.RemoveSMBGlobalMapping(ctx, &smb.RemoveSMBGlobalMappingRequest{RemotePath: share})
	return err
}
