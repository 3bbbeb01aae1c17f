// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/records"
	"github.com/csi-proxy/csi-proxy/internal/unc"
)

// A record says that CSI Proxy has made the mapping of a share for a staged path. Windows
// doesn't tell who has made a mapping, and administrators and their scripts make mappings,
// too. So only a mapping that has a record is removed without being asked for by name, once
// nothing uses it.
//
// It is made before the mapping, so a process that dies half-way leaves no mapping without a
// record. Mappings end with a restart of Windows and records don't: those of shares that
// aren't mapped are dropped when the mappings are listed.

// record notes that the mapping of a share is being made for a staged path, and reports whether
// that is new.
func (m *Mappings) record(ctx context.Context, remote unc.Path) (isNew bool, _ error) {
	isNew, release, err := records.Mappings.Make(ctx, m.sys, records.Name(remote.Root()), remote.Root())
	if err == nil {
		release()
	}
	return isNew, err
}

// recorded reports whether the mapping of a share was made for a staged path.
func (m *Mappings) recorded(ctx context.Context, remote unc.Path) (bool, error) {
	return records.Mappings.Has(ctx, m.sys, records.Name(remote.Root()))
}

// dropRecord removes the record of a share, if there is one.
func (m *Mappings) dropRecord(ctx context.Context, remote unc.Path) error {
	return records.Mappings.Drop(ctx, m.sys, records.Name(remote.Root()), nil)
}

// dropStaleRecords drops the records of shares that aren't mapped, such as after a restart of
// Windows: whoever maps such a share later isn't CSI Proxy.
func (m *Mappings) dropStaleRecords(ctx context.Context) error {
	all, err := records.Mappings.All(ctx, m.sys)
	if err != nil {
		return err
	}
	for _, r := range all {
		remote, err := unc.Parse(r.About)
		if err != nil {
			continue // CSI Proxy hasn't made it
		}
		if err := m.dropIfStale(ctx, remote); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mappings) dropIfStale(ctx context.Context, remote unc.Path) error {
	mappings, err := m.options.Shares.Mappings(ctx)
	if err != nil || remote.MappedBy(mappings) {
		return err
	}
	// Whoever makes the mapping has recorded it before.
	ctx, rights, err := m.Rights(ctx, remote)
	if err != nil {
		return err
	}
	defer rights.Release()
	if mappings, err = m.sys.SMBGlobalMappings(ctx); err != nil || remote.MappedBy(mappings) {
		return err
	}
	return m.dropRecord(ctx, remote)
}
