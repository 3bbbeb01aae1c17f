// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	smbv1 "github.com/csi-proxy/csi-proxy/api/smb/v1"
	smbv1beta1 "github.com/csi-proxy/csi-proxy/api/smb/v1beta1"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
)

func smbVersions(ops smb.Operations) versions {
	h := smbHandler{ops}
	current := methods{
		"NewSmbGlobalMapping":    unary(h.NewSmbGlobalMapping),
		"RemoveSmbGlobalMapping": unary(h.RemoveSmbGlobalMapping),
	}

	old := oldSMBHandler{ops}
	first := methods{
		"NewSmbGlobalMapping":    unary(old.NewSmbGlobalMapping),
		"RemoveSmbGlobalMapping": unary(old.RemoveSmbGlobalMapping),
	}

	return versions{
		"v1":       {current},
		"v1beta2":  {current},
		"v1beta1":  {first},
		"v1alpha1": {first},
	}
}

// smbHandler answers the messages of v1.
type smbHandler struct{ ops smb.Operations }

func (h smbHandler) NewSmbGlobalMapping(ctx context.Context,
	req *smbv1.NewSmbGlobalMappingRequest) (*smbv1.NewSmbGlobalMappingResponse, error) {
	c := smb.Credentials{Username: req.Username, Password: secret.New(req.Password)}
	return &smbv1.NewSmbGlobalMappingResponse{}, h.ops.NewSMBGlobalMapping(ctx, req.RemotePath, req.LocalPath, c)
}

func (h smbHandler) RemoveSmbGlobalMapping(ctx context.Context,
	req *smbv1.RemoveSmbGlobalMappingRequest) (*smbv1.RemoveSmbGlobalMappingResponse, error) {
	return &smbv1.RemoveSmbGlobalMappingResponse{}, h.ops.RemoveSMBGlobalMapping(ctx, req.RemotePath)
}

// oldSMBHandler answers the messages of v1beta1. Their error fields stay empty.
type oldSMBHandler struct{ ops smb.Operations }

func (h oldSMBHandler) NewSmbGlobalMapping(ctx context.Context,
	req *smbv1beta1.NewSmbGlobalMappingRequest) (*smbv1beta1.NewSmbGlobalMappingResponse, error) {
	c := smb.Credentials{Username: req.Username, Password: secret.New(req.Password)}
	return &smbv1beta1.NewSmbGlobalMappingResponse{}, h.ops.NewSMBGlobalMapping(ctx, req.RemotePath, req.LocalPath, c)
}

func (h oldSMBHandler) RemoveSmbGlobalMapping(ctx context.Context,
	req *smbv1beta1.RemoveSmbGlobalMappingRequest) (*smbv1beta1.RemoveSmbGlobalMappingResponse, error) {
	return &smbv1beta1.RemoveSmbGlobalMappingResponse{}, h.ops.RemoveSMBGlobalMapping(ctx, req.RemotePath)
}
