// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/wire/storagewire"
	"github.com/csi-proxy/csi-proxy/storage"
)

func storageVersions(ops storage.Operations) versions {
	h := storageHandler{ops}
	return versions{
		"v1alpha1": {methods{
			"ListDisks": unary(h.ListDisks),
		}},
	}
}

// storageHandler answers the messages of v1alpha1.
type storageHandler struct{ ops storage.Operations }

func (h storageHandler) ListDisks(ctx context.Context, req *storagev1alpha1.ListDisksRequest) (*storagev1alpha1.ListDisksResponse, error) {
	selector, err := storagewire.ToSelector(req.Disk)
	if err != nil {
		return nil, err
	}
	disks, err := h.ops.ListDisks(ctx, selector)
	if err != nil {
		return nil, err
	}
	resp := &storagev1alpha1.ListDisksResponse{}
	for _, d := range disks {
		resp.Disks = append(resp.Disks, storagewire.FromDisk(d))
	}
	return resp, nil
}
