// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winsys/wmi"
)

// services are the classes of this machine.
type services struct{ *wmi.Services }

func (s services) find(ctx context.Context, query string, f func(object) error) error {
	return s.Select(ctx, query, func(o *wmi.Object) error { return f(o) })
}

func (s services) call(class, path, method string, in map[string]any, f func(out object) error) error {
	out, err := s.Call(class, path, method, in)
	if err != nil {
		return err
	}
	defer out.Close()
	return f(out)
}

// inNamespace returns the result of f with the classes of a namespace.
func inNamespace[T any](ctx context.Context, namespace string, f func(classes) (T, error)) (v T, err error) {
	err = wmi.Connect(ctx, namespace, func(s *wmi.Services) (err error) {
		v, err = f(services{s})
		return err
	})
	return v, err
}

// FormatVolume implements [win.FileSystems]. Once begun, the format ignores the end of ctx.
func (s *System) FormatVolume(ctx context.Context, volume string, o win.FormatOptions) error {
	return wmi.Connect(ctx, storageNamespace, func(s *wmi.Services) error {
		return formatVolume(ctx, services{s}, volume, o)
	})
}

// RepairVolume implements [win.FileSystems].
func (s *System) RepairVolume(ctx context.Context, volume string, mode win.RepairMode) (win.RepairResult, error) {
	return inNamespace(ctx, storageNamespace, func(c classes) (win.RepairResult, error) {
		return repairVolume(ctx, c, volume, mode)
	})
}

// TryStorageProvider implements [win.FileSystems].
func (s *System) TryStorageProvider(ctx context.Context) error {
	return wmi.Connect(ctx, storageNamespace, func(s *wmi.Services) error {
		return services{s}.find(ctx, "SELECT * FROM MSFT_Volume", func(object) error { return nil })
	})
}

// SMBGlobalMappings lists the global mappings.
func (s *System) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	return inNamespace(ctx, smbNamespace, func(c classes) ([]win.SMBMapping, error) { return listSMBMappings(ctx, c) })
}

// SMBConnections lists the connections to shares.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbconnection
func (s *System) SMBConnections(ctx context.Context) ([]win.SMBConnection, error) {
	return inNamespace(ctx, smbNamespace, func(c classes) ([]win.SMBConnection, error) {
		return listSMBConnections(ctx, c)
	})
}

// CreateSMBGlobalMapping implements [win.SMBMappings]. Once begun, the call ignores the end of ctx.
func (s *System) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return wmi.Connect(ctx, smbNamespace, func(s *wmi.Services) error {
		return createSMBMapping(services{s}, remotePath, o)
	})
}

// RemoveSMBGlobalMapping implements [win.SMBMappings].
func (s *System) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return wmi.Connect(ctx, smbNamespace, func(s *wmi.Services) error {
		return removeSMBMapping(ctx, services{s}, remotePath)
	})
}
