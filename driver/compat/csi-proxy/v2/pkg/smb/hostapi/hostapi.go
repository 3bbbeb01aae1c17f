// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the host side of package smb, over CSI Proxy's operations.
package api

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
)

// HostAPI is what package smb needs of the node.
type HostAPI interface {
	// IsSMBMapped reports whether a share is mapped and can be used.
	IsSMBMapped(remotePath string) (bool, error)
	// NewSMBLink makes localPath a link to a share that is mapped.
	NewSMBLink(remotePath, localPath string) error
	// NewSMBGlobalMapping maps a share.
	NewSMBGlobalMapping(remotePath, username, password string) error
	// RemoveSMBGlobalMapping removes the mapping of a share.
	RemoveSMBGlobalMapping(remotePath string) error
}

type smbAPI struct{ in host.API }

// New returns the node's SMB mappings.
func New() HostAPI { return smbAPI{} }

// WithContext returns the same, for calls that end with ctx.
func (smbAPI) WithContext(ctx context.Context) HostAPI { return smbAPI{host.In(ctx)} }

func (s smbAPI) IsSMBMapped(remotePath string) (bool, error) {
	return host.ShareWorks(s.in, remotePath)
}

// NewSMBLink refuses: CSI Proxy makes no link to a share without knowing the credentials that its
// mapping must have.
func (s smbAPI) NewSMBLink(remotePath, localPath string) error {
	return csiproxy.Errorf(csiproxy.ErrUnimplemented,
		"NewSMBLink alone; call NewSMBGlobalMapping of package smb with a LocalPath")
}

func (s smbAPI) NewSMBGlobalMapping(remotePath, username, password string) error {
	return s.MapAndLink(remotePath, "", username, password)
}

// MapAndLink maps a share and, with a localPath, makes that a link to it. Package smb calls it.
func (s smbAPI) MapAndLink(remotePath, localPath, username, password string) error {
	return host.Do(s.in, func(ctx context.Context, n *node.Node) error {
		return n.SMB.NewSMBGlobalMapping(ctx, remotePath, localPath,
			csiproxy.SMBCredentials{Username: username, Password: csiproxy.NewSecret(password)})
	})
}

func (s smbAPI) RemoveSMBGlobalMapping(remotePath string) error {
	return host.Do(s.in, func(ctx context.Context, n *node.Node) error {
		return n.SMB.RemoveSMBGlobalMapping(ctx, remotePath)
	})
}
