// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	smbv1 "github.com/csi-proxy/csi-proxy/api/smb/v1"
	smbv1beta1 "github.com/csi-proxy/csi-proxy/api/smb/v1beta1"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// SMB calls the smb group. A [Client] has one.
//
// A mapping belongs to the node, not to the caller: all volumes on a share use the same mapping.
// Remove a mapping only when all users of the share are gone.
type SMB struct{ group *group }

// Version returns the version in use, such as "v1". If there is none yet, Version chooses the
// newest version served.
func (s *SMB) Version(ctx context.Context) (string, error) { return s.group.version(ctx) }

// NewSMBGlobalMapping implements [published.SMBOperations]: maps a share for the whole node.
func (s *SMB) NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c csiproxy.SMBCredentials) error {
	return s.group.call(ctx, "NewSMBGlobalMapping", quote.Text(remotePath),
		noResult("NewSmbGlobalMapping", &smbv1.NewSmbGlobalMappingRequest{
			RemotePath: remotePath, LocalPath: localPath, Username: c.Username, Password: c.Password.Reveal(),
		}),
		result("NewSmbGlobalMapping", &smbv1beta1.NewSmbGlobalMappingRequest{
			RemotePath: remotePath, LocalPath: localPath, Username: c.Username, Password: c.Password.Reveal(),
		}, func(*smbv1beta1.NewSmbGlobalMappingResponse) {}),
	)
}

// RemoveSMBGlobalMapping implements [published.SMBOperations]: removes the mapping of a share.
func (s *SMB) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return s.group.call(ctx, "RemoveSMBGlobalMapping", quote.Text(remotePath),
		noResult("RemoveSmbGlobalMapping", &smbv1.RemoveSmbGlobalMappingRequest{RemotePath: remotePath}),
		result("RemoveSmbGlobalMapping", &smbv1beta1.RemoveSmbGlobalMappingRequest{RemotePath: remotePath},
			func(*smbv1beta1.RemoveSmbGlobalMappingResponse) {}),
	)
}
