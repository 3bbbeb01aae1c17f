// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"context"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// CleanUp implements [storage.Operations].
func (s *Staging) CleanUp(ctx context.Context, remove bool) (storage.Leftovers, error) {
	return operation.Get(ctx, s.options.Runner, "CleanUp", "", func(ctx context.Context) (storage.Leftovers, error) {
		ctx = operation.Inline(ctx)
		list, err := s.ListVolumes(ctx)
		if err != nil {
			return storage.Leftovers{}, err
		}
		all := storage.Leftovers{IncompleteReason: list.IncompleteReason}
		for _, m := range list.Mounts {
			if m.LeftoverReason == "" {
				continue
			}
			one := storage.Leftover{Mount: m}
			if remove {
				one.Removed, err = s.removeLeftover(ctx, m)
				if ctx.Err() != nil {
					return all, ctx.Err()
				}
				if err != nil {
					one.Error = err.Error()
				}
			}
			all.Mounts = append(all.Mounts, one)
		}
		return all, nil
	})
}

// removeLeftover removes a leftover if it still is one, and reports whether it has.
func (s *Staging) removeLeftover(ctx context.Context, m storage.Mount) (removed bool, _ error) {
	switch m.Kind {
	case storage.MountPoint:
		if !s.Volumes.IsGone(ctx, m.Volume.VolumeID) {
			return false, nil
		}
		err := s.Volumes.UnmountVolume(ctx, m.Volume.VolumeID, m.Path)
		return err == nil, err
	case storage.Link:
		to, err := s.Volumes.Leads(ctx, m.Path)
		if err != nil || to.Kind != pathpolicy.Nothing {
			return false, err
		}
		err = s.Files.UnpublishVolume(ctx, m.Path)
		return err == nil, err
	case storage.Mapping:
		remote, err := unc.Parse(m.Target)
		if err != nil {
			return false, err
		}
		return s.Mappings.RemoveUnused(ctx, remote)
	}
	return false, nil
}

// CheckVolume implements [storage.Operations].
func (s *Staging) CheckVolume(ctx context.Context, r storage.CheckVolumeRequest) (storage.CheckedVolume, error) {
	return operation.Get(ctx, s.options.Runner, "CheckVolume", "at "+quote.Text(r.Path), func(ctx context.Context) (done storage.CheckedVolume, _ error) {
		ctx = operation.Inline(ctx)
		id, err := s.Volumes.GetVolumeIDFromTargetPath(ctx, r.Path)
		if err != nil {
			return done, err
		}
		if r.SpotFix {
			if err := s.checkUnpublished(ctx, id); err != nil {
				return done, err
			}
		}
		begun := time.Now()
		if since, busy := s.beginCheck(id, begun); busy {
			return done, csiproxy.Errorf(csiproxy.ErrUnavailable, "Windows checks the volume already, since %s; try again later", since.UTC().Format(time.RFC3339))
		}
		defer s.endCheck(id)
		done.ErrorsFound, err = s.Volumes.Repair(ctx, id, win.RepairScan)
		if err == nil && done.ErrorsFound && r.SpotFix {
			// Somebody may have published it during the scan, which may take hours.
			if err = s.checkUnpublished(ctx, id); err == nil {
				_, err = s.Volumes.Repair(ctx, id, win.RepairSpotFix)
			}
			if err == nil {
				left := false
				left, err = s.Volumes.Repair(ctx, id, win.RepairScan)
				done.Fixed = err == nil && !left
			}
		}
		done.Duration = time.Since(begun)
		return done, err
	})
}

// beginCheck notes that a volume is being checked, unless it is already: since then. A scan
// may take hours, and those who ask again mustn't pile up.
func (s *Staging) beginCheck(id volume.ID, now time.Time) (since time.Time, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since, busy = s.checking[id]; !busy {
		s.checking[id] = now
	}
	return since, busy
}

func (s *Staging) endCheck(id volume.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.checking, id)
}

// checkUnpublished refuses a volume to which a link leads.
func (s *Staging) checkUnpublished(ctx context.Context, id volume.ID) error {
	links, lacking, err := s.Volumes.Links(ctx)
	if err != nil {
		return err
	}
	if lacking != nil {
		return &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "whether the volume is published can't be found out; try again later", Err: lacking}
	}
	var published []string
	for _, l := range links {
		if l.Link.IsMountPoint() {
			continue
		}
		to, err := s.Volumes.Leads(ctx, l.Path.String())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && to.Kind == pathpolicy.MountedVolume && id.Equal(volume.ID(to.Volume)) {
			published = append(published, l.Path.String())
		}
	}
	if len(published) == 0 {
		return nil
	}
	return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "a spot fix takes the volume offline for a moment, and it is published at %s; unpublish it first",
		quote.Text(strings.Join(published, ", ")))
}
