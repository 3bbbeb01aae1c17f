// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const storageNamespace = `root\Microsoft\Windows\Storage`

// formatVolume formats a volume at once: the caller has just checked the volume's contents.
//
// The provider of the Windows storage management classes keeps a cache of disks, partitions and
// volumes, which lags behind the partition manager. If the volume is missing from the cache, the
// error is [winerr.ErrorRetry].
func formatVolume(ctx context.Context, c classes, name string, o win.FormatOptions) error {
	if o.UpdateList {
		if err := updateStorageCache(c); err != nil {
			return err
		}
	}
	volume, err := knownVolume(ctx, c, name)
	if err != nil {
		return err
	}
	result, err := execute(c, "MSFT_Volume", volume, "Format", formatOptions(o))
	return resultError(err, "Format", result)
}

// knownVolume returns the object path of a volume.
func knownVolume(ctx context.Context, c classes, name string) (path string, err error) {
	errFound := errors.New("found")
	err = c.find(ctx, "SELECT * FROM MSFT_Volume", func(o object) error {
		volume, err := o.String("Path") // \\?\Volume{guid}\
		if err != nil || !strings.EqualFold(volume, name) {
			return err
		}
		if path, err = o.String("__PATH"); err != nil {
			return err
		}
		return errFound
	})
	if err == nil {
		err = fmt.Errorf("MSFT_Volume: %s isn't known yet: %w", name, winerr.ErrorRetry)
	} else if err == errFound {
		err = nil
	}
	return path, err
}

// updateStorageCache has the provider ask for all disks, partitions and volumes.
func updateStorageCache(c classes) error {
	_, err := execute(c, "MSFT_StorageSetting", "MSFT_StorageSetting", "UpdateHostStorageCache", nil)
	return err
}

// repairVolume checks or repairs a volume, and waits for the end of the repair.
func repairVolume(ctx context.Context, c classes, name string, mode win.RepairMode) (win.RepairResult, error) {
	volume, err := knownVolume(ctx, c, name)
	if errors.Is(err, winerr.ErrorRetry) {
		err = cmp.Or(updateStorageCache(c), err)
	}
	if err != nil {
		return 0, err
	}
	var result, output uint32
	in := map[string]any{repairParameters[mode]: true}
	err = c.call("MSFT_Volume", volume, "Repair", in, func(out object) (err error) {
		if result, err = out.Uint32("ReturnValue"); err != nil || result != 0 {
			return err
		}
		output, err = out.Uint32("Output")
		return err
	})
	return win.RepairResult(output), resultError(err, "Repair", result)
}

// formatOptions returns the in parameters of MSFT_Volume.Format. Options left to Windows, and
// options of another file system, stay NULL.
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

// repairParameters maps each mode to its in parameter of MSFT_Volume.Repair.
var repairParameters = map[win.RepairMode]string{
	win.RepairScan: "Scan", win.RepairSpotFix: "SpotFix", win.RepairOffline: "OfflineScanAndFix",
}

// resultError returns the error of a method of MSFT_Volume: err or else result.
func resultError(err error, method string, result uint32) error {
	if err != nil || result == 0 {
		return err
	}
	return volumeError{method, result}
}

// volumeError is a nonzero result of a method of MSFT_Volume.
type volumeError struct {
	method string
	result uint32
}

// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/format-msft-volume
// and https://learn.microsoft.com/windows-hardware/drivers/storage/repair-msft-volume
var volumeErrnos = map[uint32]winerr.Errno{
	1:     winerr.ErrorNotSupported,
	3:     winerr.ErrorSemTimeout,
	5:     winerr.ErrorInvalidParameter,
	7:     winerr.ErrorNotSupported, // a 32-bit program on 64-bit Windows
	40001: winerr.ErrorAccessDenied,
	40004: winerr.ErrorIODevice,
	40018: winerr.ErrorBusy,             // a disk of a failover cluster that isn't in maintenance
	42010: winerr.ErrorAccessDenied,     // a system or critical partition
	43000: winerr.ErrorInvalidParameter, // the cluster size
	43001: winerr.ErrorNotSupported,     // the file system
	43002: winerr.ErrorNotSupported,     // quick format
	43003: winerr.ErrorInvalidParameter, // more clusters than 32 bits count
	43004: winerr.ErrorNotSupported,     // the UDF version
	43005: winerr.ErrorInvalidParameter, // clusters aren't multiples of sectors
	43006: winerr.ErrorWriteProtect,
	43007: winerr.ErrorIODevice,           // the repair failed
	43008: winerr.ErrorIODevice,           // the scan failed
	43009: winerr.ErrorBusy,               // the snapshot to scan can't be made; it may be retried
	43010: winerr.ErrorBusy,               // a scan of the volume is running
	43011: winerr.ErrorBusy,               // as 43009
	43012: winerr.ErrorIODevice,           // the snapshot can't be scanned: only an offline repair helps
	43013: winerr.ErrorAccessDenied,       // the volume can't be opened for direct access
	43014: winerr.ErrorUnrecognizedVolume, // the file system can't be determined
}

func (e volumeError) Error() string {
	return fmt.Sprintf("MSFT_Volume.%s: result %d: %v", e.method, e.result, e.Unwrap())
}

// Unwrap returns the error number with the same meaning.
func (e volumeError) Unwrap() error {
	if errno, ok := volumeErrnos[e.result]; ok {
		return errno
	}
	return winerr.ErrorGenFailure
}
