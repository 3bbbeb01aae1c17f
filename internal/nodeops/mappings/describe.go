// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/storage"
)

// Roots returns the shares that are mapped, as [unc.Path.Root] writes them, in order.
func (m *Mappings) Roots(ctx context.Context) (roots []string, _ error) {
	if err := m.dropStaleRecords(ctx); err != nil {
		m.options.Logger.Info("records of SMB mappings can't be looked at", "err", err)
	}
	return m.roots(ctx)
}

func (m *Mappings) roots(ctx context.Context) (roots []string, _ error) {
	mappings, err := m.options.Shares.Mappings(ctx)
	if err != nil {
		return nil, err
	}
	for _, mapping := range mappings {
		if remote, err := unc.Parse(mapping.RemotePath); err == nil {
			roots = append(roots, remote.Root())
		}
	}
	slices.Sort(roots)
	return slices.Compact(roots), nil
}

// Describe returns what is known of the share of remote. What is wrong with it is among its
// conditions; the error is that mappings can't be listed, or ctx's. Only the server of a
// share that is mapped is asked.
func (m *Mappings) Describe(ctx context.Context, remote unc.Path) (storage.Volume, error) {
	d := storage.Volume{Share: remote.Root()}
	roots, err := m.roots(ctx)
	if err != nil {
		return d, err
	}
	if !slices.Contains(roots, remote.Root()) {
		d.Conditions = storage.Conditions{{Reason: storage.ShareNotMapped, Inaccessible: true,
			Message: "the share isn't mapped"}}
		return d, nil
	}
	err = m.options.Shares.Look(ctx, remote)
	if err == nil {
		space, spaceErr := m.sys.DiskFreeSpace(ctx, remote.Root()+`\`)
		d.SizeBytes, d.FreeBytes, d.UsedBytes = int64(space.Total), int64(space.Available), int64(space.Total-space.Free)
		err = spaceErr
	}
	if ctx.Err() != nil {
		return d, ctx.Err()
	}
	if err != nil {
		reason := storage.ShareUnreachable
		if kind := csiproxy.KindOf(err); kind == csiproxy.ErrUnauthenticated || kind == csiproxy.ErrPermissionDenied {
			reason = storage.ShareRefused
		}
		d.Conditions = storage.Conditions{{Reason: reason, Inaccessible: true,
			Message: "the share can't be used: " + err.Error()}}
	}
	return d, nil
}
