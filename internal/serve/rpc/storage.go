// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire/storagewire"
)

func storageVersions(ops csiproxy.StorageOperations) versions {
	return versions{"v1alpha1": {{
		"ListDisks": shared(func(ctx context.Context,
			req *storagev1alpha1.ListDisksRequest) (*storagev1alpha1.ListDisksResponse, error) {
			wanted, err := storagewire.DecodeSelector(req.Disk)
			if err != nil {
				return nil, err
			}
			disks, err := ops.ListDisks(ctx, wanted)
			return storagewire.EncodeDisks(disks), err
		}),
		"StageVolume":   task(storagewire.DecodeStageVolumeRequest, ops.StageVolume, storagewire.EncodeStagedVolume),
		"UnstageVolume": task(storagewire.DecodeUnstageVolumeRequest, ops.UnstageVolume, storagewire.EncodeUnstagedVolume),
		"ExpandVolume":  task(storagewire.DecodeExpandVolumeRequest, ops.ExpandVolume, storagewire.EncodeExpandedVolume),
		"PublishVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.PublishVolumeRequest) (*storagev1alpha1.PublishVolumeResponse, error) {
			return new(storagev1alpha1.PublishVolumeResponse), ops.PublishVolume(ctx, req.StagingPath, req.TargetPath)
		}),
		"UnpublishVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.UnpublishVolumeRequest) (*storagev1alpha1.UnpublishVolumeResponse, error) {
			return new(storagev1alpha1.UnpublishVolumeResponse), ops.UnpublishVolume(ctx, req.TargetPath)
		}),
		"GetVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.GetVolumeRequest) (*storagev1alpha1.GetVolumeResponse, error) {
			volume, err := ops.GetVolume(ctx, req.Path)
			return &storagev1alpha1.GetVolumeResponse{Volume: storagewire.EncodeVolume(volume)}, err
		}),
		"ListVolumes": shared(func(ctx context.Context,
			_ *storagev1alpha1.ListVolumesRequest) (*storagev1alpha1.ListVolumesResponse, error) {
			list, err := ops.ListVolumes(ctx)
			return storagewire.EncodeVolumeList(list), err
		}),
		"StageShare": unary(func(ctx context.Context,
			req *storagev1alpha1.StageShareRequest) (*storagev1alpha1.StageShareResponse, error) {
			return new(storagev1alpha1.StageShareResponse), ops.StageShare(ctx, storagewire.DecodeStageShareRequest(req))
		}),
		"UnstageShare": unary(func(ctx context.Context,
			req *storagev1alpha1.UnstageShareRequest) (*storagev1alpha1.UnstageShareResponse, error) {
			unstaged, err := ops.UnstageShare(ctx, storagewire.DecodeUnstageShareRequest(req))
			return storagewire.EncodeUnstagedShare(unstaged), err
		}),
		"CleanUp": shared(func(ctx context.Context,
			req *storagev1alpha1.CleanUpRequest) (*storagev1alpha1.CleanUpResponse, error) {
			leftovers, err := ops.CleanUp(ctx, req.Remove)
			return storagewire.EncodeLeftovers(leftovers), err
		}),
		"CheckVolume": unary(func(ctx context.Context,
			req *storagev1alpha1.CheckVolumeRequest) (*storagev1alpha1.CheckVolumeResponse, error) {
			checked, err := ops.CheckVolume(ctx, storagewire.DecodeCheckVolumeRequest(req))
			return storagewire.EncodeCheckedVolume(checked), err
		}),
		"WatchDisks": streaming(func(ctx context.Context, req *storagev1alpha1.WatchDisksRequest,
			send func(*storagev1alpha1.WatchDisksResponse) error) error {
			wanted, err := storagewire.DecodeSelector(req.Disk)
			if err != nil {
				return err
			}
			for changes, err := range ops.WatchDisks(ctx, wanted) {
				if err != nil {
					return err
				}
				if err := send(storagewire.EncodeDiskChanges(changes)); err != nil {
					return err
				}
			}
			return nil
		}),
	}}}
}

// task makes a method of a function for an operation whose request may be invalid.
func task[Message, Response proto.Message, Request, Result any](decode func(Message) (Request, error),
	do func(context.Context, Request) (Result, error), encode func(Result) Response) method {
	return unary(func(ctx context.Context, m Message) (resp Response, _ error) {
		request, err := decode(m)
		if err != nil {
			return resp, err
		}
		result, err := do(ctx, request)
		return encode(result), err
	})
}
