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
			"ListDisks":         unary(h.ListDisks),
			"StageVolume":       unary(h.StageVolume),
			"UnstageVolume":     unary(h.UnstageVolume),
			"PublishVolume":     unary(h.PublishVolume),
			"UnpublishVolume":   unary(h.UnpublishVolume),
			"ExpandVolume":      unary(h.ExpandVolume),
			"GetVolume":         unary(h.GetVolume),
			"ListVolumes":       unary(h.ListVolumes),
			"StageShare":        unary(h.StageShare),
			"UnstageShare":      unary(h.UnstageShare),
			"CleanUp":           unary(h.CleanUp),
			"CheckVolume":       unary(h.CheckVolume),
			"MoveAside":         unary(h.MoveAside),
			"ListRefusedLogOns": unary(h.ListRefusedLogOns),
			"WatchDisks":        streaming(h.WatchDisks),
		}},
	}
}

// storageHandler answers the messages of v1alpha1.
type storageHandler struct{ ops storage.Operations }

func (h storageHandler) ListDisks(ctx context.Context,
	req *storagev1alpha1.ListDisksRequest) (*storagev1alpha1.ListDisksResponse, error) {
	selector, err := storagewire.ToSelector(req.Disk)
	if err != nil {
		return nil, err
	}
	disks, err := h.ops.ListDisks(ctx, selector)
	if err != nil {
		return nil, err
	}
	return &storagev1alpha1.ListDisksResponse{Disks: storagewire.FromDisks(disks)}, nil
}

func (h storageHandler) StageVolume(ctx context.Context,
	req *storagev1alpha1.StageVolumeRequest) (*storagev1alpha1.StageVolumeResponse, error) {
	r, err := storagewire.ToStageVolume(req)
	if err != nil {
		return nil, err
	}
	staged, err := h.ops.StageVolume(ctx, r)
	return storagewire.FromStaged(staged), err
}

func (h storageHandler) UnstageVolume(ctx context.Context,
	req *storagev1alpha1.UnstageVolumeRequest) (*storagev1alpha1.UnstageVolumeResponse, error) {
	r, err := storagewire.ToUnstageVolume(req)
	if err != nil {
		return nil, err
	}
	done, err := h.ops.UnstageVolume(ctx, r)
	return storagewire.FromUnstaged(done), err
}

func (h storageHandler) PublishVolume(ctx context.Context,
	req *storagev1alpha1.PublishVolumeRequest) (*storagev1alpha1.PublishVolumeResponse, error) {
	return &storagev1alpha1.PublishVolumeResponse{}, h.ops.PublishVolume(ctx, req.StagingPath, req.TargetPath)
}

func (h storageHandler) UnpublishVolume(ctx context.Context,
	req *storagev1alpha1.UnpublishVolumeRequest) (*storagev1alpha1.UnpublishVolumeResponse, error) {
	return &storagev1alpha1.UnpublishVolumeResponse{}, h.ops.UnpublishVolume(ctx, req.TargetPath)
}

func (h storageHandler) ExpandVolume(ctx context.Context,
	req *storagev1alpha1.ExpandVolumeRequest) (*storagev1alpha1.ExpandVolumeResponse, error) {
	r, err := storagewire.ToExpandVolume(req)
	if err != nil {
		return nil, err
	}
	done, err := h.ops.ExpandVolume(ctx, r)
	return storagewire.FromExpanded(done), err
}

func (h storageHandler) GetVolume(ctx context.Context,
	req *storagev1alpha1.GetVolumeRequest) (*storagev1alpha1.GetVolumeResponse, error) {
	v, err := h.ops.GetVolume(ctx, req.Path)
	return &storagev1alpha1.GetVolumeResponse{Volume: storagewire.FromVolume(v)}, err
}

func (h storageHandler) ListVolumes(ctx context.Context,
	_ *storagev1alpha1.ListVolumesRequest) (*storagev1alpha1.ListVolumesResponse, error) {
	list, err := h.ops.ListVolumes(ctx)
	return storagewire.FromVolumes(list), err
}

func (h storageHandler) StageShare(ctx context.Context,
	req *storagev1alpha1.StageShareRequest) (*storagev1alpha1.StageShareResponse, error) {
	return &storagev1alpha1.StageShareResponse{}, h.ops.StageShare(ctx, storagewire.ToStageShare(req))
}

func (h storageHandler) UnstageShare(ctx context.Context,
	req *storagev1alpha1.UnstageShareRequest) (*storagev1alpha1.UnstageShareResponse, error) {
	done, err := h.ops.UnstageShare(ctx, storagewire.ToUnstageShare(req))
	return storagewire.FromUnstagedShare(done), err
}

func (h storageHandler) CleanUp(ctx context.Context,
	req *storagev1alpha1.CleanUpRequest) (*storagev1alpha1.CleanUpResponse, error) {
	leftovers, err := h.ops.CleanUp(ctx, req.Remove)
	return storagewire.FromLeftovers(leftovers), err
}

func (h storageHandler) MoveAside(ctx context.Context,
	req *storagev1alpha1.MoveAsideRequest) (*storagev1alpha1.MoveAsideResponse, error) {
	moved, err := h.ops.MoveAside(ctx, req.Path)
	return storagewire.FromMovedAside(moved), err
}

func (h storageHandler) ListRefusedLogOns(ctx context.Context,
	req *storagev1alpha1.ListRefusedLogOnsRequest) (*storagev1alpha1.ListRefusedLogOnsResponse, error) {
	refused, err := h.ops.ListRefusedLogOns(ctx, req.Forget)
	return storagewire.FromRefusedLogOns(refused), err
}

func (h storageHandler) CheckVolume(ctx context.Context,
	req *storagev1alpha1.CheckVolumeRequest) (*storagev1alpha1.CheckVolumeResponse, error) {
	done, err := h.ops.CheckVolume(ctx, storage.CheckVolumeRequest{Path: req.Path, SpotFix: req.SpotFix})
	return storagewire.FromChecked(done), err
}

func (h storageHandler) WatchDisks(ctx context.Context, req *storagev1alpha1.WatchDisksRequest,
	send func(*storagev1alpha1.WatchDisksResponse) error) error {
	selector, err := storagewire.ToSelector(req.Disk)
	if err != nil {
		return err
	}
	for changes, err := range h.ops.WatchDisks(ctx, selector) {
		if err != nil {
			return err
		}
		if err := send(storagewire.FromChanges(changes)); err != nil {
			return err
		}
	}
	return nil
}
