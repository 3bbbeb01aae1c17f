// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// checkContent returns an error for a volume that must not be formatted. A raw volume must pass
// checkRaw. With reuse, a volume with a file system may pass probeReusable instead.
func (v *Volumes) checkContent(ctx context.Context, id csiproxy.VolumeID, disk *opendisk.Disk, extent win.DiskExtent, reuse bool) error {
	if reuse {
		isReusable, err := v.probeReusable(ctx, id)
		if err != nil {
			return err
		}
		if isReusable {
			return v.verify(ctx, id, disk, extent)
		}
	}
	return v.checkRaw(ctx, id, disk, extent)
}

// probeReusable reports whether a volume has a file system and is mounted in a directory where an
// administrator permits formatting volumes again. This is how sig-storage-local-static-provisioner
// empties a released volume. If the volume may still be in use, probeReusable returns an error. It
// flushes and locks the volume for a moment to find out.
//
// Source: https://github.com/kubernetes-sigs/sig-storage-local-static-provisioner/blob/6cbe253cb2ef8245c84801060da3b37335ca78bf/pkg/util/volume_util_windows.go
// (DeleteContents)
func (v *Volumes) probeReusable(ctx context.Context, id csiproxy.VolumeID) (isReusable bool, _ error) {
	mounted, err := v.options.Users.MountedAt(ctx, string(id))
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(mounted, v.paths.MayReformatAt) {
		return false, nil
	}
	if _, formatted, err := v.Information(ctx, id); err != nil || !formatted {
		return false, err
	}
	reason, err := v.paths.ProtectsOffSystemDisks(ctx, v.sys, string(id))
	if err != nil {
		return false, err
	}
	if reason != "" {
		return false, refuse(reason)
	}
	if len(mounted) > 1 {
		return false, refuse("the volume would be formatted again, but is mounted at several places: " + quote.List(mounted) +
			"; unmount all but one")
	}
	links, err := v.options.Users.LinksToVolume(ctx, id)
	if err != nil {
		return false, err
	}
	if len(links) > 0 {
		return false, refuse("the volume would be formatted again, but links lead to it: " + quote.List(links) +
			"; delete the pods that use it")
	}
	h, err := v.Lock(ctx, id) // fails while a file is open
	if IsInUse(err) {
		return false, &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Err: err,
			Detail: "the volume would be formatted again, but is in use" + v.users(ctx, id)}
	}
	if err != nil {
		return false, err
	}
	h.Close()
	return true, nil
}
