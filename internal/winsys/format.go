// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// storageManagement are the calls of the storage management provider that a format
// needs.
type storageManagement interface {
	// findVolume returns the object path of the MSFT_Volume with the given name, or
	// "" if the provider doesn't know it.
	findVolume(ctx context.Context, name string) (string, error)
	// updateCache is MSFT_StorageSetting.UpdateHostStorageCache.
	updateCache(ctx context.Context) error
	// format is MSFT_Volume.Format; it returns the method's result.
	format(ctx context.Context, volume string, o win.FormatOptions) (uint32, error)
}

// formatVolume formats a volume. It doesn't wait: the caller has just looked at what the
// volume holds.
//
// The provider of the Windows storage management classes keeps a cache of disks,
// partitions and volumes that lags behind the partition manager. If it doesn't know the
// volume yet, the cache is updated and the error is [win.ErrorRetry].
func formatVolume(ctx context.Context, m storageManagement, name string, o win.FormatOptions) error {
	volume, err := m.findVolume(ctx, name)
	if err != nil {
		return err
	}
	if volume == "" {
		if err := m.updateCache(ctx); err != nil {
			return err
		}
		return fmt.Errorf("MSFT_Volume: %s isn't known yet: %w", name, win.ErrorRetry)
	}
	result, err := m.format(ctx, volume, o)
	if err != nil || result == 0 {
		return err
	}
	return formatError(result)
}

// formatError is a result of MSFT_Volume.Format other than 0.
type formatError uint32

// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/format-msft-volume
var formatErrnos = map[formatError]win.Errno{
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
}

func (e formatError) Error() string {
	return fmt.Sprintf("MSFT_Volume.Format: result %d: %v", uint32(e), e.Unwrap())
}

// Unwrap returns the error number with the same meaning.
func (e formatError) Unwrap() error {
	if errno, ok := formatErrnos[e]; ok {
		return errno
	}
	return win.ErrorGenFailure
}
