// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsys/wmi"
)

// FormatVolume is MSFT_Volume.Format: a quick format without questions. Once it has
// begun, the end of ctx doesn't stop it.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/format-msft-volume
func (s *System) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return wmi.Connect(ctx, `root\Microsoft\Windows\Storage`, func(services *wmi.Services) error {
		return formatVolume(ctx, storageProvider{services}, volume, o)
	})
}

// storageProvider is the provider of the Windows storage management classes.
type storageProvider struct {
	services *wmi.Services
}

// findVolume searches all volumes instead of querying for one, so that no text from
// outside becomes part of a query.
func (p storageProvider) findVolume(ctx context.Context, name string) (path string, err error) {
	errFound := errors.New("found")
	err = p.services.Select(ctx, "SELECT * FROM MSFT_Volume", func(o *wmi.Object) error {
		volume, err := o.String("Path") // \\?\Volume{guid}\
		if err != nil || !strings.EqualFold(volume, name) {
			return err
		}
		if path, err = o.String("__PATH"); err != nil {
			return err
		}
		return errFound
	})
	if err == errFound {
		err = nil
	}
	return path, err
}

func (p storageProvider) updateCache(context.Context) error {
	_, err := p.services.Execute("MSFT_StorageSetting", "MSFT_StorageSetting", "UpdateHostStorageCache", nil)
	return err
}

func (p storageProvider) format(_ context.Context, volume string, o win.FormatOptions) (uint32, error) {
	in := map[string]any{
		"FileSystem":      o.FileSystem,
		"FileSystemLabel": o.Label,
		"Full":            false,
		"Force":           false, // a volume that somebody uses isn't raw
	}
	if o.ClusterSize != 0 {
		in["AllocationUnitSize"] = o.ClusterSize
	}
	return p.services.Execute("MSFT_Volume", volume, "Format", in)
}
