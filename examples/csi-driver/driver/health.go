// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetVolumeHealth implements csi.NodeServer. In CSI 1.13 it replaces the volume
// condition in NodeGetVolumeStats.
func (d *Driver) NodeGetVolumeHealth(ctx context.Context, r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := required("volume_id", r.VolumeId); err != nil {
		return nil, err
	}
	rec, err := d.records.load(r.VolumeId)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, status.Errorf(codes.NotFound, "volume %s isn't staged", r.VolumeId)
	}
	entries, err := d.backend(rec.Source.Type).health(ctx, rec)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{VolumeId: r.VolumeId, HealthStatuses: entries}}, nil
}

// inaccessible says that a volume can't be used on this node.
func inaccessible(reason, message string) []*csi.VolumeHealth_VolumeHealthEntry {
	return []*csi.VolumeHealth_VolumeHealthEntry{{
		Status:  csi.VolumeHealthErrorType_INACCESSIBLE,
		Reason:  reason,
		Message: message,
	}}
}
