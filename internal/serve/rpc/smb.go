// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	smbv1 "github.com/csi-proxy/csi-proxy/api/smb/v1"
	smbv1beta1 "github.com/csi-proxy/csi-proxy/api/smb/v1beta1"
	"github.com/csi-proxy/csi-proxy/published"
)

func smbVersions(ops published.SMBOperations) versions {
	current := methods{
		"NewSmbGlobalMapping": action(func(ctx context.Context, req *smbv1.NewSmbGlobalMappingRequest) error {
			c := csiproxy.SMBCredentials{Username: req.Username, Password: csiproxy.NewSecret(req.Password)}
			return ops.NewSMBGlobalMapping(ctx, req.RemotePath, req.LocalPath, c)
		}),
		"RemoveSmbGlobalMapping": action(func(ctx context.Context, req *smbv1.RemoveSmbGlobalMappingRequest) error {
			return ops.RemoveSMBGlobalMapping(ctx, req.RemotePath)
		}),
	}

	first := methods{ // the error fields of its responses stay empty
		"NewSmbGlobalMapping": unary(func(ctx context.Context,
			req *smbv1beta1.NewSmbGlobalMappingRequest) (*smbv1beta1.NewSmbGlobalMappingResponse, error) {
			c := csiproxy.SMBCredentials{Username: req.Username, Password: csiproxy.NewSecret(req.Password)}
			return &smbv1beta1.NewSmbGlobalMappingResponse{}, ops.NewSMBGlobalMapping(ctx, req.RemotePath, req.LocalPath, c)
		}),
		"RemoveSmbGlobalMapping": unary(func(ctx context.Context,
			req *smbv1beta1.RemoveSmbGlobalMappingRequest) (*smbv1beta1.RemoveSmbGlobalMappingResponse, error) {
			return &smbv1beta1.RemoveSmbGlobalMappingResponse{}, ops.RemoveSMBGlobalMapping(ctx, req.RemotePath)
		}),
	}

	return versions{
		"v1":       {current},
		"v1beta2":  {current},
		"v1beta1":  {first},
		"v1alpha1": {first},
	}
}
