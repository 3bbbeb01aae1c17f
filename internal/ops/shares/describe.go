// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Mapped returns the mappings of all programs. Paths refused by win.ParseUNC, such as WebDAV's, are
// left out.
func (m *Mappings) Mapped(ctx context.Context) ([]win.SMBMapping, error) {
	mapped, err := m.List(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.dropStaleRecords(ctx); err != nil {
		m.options.Logger.Info("can't read records of SMB mappings", "err", err)
	}
	return slices.DeleteFunc(slices.Clone(mapped), func(mapping win.SMBMapping) bool {
		_, err := win.ParseUNC(mapping.RemotePath)
		return err != nil
	}), nil
}

// IsMapped reports whether the share of a path is mapped.
func (m *Mappings) IsMapped(ctx context.Context, path string) (bool, error) {
	remote, err := win.ParseUNC(path)
	if err != nil {
		return false, nil
	}
	mapped, err := m.List(ctx)
	return err == nil && remote.MappedBy(mapped), err
}

// Describe returns what is known about the share of remote. Faults of the share are conditions of
// the volume. Describe fails if mappings can't be listed, or if ctx ends. The server is queried
// only if the share is mapped.
func (m *Mappings) Describe(ctx context.Context, remote win.UNCPath) (csiproxy.Volume, error) {
	described := csiproxy.Volume{Share: remote.Root()}
	mapped, err := m.List(ctx)
	if err != nil {
		return described, err
	}
	if !remote.MappedBy(mapped) {
		described.Conditions = csiproxy.Conditions{{Reason: csiproxy.ReasonShareNotMapped, Inaccessible: true,
			Message: "the share isn't mapped"}}
		return described, nil
	}
	described.Unencrypted = slices.ContainsFunc(mapped, func(mapping win.SMBMapping) bool {
		return !mapping.RequirePrivacy && remote.MappedBy([]win.SMBMapping{mapping})
	})
	err = m.Probe(ctx, remote.Share())
	if err == nil {
		space, spaceErr := m.sys.DiskFreeSpace(ctx, remote.Root()+`\`)
		described.SizeBytes = int64(space.Total)
		described.FreeBytes, described.UsedBytes = int64(space.Available), int64(space.Total-space.Free)
		err = spaceErr
	}
	if ctx.Err() != nil {
		return described, ctx.Err()
	}
	if err != nil {
		reason := csiproxy.ReasonShareUnreachable
		if kind := csiproxy.KindOf(err); kind == csiproxy.ErrUnauthenticated || kind == csiproxy.ErrPermissionDenied {
			reason = csiproxy.ReasonShareRefused
		}
		described.Conditions = csiproxy.Conditions{{Reason: reason, Inaccessible: true,
			Message: "the share can't be used: " + err.Error()}}
	}
	return described, nil
}
