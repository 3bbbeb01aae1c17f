// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire/storagewire"
	"github.com/csi-proxy/csi-proxy/storage"
)

func storageVersions(ops storage.Operations) versions {
	type (
		nothing struct{}
		atPath  struct{ Path string }
		disk    struct{ Disk storage.Selector }
		disks   struct{ Disks []storage.Disk }
		publish struct{ StagingPath, TargetPath string }
		target  struct{ TargetPath string }
		volume  struct{ Volume storage.Volume }
		remove  struct{ Remove bool }
	)
	current := methods{"WatchDisks": streaming(func(ctx context.Context,
		req *storagev1alpha1.WatchDisksRequest, send func(*storagev1alpha1.WatchDisksResponse) error) error {
		r, err := storagewire.Decode[disk](req)
		if err != nil {
			return err
		}
		for changes, err := range ops.WatchDisks(ctx, r.Disk) {
			if err != nil {
				return err
			}
			resp := new(storagev1alpha1.WatchDisksResponse)
			if err := storagewire.EncodeResponse(changes, resp); err != nil {
				return err
			}
			if err := send(resp); err != nil {
				return err
			}
		}
		return nil
	})}
	for op, method := range map[protoreflect.Name]func(op string) method{
		"StageVolume":   task(ops.StageVolume),
		"UnstageVolume": task(ops.UnstageVolume),
		"ExpandVolume":  task(ops.ExpandVolume),
		"UnstageShare":  task(ops.UnstageShare),
		"CheckVolume":   task(ops.CheckVolume),
		"StageShare": task(func(ctx context.Context, r storage.StageShareRequest) (nothing, error) {
			return nothing{}, ops.StageShare(ctx, r)
		}),
		"ListDisks": task(func(ctx context.Context, r disk) (disks, error) {
			found, err := ops.ListDisks(ctx, r.Disk)
			return disks{found}, err
		}),
		"PublishVolume": task(func(ctx context.Context, r publish) (nothing, error) {
			return nothing{}, ops.PublishVolume(ctx, r.StagingPath, r.TargetPath)
		}),
		"UnpublishVolume": task(func(ctx context.Context, r target) (nothing, error) {
			return nothing{}, ops.UnpublishVolume(ctx, r.TargetPath)
		}),
		"GetVolume": task(func(ctx context.Context, r atPath) (volume, error) {
			v, err := ops.GetVolume(ctx, r.Path)
			return volume{v}, err
		}),
		"ListVolumes": task(func(ctx context.Context, _ nothing) (storage.VolumeList, error) {
			return ops.ListVolumes(ctx)
		}),
		"CleanUp": task(func(ctx context.Context, r remove) (storage.Leftovers, error) {
			return ops.CleanUp(ctx, r.Remove)
		}),
	} {
		current[op] = method(string(op))
	}
	return versions{"v1alpha1": {current}}
}

// task makes a method of a function that does an operation. The method's messages have the operation's
// name, and the fields of its request and result go by their names in the API: see package storagewire.
func task[Request, Result any](do func(context.Context, Request) (Result, error)) func(op string) method {
	return func(op string) method {
		request, response := storagewire.NewRequest(op), storagewire.NewResponse(op)
		return method{
			request:    request.ProtoReflect().Descriptor(),
			response:   response.ProtoReflect().Descriptor(),
			newRequest: func() proto.Message { return request.ProtoReflect().New().Interface() },
			call: func(ctx context.Context, req any) (any, error) {
				r, err := storagewire.Decode[Request](req.(proto.Message))
				if err != nil {
					return nil, err
				}
				result, err := do(ctx, r)
				if err != nil {
					return nil, err
				}
				resp := storagewire.NewResponse(op)
				return resp, storagewire.EncodeResponse(result, resp)
			},
		}
	}
}
