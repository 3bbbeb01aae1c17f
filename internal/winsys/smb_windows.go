// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsys/wmi"
)

// The global mappings are objects of MSFT_SmbGlobalMapping. Microsoft documents its
// sibling MSFT_SmbMapping, and the commands of PowerShell that call it.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbmapping
// and https://learn.microsoft.com/powershell/module/smbshare/new-smbglobalmapping

// SMBGlobalMappings lists the global mappings.
func (s *System) SMBGlobalMappings(ctx context.Context) (mappings []win.SMBMapping, err error) {
	err = wmi.Connect(ctx, smbNamespace, func(services *wmi.Services) (err error) {
		mappings, err = listSMBMappings(ctx, smbServices{services})
		return err
	})
	return mappings, err
}

// SMBConnections lists the connections to shares.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbconnection
func (s *System) SMBConnections(ctx context.Context) (connections []win.SMBConnection, err error) {
	err = wmi.Connect(ctx, smbNamespace, func(services *wmi.Services) (err error) {
		connections, err = listSMBConnections(ctx, smbServices{services})
		return err
	})
	return connections, err
}

// CreateSMBGlobalMapping implements [win.SMBMappings]. Once the call has begun, the end of
// ctx doesn't stop it.
func (s *System) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return wmi.Connect(ctx, smbNamespace, func(services *wmi.Services) error {
		return createSMBMapping(smbServices{services}, remotePath, o)
	})
}

// RemoveSMBGlobalMapping implements [win.SMBMappings].
func (s *System) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return wmi.Connect(ctx, smbNamespace, func(services *wmi.Services) error {
		return removeSMBMapping(ctx, smbServices{services}, remotePath)
	})
}

// smbServices are smbClasses of this machine.
type smbServices struct {
	services *wmi.Services
}

func (s smbServices) find(ctx context.Context, query string, f func(smbObject) error) error {
	return s.services.Select(ctx, query, func(o *wmi.Object) error { return f(o) })
}

func (s smbServices) execute(class, path, method string, in map[string]any) (uint32, error) {
	return s.services.Execute(class, path, method, in)
}
