// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"strings"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsys/wmi"
)

const storageNamespace = `root\Microsoft\Windows\Storage`

// FormatVolume implements [win.FileSystems]. Once it has begun, the end of ctx
// doesn't stop it.
func (s *System) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return wmi.Connect(ctx, storageNamespace, func(services *wmi.Services) error {
		return formatVolume(ctx, storageProvider{services}, volume, o)
	})
}

// RepairVolume implements [win.FileSystems].
func (s *System) RepairVolume(ctx context.Context, volume string,
	mode win.RepairMode) (result win.RepairResult, err error) {
	err = wmi.Connect(ctx, storageNamespace, func(services *wmi.Services) (err error) {
		result, err = repairVolume(ctx, storageProvider{services}, volume, mode)
		return err
	})
	return result, err
}

// OfflineReasons implements [win.Devices].
func (s *System) OfflineReasons(ctx context.Context) (reasons map[disk.Number]win.OfflineReason, err error) {
	err = wmi.Connect(ctx, storageNamespace, func(services *wmi.Services) (err error) {
		reasons, err = offlineReasons(ctx, storageProvider{services})
		return err
	})
	return reasons, err
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
	return p.services.Execute("MSFT_Volume", volume, "Format", formatOptions(o))
}

func (p storageProvider) repair(_ context.Context, volume string,
	mode win.RepairMode) (result, output uint32, err error) {
	out, err := p.services.Call("MSFT_Volume", volume, "Repair", map[string]any{repairParameters[mode]: true})
	if err != nil {
		return 0, 0, err
	}
	defer out.Close()
	if result, err = out.Uint32("ReturnValue"); err != nil || result != 0 {
		return result, 0, err
	}
	output, err = out.Uint32("Output")
	return 0, output, err
}

// offlineDisks selects all properties of all disks: an object of a part of them may lack
// what the provider fills in later.
func (p storageProvider) offlineDisks(ctx context.Context, f func(number, reason uint32)) error {
	return p.services.Select(ctx, "SELECT * FROM MSFT_Disk", func(o *wmi.Object) error {
		offline, err := o.Get("IsOffline")
		if err != nil || offline != true {
			return err
		}
		number, err := o.Uint32("Number")
		if err != nil {
			return err
		}
		reason, err := o.Get("OfflineReason")
		if err != nil {
			return err
		}
		value, _ := reason.(int64) // NULL: none is known
		f(number, uint32(value))
		return nil
	})
}
