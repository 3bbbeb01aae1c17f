// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	smbv1 "github.com/csi-proxy/csi-proxy/api/smb/v1"
	smbv1beta1 "github.com/csi-proxy/csi-proxy/api/smb/v1beta1"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/smb"
)

// SMB calls the smb group. A [Client] has one.
//
// A mapping is the node's, not the caller's: all volumes on a share have the same
// one, and who removes it must know that nobody else needs it.
type SMB struct{ group *group }

// Version returns the version in use, such as "v1", and looks for the newest one
// that is served if none is.
func (s *SMB) Version(ctx context.Context) (string, error) { return s.group.version(ctx) }

// NewSMBGlobalMapping makes the share of remotePath, which is \\server\share or a
// directory on it, usable by the whole node. A mapping that works is kept, whoever's
// credentials it was made with; a broken one is made again. If localPath isn't
// empty, it becomes a directory link to remotePath, in a directory that must be
// there; it may be that link already, but anything else there is
// csiproxy.ErrAlreadyExists.
//
// Credentials that the server refuses are csiproxy.ErrUnauthenticated, a share that
// it doesn't have is csiproxy.ErrNotFound, a server that can't be reached is
// csiproxy.ErrUnavailable, and another user's mapping of the same server is
// csiproxy.ErrFailedPrecondition.
func (s *SMB) NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c smb.Credentials) error {
	return s.group.call(ctx, "NewSMBGlobalMapping", quote.Text(remotePath),
		noResult("NewSmbGlobalMapping", &smbv1.NewSmbGlobalMappingRequest{
			RemotePath: remotePath, LocalPath: localPath, Username: c.Username, Password: c.Password.Reveal(),
		}, &smbv1.NewSmbGlobalMappingResponse{}),
		noResult("NewSmbGlobalMapping", &smbv1beta1.NewSmbGlobalMappingRequest{
			RemotePath: remotePath, LocalPath: localPath, Username: c.Username, Password: c.Password.Reveal(),
		}, &smbv1beta1.NewSmbGlobalMappingResponse{}),
	)
}

// RemoveSMBGlobalMapping removes the mapping of the share of remotePath, also while
// it is used. Links to the share stay. No such mapping is csiproxy.ErrNotFound.
func (s *SMB) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return s.group.call(ctx, "RemoveSMBGlobalMapping", quote.Text(remotePath),
		noResult("RemoveSmbGlobalMapping", &smbv1.RemoveSmbGlobalMappingRequest{RemotePath: remotePath}, &smbv1.RemoveSmbGlobalMappingResponse{}),
		noResult("RemoveSmbGlobalMapping", &smbv1beta1.RemoveSmbGlobalMappingRequest{RemotePath: remotePath}, &smbv1beta1.RemoveSmbGlobalMappingResponse{}),
	)
}
