// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"fmt"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// storageManagement are the calls of the storage management provider.
type storageManagement interface {
	// findVolume returns the object path of the MSFT_Volume with the given name, or
	// "" if the provider doesn't know it.
	findVolume(ctx context.Context, name string) (string, error)
	// updateCache is MSFT_StorageSetting.UpdateHostStorageCache.
	updateCache(ctx context.Context) error
	// format is MSFT_Volume.Format; it returns the method's result.
	format(ctx context.Context, volume string, o win.FormatOptions) (uint32, error)
	// repair is MSFT_Volume.Repair; it returns the method's result, and its Output.
	repair(ctx context.Context, volume string, mode win.RepairMode) (result, output uint32, err error)
	// offlineDisks calls f with the number and the OfflineReason of each MSFT_Disk that is
	// offline.
	offlineDisks(ctx context.Context, f func(number, reason uint32)) error
}

// formatVolume formats a volume. It doesn't wait: the caller has just looked at what the
// volume holds.
//
// The provider of the Windows storage management classes keeps a cache of disks,
// partitions and volumes that lags behind the partition manager. If it doesn't know the
// volume yet, the cache is updated and the error is [win.ErrorRetry].
func formatVolume(ctx context.Context, m storageManagement, name string, o win.FormatOptions) error {
	volume, err := knownVolume(ctx, m, name)
	if err != nil {
		return err
	}
	result, err := m.format(ctx, volume, o)
	return resultError(err, "Format", result)
}

// knownVolume returns the object path of a volume.
func knownVolume(ctx context.Context, m storageManagement, name string) (string, error) {
	volume, err := m.findVolume(ctx, name)
	if err != nil || volume != "" {
		return volume, err
	}
	if err := m.updateCache(ctx); err != nil {
		return "", err
	}
	return "", fmt.Errorf("MSFT_Volume: %s isn't known yet: %w", name, win.ErrorRetry)
}

// repairVolume checks or repairs a volume, and waits until that is done.
func repairVolume(ctx context.Context, m storageManagement, name string,
	mode win.RepairMode) (win.RepairResult, error) {
	volume, err := knownVolume(ctx, m, name)
	if err != nil {
		return 0, err
	}
	result, output, err := m.repair(ctx, volume, mode)
	return win.RepairResult(output), resultError(err, "Repair", result)
}

// offlineReasons lists the disks that are offline.
func offlineReasons(ctx context.Context, m storageManagement) (map[disk.Number]win.OfflineReason, error) {
	reasons := map[disk.Number]win.OfflineReason{}
	err := m.offlineDisks(ctx, func(number, reason uint32) { reasons[disk.Number(number)] = win.OfflineReason(reason) })
	if err != nil {
		return nil, err
	}
	return reasons, nil
}

// formatOptions are the in parameters of MSFT_Volume.Format. What the options leave to
// Windows, and what goes with another file system only, stays NULL.
func formatOptions(o win.FormatOptions) map[string]any {
	in := map[string]any{
		"FileSystem":      o.FileSystem,
		"FileSystemLabel": o.Label,
		"Full":            false,
		"Force":           false, // a volume that somebody uses isn't raw
	}
	if o.ClusterSize != 0 {
		in["AllocationUnitSize"] = o.ClusterSize
	}
	if o.NoShortNames {
		in["ShortFileNameSupport"] = false
	}
	if o.IntegrityStreams {
		in["SetIntegrityStreams"] = true
	}
	return in
}

// repairParameters has the in parameter of MSFT_Volume.Repair that asks for a mode.
var repairParameters = map[win.RepairMode]string{
	win.RepairScan: "Scan", win.RepairSpotFix: "SpotFix", win.RepairOffline: "OfflineScanAndFix",
}

// resultError is the error of a method of MSFT_Volume that returned err or else result.
func resultError(err error, method string, result uint32) error {
	if err != nil || result == 0 {
		return err
	}
	return volumeError{method, result}
}

// volumeError is a result other than 0 of a method of MSFT_Volume.
type volumeError struct {
	method string
	result uint32
}

// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/format-msft-volume
// and https://learn.microsoft.com/windows-hardware/drivers/storage/repair-msft-volume
var volumeErrnos = map[uint32]win.Errno{
	1:     win.ErrorNotSupported,
	3:     win.ErrorSemTimeout,
	5:     win.ErrorInvalidParameter,
	7:     win.ErrorNotSupported, // a 32-bit program on 64-bit Windows
	40001: win.ErrorAccessDenied,
	40004: win.ErrorIODevice,
	40018: win.ErrorBusy,             // a disk of a failover cluster that isn't in maintenance
	42010: win.ErrorAccessDenied,     // a system or critical partition
	43000: win.ErrorInvalidParameter, // the cluster size
	43001: win.ErrorNotSupported,     // the file system
	43002: win.ErrorNotSupported,     // quick format
	43003: win.ErrorInvalidParameter, // more clusters than 32 bits count
	43004: win.ErrorNotSupported,     // the UDF version
	43005: win.ErrorInvalidParameter, // clusters aren't multiples of sectors
	43006: win.ErrorWriteProtect,
	43007: win.ErrorIODevice,           // the repair failed
	43008: win.ErrorIODevice,           // the scan failed
	43009: win.ErrorBusy,               // the snapshot to scan can't be made; it may be retried
	43010: win.ErrorBusy,               // a scan of the volume is running
	43011: win.ErrorBusy,               // as 43009
	43012: win.ErrorIODevice,           // the snapshot can't be scanned: only an offline repair helps
	43013: win.ErrorAccessDenied,       // the volume can't be opened for direct access
	43014: win.ErrorUnrecognizedVolume, // the file system can't be determined
}

func (e volumeError) Error() string {
	return fmt.Sprintf("MSFT_Volume.%s: result %d: %v", e.method, e.result, e.Unwrap())
}

// Unwrap returns the error number with the same meaning.
func (e volumeError) Unwrap() error {
	if errno, ok := volumeErrnos[e.result]; ok {
		return errno
	}
	return win.ErrorGenFailure
}
