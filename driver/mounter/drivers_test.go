// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mounter_test

import (
	"context"
	"strconv"

	mount "k8s.io/mount-utils"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/mounter"
)

// ebs is all that the EBS driver needs of its own on Windows: its mounter for csi-proxy/v2, and
// the one for the pipes, go.
type ebs struct{ *mounter.Mounter }

// What the EBS driver's Node service calls (pkg/mounter/mount.go).
var _ interface {
	mount.Interface
	FormatAndMountSensitiveWithFormatOptions(source, target, fstype string,
		options, sensitiveOptions, formatOptions []string) error
	IsCorruptedMnt(err error) bool
	GetDeviceNameFromMount(mountPath string) (string, int, error)
	MakeFile(path string) error
	MakeDir(path string) error
	PathExists(path string) (bool, error)
	NeedResize(devicePath, deviceMountPath string) (bool, error)
	Unpublish(path string) error
	Unstage(path string) error
	Resize(devicePath, deviceMountPath string, newSize int64) (bool, error)
	FindDevicePath(devicePath, volumeID, partition, region string) (string, error)
	PreparePublishTarget(target string) error
	IsBlockDevice(fullPath string) (bool, error)
	GetBlockSizeBytes(devicePath string) (int64, error)
	GetVolumeStats(volumePath string) (volumeStats, error)
} = ebs{}

type volumeStats struct{ AvailableBytes, TotalBytes, UsedBytes int64 } // and inodes, which Windows hasn't

func (m ebs) FindDevicePath(_, volumeID, _, _ string) (string, error) {
	return m.FindDisk(csiproxy.Selector{SerialNumber: volumeID})
}

func (m ebs) GetDeviceNameFromMount(mountPath string) (string, int, error) {
	device, err := m.Device(mountPath)
	return device, 1, err
}

func (m ebs) GetBlockSizeBytes(devicePath string) (int64, error) {
	number, err := csiproxy.ParseDiskNumber(devicePath)
	if err != nil {
		return 0, err
	}
	stats, err := m.Disk.GetDiskStats(context.Background(), number)
	return stats.SizeBytes, err
}

func (m ebs) GetVolumeStats(path string) (volumeStats, error) {
	v, err := m.Storage.GetVolume(context.Background(), path)
	return volumeStats{v.FreeBytes, v.SizeBytes, v.UsedBytes}, err
}

func (m ebs) Resize(_, deviceMountPath string, _ int64) (bool, error) {
	return m.Mounter.Resize("", deviceMountPath)
}

func (m ebs) IsCorruptedMnt(err error) bool               { return mount.IsCorruptedMnt(err) }
func (m ebs) MakeFile(string) error                       { return nil } // for block volumes, which Windows has none of
func (m ebs) NeedResize(string, string) (bool, error)     { return true, nil }
func (m ebs) Unpublish(path string) error                 { return m.Unmount(path) }
func (m ebs) Unstage(path string) error                   { return m.Unmount(path) }
func (m ebs) PreparePublishTarget(target string) error    { return nil } // Mount replaces an empty directory
func (m ebs) IsBlockDevice(fullPath string) (bool, error) { return false, nil }

// azureDisk is the same for Azure Disk.
type azureDisk struct{ *mounter.Mounter }

// What the Azure Disk driver's Node service calls (pkg/mounter, CSIProxyMounter), apart from the
// usage, which GetVolume of the storage API tells.
var _ interface {
	mount.Interface
	FormatAndMount(source, target, fstype string, options []string) error
	Rmdir(path string) error
	MakeDir(path string) error
	ExistsPath(path string) (bool, error)
	Rescan() error
	FindDiskByLun(lun string) (string, error)
	GetDeviceNameFromMount(mountPath, pluginMountDir string) (string, error)
	GetVolumeSizeInBytes(mountPath string) (int64, error)
	ResizeVolume(mountPath string) error
} = azureDisk{}

func (m azureDisk) FindDiskByLun(lun string) (string, error) {
	n, err := strconv.ParseUint(lun, 10, 32)
	if err != nil {
		return "", err
	}
	azureLUN := uint32(n)
	return m.FindDisk(csiproxy.Selector{AzureLUN: &azureLUN})
}

// GetDeviceNameFromMount gives the path itself: that is what GetVolumeSizeInBytes and ResizeVolume
// get.
func (m azureDisk) GetDeviceNameFromMount(mountPath, _ string) (string, error) { return mountPath, nil }

func (m azureDisk) GetVolumeSizeInBytes(mountPath string) (int64, error) {
	v, err := m.Storage.GetVolume(context.Background(), mountPath)
	return v.SizeBytes, err
}

func (m azureDisk) ResizeVolume(mountPath string) error {
	_, err := m.Resize("", mountPath)
	return err
}

func (m azureDisk) ExistsPath(path string) (bool, error) { return m.PathExists(path) }
func (m azureDisk) Rmdir(path string) error              { return m.Unmount(path) }
func (m azureDisk) Rescan() error                        { return m.Disk.Rescan(context.Background()) }
