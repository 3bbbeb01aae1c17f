// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package smb has the published library's methods for SMB global mappings, over CSI Proxy's operations.
package smb

import (
	"context"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
	fs "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem"
	api "github.com/kubernetes-csi/csi-proxy/v2/pkg/smb/hostapi"
)

// Interface is the node's SMB global mappings.
type Interface interface {
	// NewSMBGlobalMapping maps a share and, with a LocalPath, makes that a link to it.
	NewSMBGlobalMapping(context.Context, *NewSMBGlobalMappingRequest) (*NewSMBGlobalMappingResponse, error)
	// RemoveSMBGlobalMapping removes the mapping of a share.
	RemoveSMBGlobalMapping(context.Context, *RemoveSMBGlobalMappingRequest) (*RemoveSMBGlobalMappingResponse, error)
}

// SMB implements [Interface] over a HostAPI.
type SMB struct{ hostAPI api.HostAPI }

var _ Interface = (*SMB)(nil)

// New returns the node's SMB global mappings. The published library asks fsClient whether a
// mapping works. CSI Proxy looks itself, so nothing is asked of it. The error is always nil.
func New(hostAPI api.HostAPI, fsClient fs.Interface) (*SMB, error) { return &SMB{hostAPI}, nil }

func (s *SMB) host(ctx context.Context) api.HostAPI { return host.WithContext(ctx, s.hostAPI) }

// NewSMBGlobalMapping implements [Interface]. A mapping that works is kept, and one that fails
// for everybody is made again: CSI Proxy's operation decides that.
func (s *SMB) NewSMBGlobalMapping(ctx context.Context,
	request *NewSMBGlobalMappingRequest) (*NewSMBGlobalMappingResponse, error) {
	r, hostAPI := request, s.host(ctx)
	if ours, ok := hostAPI.(interface {
		MapAndLink(remotePath, localPath, username, password string) error
	}); ok {
		return &NewSMBGlobalMappingResponse{}, ours.MapAndLink(r.RemotePath, r.LocalPath, r.Username, r.Password)
	}
	err := hostAPI.NewSMBGlobalMapping(r.RemotePath, r.Username, r.Password)
	if err == nil && r.LocalPath != "" {
		err = hostAPI.NewSMBLink(r.RemotePath, r.LocalPath)
	}
	return &NewSMBGlobalMappingResponse{}, err
}

func (s *SMB) RemoveSMBGlobalMapping(ctx context.Context,
	request *RemoveSMBGlobalMappingRequest) (*RemoveSMBGlobalMappingResponse, error) {
	return &RemoveSMBGlobalMappingResponse{}, s.host(ctx).RemoveSMBGlobalMapping(request.RemotePath)
}
