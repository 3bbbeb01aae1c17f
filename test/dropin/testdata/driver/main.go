// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Driver stages, publishes, grows and unstages a volume as shipped drivers do that have the
// published library, and writes what it found. It knows nothing of CSI Proxy: only its go.mod
// does.
package main

import (
	"context"
	"fmt"
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
	phases := map[string]func(context.Context) error{
		"stage": stage, "unstage": unstage, "stage-share": stageShare, "unstage-share": unstageShare,
	}
	if err := phases[os.Args[1]](context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

// find returns the number of the disk with the serial number.
func find(ctx context.Context, disks disk.Interface) (uint32, error) {
	if _, err := disks.Rescan(ctx, &disk.RescanRequest{}); err != nil {
		return 0, err
	}
	list, err := disks.ListDiskIDs(ctx, &disk.ListDiskIDsRequest{})
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

func stage(ctx context.Context) error {
	disks, err := disk.New(diskapi.New())
	if err != nil {
		return err
	}
	volumes, err := volume.New(volumeapi.New())
	if err != nil {
		return err
	}
	files, err := filesystem.New(filesystemapi.New())
	if err != nil {
		return err
	}
	machine, err := system.New(systemapi.New())
	if err != nil {
		return err
	}
	number, err := find(ctx, disks)
	if err != nil {
		return err
	}
	if initialized, err := diskapi.New().IsDiskInitialized(number); err != nil || initialized {
		return fmt.Errorf("the raw disk is initialized: %t, %w", initialized, err)
	}
	if _, err := disks.PartitionDisk(ctx, &disk.PartitionDiskRequest{DiskNumber: number}); err != nil {
		return err
	}
	if _, err := disks.SetDiskState(ctx, &disk.SetDiskStateRequest{DiskNumber: number, IsOnline: true}); err != nil {
		return err
	}
	list, err := volumes.ListVolumesOnDisk(ctx, &volume.ListVolumesOnDiskRequest{DiskNumber: number})
	if err != nil || len(list.VolumeIDs) != 1 {
		return fmt.Errorf("the volumes are %v: %w", list, err)
	}
	id := list.VolumeIDs[0]
	formatted, err := volumes.IsVolumeFormatted(ctx, &volume.IsVolumeFormattedRequest{VolumeID: id})
	if err != nil {
		return err
	}
	if !formatted.Formatted {
		if _, err := volumes.FormatVolume(ctx, &volume.FormatVolumeRequest{VolumeID: id}); err != nil {
			return err
		}
	}
	if _, err := files.Mkdir(ctx, &filesystem.MkdirRequest{Path: staging}); err != nil {
		return err
	}
	if _, err := volumes.MountVolume(ctx, &volume.MountVolumeRequest{VolumeID: id, TargetPath: staging}); err != nil {
		return err
	}
	if _, err := volumes.ResizeVolume(ctx, &volume.ResizeVolumeRequest{VolumeID: id}); err != nil {
		return err
	}
	if _, err := files.Mkdir(ctx, &filesystem.MkdirRequest{Path: target[:len(target)-len(`\mount`)]}); err != nil {
		return err
	}
	if _, err := files.CreateSymlink(ctx,
		&filesystem.CreateSymlinkRequest{SourcePath: staging, TargetPath: target}); err != nil {
		return err
	}
	stats, err := volumes.GetVolumeStats(ctx, &volume.GetVolumeStatsRequest{VolumeID: id})
	if err != nil {
		return err
	}
	bios, err := machine.GetBIOSSerialNumber(ctx, &system.GetBIOSSerialNumberRequest{})
	if err != nil {
		return err
	}
	fmt.Printf("disk %d, %d GiB, machine %s\n", number, stats.TotalBytes>>30, bios.SerialNumber)
	return nil
}

func unstage(ctx context.Context) error {
	disks, err := disk.New(diskapi.New())
	if err != nil {
		return err
	}
	volumes, err := volume.New(volumeapi.New())
	if err != nil {
		return err
	}
	files, err := filesystem.New(filesystemapi.New())
	if err != nil {
		return err
	}
	if _, err := files.Rmdir(ctx, &filesystem.RmdirRequest{Path: target, Force: true}); err != nil {
		return err
	}
	at, err := volumes.GetVolumeIDFromTargetPath(ctx, &volume.GetVolumeIDFromTargetPathRequest{TargetPath: staging})
	if err != nil {
		return err
	}
	on, err := volumes.GetDiskNumberFromVolumeID(ctx, &volume.GetDiskNumberFromVolumeIDRequest{VolumeID: at.VolumeID})
	if err != nil {
		return err
	}
	if _, err := volumes.UnmountVolume(ctx,
		&volume.UnmountVolumeRequest{VolumeID: at.VolumeID, TargetPath: staging}); err != nil {
		return err
	}
	if _, err := files.Rmdir(ctx, &filesystem.RmdirRequest{Path: staging, Force: true}); err != nil {
		return err
	}
	_, err = disks.SetDiskState(ctx, &disk.SetDiskStateRequest{DiskNumber: on.DiskNumber})
	return err
}

// shares returns the node's mappings and files.
func shares() (smb.Interface, filesystem.Interface, error) {
	files, err := filesystem.New(filesystemapi.New())
	if err != nil {
		return nil, nil, err
	}
	mappings, err := smb.New(smbapi.New(), files)
	return mappings, files, err
}

func stageShare(ctx context.Context) error {
	mappings, files, err := shares()
	if err != nil {
		return err
	}
	if valid, err := files.PathValid(ctx, &filesystem.PathValidRequest{Path: share}); err != nil || valid.Valid {
		return fmt.Errorf("before it is mapped, the share is valid: %+v, %w", valid, err)
	}
	for range 2 { // kubelet repeats calls
		_, err := mappings.NewSMBGlobalMapping(ctx, &smb.NewSMBGlobalMappingRequest{
			RemotePath: share, LocalPath: staging, Username: "app", Password: os.Getenv("PASSWORD"),
		})
		if err != nil {
			return err
		}
	}
	if mapped, err := smbapi.New().IsSMBMapped(share); err != nil || !mapped {
		return fmt.Errorf("mapped: %t, %w", mapped, err)
	}
	valid, err := files.PathValid(ctx, &filesystem.PathValidRequest{Path: share})
	if err != nil || !valid.Valid {
		return fmt.Errorf("the share is valid: %+v, %w", valid, err)
	}
	return nil
}

func unstageShare(ctx context.Context) error {
	mappings, files, err := shares()
	if err != nil {
		return err
	}
	if _, err := files.Rmdir(ctx, &filesystem.RmdirRequest{Path: staging, Force: true}); err != nil {
		return err
	}
	_, err = mappings.RemoveSMBGlobalMapping(ctx, &smb.RemoveSMBGlobalMappingRequest{RemotePath: share})
	return err
}
