// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// mountedAt returns the volume or share that is mounted at a path. Nothing is
// csiproxy.ErrFailedPrecondition.
func (s *Server) mountedAt(ctx context.Context, path string) (csiproxy.Volume, error) {
	v, err := s.options.Storage.GetVolume(ctx, path)
	nowhere := slices.ContainsFunc(v.Conditions, func(c csiproxy.Condition) bool { return c.Reason == csiproxy.ReasonNotMounted })
	if nowhere || errors.Is(err, csiproxy.ErrNotFound) {
		return v, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "nothing is mounted at %s", path)
	}
	return v, err
}

// checkStaged returns nil if a source is what is mounted at a staging path, and
// csiproxy.ErrFailedPrecondition if it isn't. Another error says that this isn't known.
func (s *Server) checkStaged(ctx context.Context, source Source, staging string) error {
	v, err := s.mountedAt(ctx, staging)
	if err != nil {
		return err
	}
	if source.isShare() {
		if v.Share == "" || !strings.EqualFold(v.Share, shareRoot(source.Share)) {
			return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%s is mounted at %s, not %s", name(v), staging, source.Share)
		}
		return nil
	}
	if v.Share == "" && v.Disk == nil {
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "the disk of the volume at %s isn't known: %v", staging, v.Conditions)
	}
	disks, err := s.options.Storage.ListDisks(ctx, source.Disk)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(disks, func(d csiproxy.Disk) bool { return isOn(v, d, source.Partition) }) {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%s is mounted at %s, which isn't the volume's", name(v), staging)
	}
	if source.ReadOnly && !v.ReadOnly {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "the volume is mounted writable at %s", staging)
	}
	return nil
}

// isOn reports whether a mounted volume is on a disk, and on that partition unless it is 0.
func isOn(v csiproxy.Volume, d csiproxy.Disk, partition uint32) bool {
	if v.Disk == nil || *v.Disk != d.Number {
		return false
	}
	return partition == 0 || slices.ContainsFunc(d.Partitions, func(p csiproxy.Partition) bool {
		return p.Number == partition && strings.EqualFold(string(p.VolumeID), string(v.VolumeID))
	})
}

func name(v csiproxy.Volume) string {
	if v.Share != "" {
		return v.Share
	}
	return "volume " + string(v.VolumeID)
}

// shareRoot returns \\server\share of a directory on a share.
func shareRoot(remote string) string {
	parts := strings.SplitN(strings.ReplaceAll(remote, "/", `\`), `\`, 5)
	return strings.Join(parts[:min(4, len(parts))], `\`)
}

// stagedRecord returns the record of a volume that NodePublishVolume is to publish. If there is none
// that what is mounted confirms, the volume is recognised by its disk or share, for which the driver
// is asked again, and the record is made anew.
func (s *Server) stagedRecord(ctx context.Context, r *csi.NodePublishVolumeRequest, staging string) (*record, error) {
	rec, err := s.store.load(r.VolumeId)
	if err != nil {
		return nil, err
	}
	if rec != nil && samePath(rec.StagingPath, staging) {
		if err := s.checkStaged(ctx, rec.Source, staging); !isRefusal(err) {
			return rec, err
		}
	}
	isnt := func(why error) error {
		return status.Errorf(codes.FailedPrecondition, "volume %s isn't staged at %s: %v", r.VolumeId, staging, why)
	}
	if _, err := s.mountedAt(ctx, staging); isRefusal(err) {
		return nil, isnt(err)
	}
	source, err := s.options.Source(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: r.VolumeId, PublishContext: r.PublishContext, StagingTargetPath: r.StagingTargetPath,
		VolumeCapability: r.VolumeCapability, VolumeContext: r.VolumeContext,
	})
	if err != nil {
		return nil, err
	}
	if err := s.checkStaged(ctx, source, staging); isRefusal(err) {
		return nil, isnt(err)
	} else if err != nil {
		return nil, err
	}
	rec = &record{VolumeID: r.VolumeId, Source: source, StagingPath: staging}
	links, err := s.linksTo(ctx, staging)
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		if !samePath(link, r.TargetPath) {
			rec.Targets = append(rec.Targets, target{Path: link}) // with which access mode isn't known
		}
	}
	s.options.Logger.Info("recognised a volume without a valid record by what Windows has mounted", "volume", r.VolumeId, "path",
		staging, "links", len(rec.Targets))
	return rec, nil
}

// dropVoidTargets removes the targets of a record that Windows doesn't have.
func (s *Server) dropVoidTargets(ctx context.Context, rec *record) error {
	links, err := s.linksTo(ctx, rec.StagingPath)
	rec.Targets = slices.DeleteFunc(rec.Targets, func(t target) bool {
		return err == nil && !slices.ContainsFunc(links, func(link string) bool { return samePath(link, t.Path) })
	})
	return err
}

// linksTo returns the paths of the links to a staging path, which are where its volume is published.
func (s *Server) linksTo(ctx context.Context, staging string) ([]string, error) {
	list, err := s.options.Storage.ListVolumes(ctx)
	if err != nil {
		return nil, err
	}
	var links []string
	for _, m := range list.Mounts {
		if m.Kind == csiproxy.MountKindLink && samePath(m.Target, staging) {
			links = append(links, m.Path)
		}
	}
	if !list.Complete() {
		return links, csiproxy.Errorf(csiproxy.ErrUnavailable, "the links to %s aren't all known: %s", staging,
			list.IncompleteReason)
	}
	return links, nil
}

// isAtByKubelet reports whether a volume without a record is at a path, by kubelet's paths: that of a
// staged volume ends with a hash of the volume's id. What is mounted at the path must be mounted there.
//
// Source: https://github.com/kubernetes/kubernetes/blob/v1.36.1/pkg/volume/csi/csi_attacher.go (makeDeviceMountPath)
func (s *Server) isAtByKubelet(ctx context.Context, volumeID, path string) (isShare, is bool, _ error) {
	sum := sha256.Sum256([]byte(volumeID))
	below := `\plugins\kubernetes.io\csi\` + s.options.Name + `\` + hex.EncodeToString(sum[:]) + `\globalmount`
	root, _, isTarget := strings.Cut(path, `\pods\`)
	if !isTarget {
		root = strings.TrimSuffix(path, below)
	}
	volume, err := s.mountedAt(ctx, path)
	if err == nil {
		var staged csiproxy.Volume
		staged, err = s.mountedAt(ctx, root+below)
		is = err == nil && volume.VolumeID == staged.VolumeID && volume.Share == staged.Share
	}
	if isRefusal(err) || errors.Is(err, csiproxy.ErrInvalidArgument) {
		err = nil
	}
	return volume.Share != "", is, err
}
