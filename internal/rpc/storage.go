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
	current := methods{
		"ListDisks": unary(func(ctx context.Context,
			req *storagev1alpha1.ListDisksRequest) (*storagev1alpha1.ListDisksResponse, error) {
			selector, err := storagewire.ToSelector(req.Disk)
			if err != nil {
				return nil, err
			}
			disks, err := ops.ListDisks(ctx, selector)
			return &storagev1alpha1.ListDisksResponse{Disks: storagewire.FromDisks(disks)}, err
		}),
		"StageVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.StageVolumeRequest) (*storagev1alpha1.StageVolumeResponse, error) {
			r, err := storagewire.ToStageVolume(req)
			if err != nil {
				return nil, err
			}
			staged, err := ops.StageVolume(ctx, r)
			return storagewire.FromStaged(staged), err
		}),
		"UnstageVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.UnstageVolumeRequest) (*storagev1alpha1.UnstageVolumeResponse, error) {
			r, err := storagewire.ToUnstageVolume(req)
			if err != nil {
				return nil, err
			}
			done, err := ops.UnstageVolume(ctx, r)
			return storagewire.FromUnstaged(done), err
		}),
		"PublishVolume": action(func(ctx context.Context, req *storagev1alpha1.PublishVolumeRequest) error {
			return ops.PublishVolume(ctx, req.StagingPath, req.TargetPath)
		}),
		"UnpublishVolume": action(func(ctx context.Context, req *storagev1alpha1.UnpublishVolumeRequest) error {
			return ops.UnpublishVolume(ctx, req.TargetPath)
		}),
		"ExpandVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.ExpandVolumeRequest) (*storagev1alpha1.ExpandVolumeResponse, error) {
			r, err := storagewire.ToExpandVolume(req)
			if err != nil {
				return nil, err
			}
			done, err := ops.ExpandVolume(ctx, r)
			return storagewire.FromExpanded(done), err
		}),
		"GetVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.GetVolumeRequest) (*storagev1alpha1.GetVolumeResponse, error) {
			v, err := ops.GetVolume(ctx, req.Path)
			return &storagev1alpha1.GetVolumeResponse{Volume: storagewire.FromVolume(v)}, err
		}),
		"ListVolumes": unary(func(ctx context.Context,
			_ *storagev1alpha1.ListVolumesRequest) (*storagev1alpha1.ListVolumesResponse, error) {
			list, err := ops.ListVolumes(ctx)
			return storagewire.FromVolumes(list), err
		}),
		"StageShare": action(func(ctx context.Context, req *storagev1alpha1.StageShareRequest) error {
			return ops.StageShare(ctx, storagewire.ToStageShare(req))
		}),
		"UnstageShare": unary(func(ctx context.Context,
			req *storagev1alpha1.UnstageShareRequest) (*storagev1alpha1.UnstageShareResponse, error) {
			done, err := ops.UnstageShare(ctx, storagewire.ToUnstageShare(req))
			return storagewire.FromUnstagedShare(done), err
		}),
		"CleanUp": unary(func(ctx context.Context,
			req *storagev1alpha1.CleanUpRequest) (*storagev1alpha1.CleanUpResponse, error) {
			leftovers, err := ops.CleanUp(ctx, req.Remove)
			return storagewire.FromLeftovers(leftovers), err
		}),
		"CheckVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.CheckVolumeRequest) (*storagev1alpha1.CheckVolumeResponse, error) {
			done, err := ops.CheckVolume(ctx, storage.CheckVolumeRequest{Path: req.Path, SpotFix: req.SpotFix})
			return storagewire.FromChecked(done), err
		}),
		"MoveAside": unary(func(ctx context.Context,
			req *storagev1alpha1.MoveAsideRequest) (*storagev1alpha1.MoveAsideResponse, error) {
			moved, err := ops.MoveAside(ctx, req.Path)
			return storagewire.FromMovedAside(moved), err
		}),
		"ListRefusedLogOns": unary(func(ctx context.Context,
			req *storagev1alpha1.ListRefusedLogOnsRequest) (*storagev1alpha1.ListRefusedLogOnsResponse, error) {
			refused, err := ops.ListRefusedLogOns(ctx, req.Forget)
			return storagewire.FromRefusedLogOns(refused), err
		}),
		"WatchDisks": streaming(func(ctx context.Context,
			req *storagev1alpha1.WatchDisksRequest, send func(*storagev1alpha1.WatchDisksResponse) error) error {
			selector, err := storagewire.ToSelector(req.Disk)
			if err != nil {
				return err
			}
			for changes, err := range ops.WatchDisks(ctx, selector) {
				if err != nil {
					return err
				}
				if err := send(storagewire.FromChanges(changes)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	return versions{"v1alpha1": {current}}
}
