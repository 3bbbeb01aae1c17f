// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/wire/storagewire"
	"github.com/csi-proxy/csi-proxy/storage"
)

// Storage calls the storage group: whole tasks of a CSI node in one call each. A [Client]
// has one. The published daemon doesn't serve the group: its error is
// csiproxy.ErrUnavailable.
type Storage struct{ group *group }

// Version returns the version in use, such as "v1alpha1". If there is none yet, it chooses
// the newest one that is served.
func (s *Storage) Version(ctx context.Context) (string, error) { return s.group.version(ctx) }

// ListDisks returns the disks that a selector means, in the order of their numbers; all
// disks for the zero value. None is no error.
func (s *Storage) ListDisks(ctx context.Context, wanted storage.Selector) (disks []storage.Disk, err error) {
	err = s.group.call(ctx, "ListDisks", "",
		result("ListDisks", &storagev1alpha1.ListDisksRequest{Disk: storagewire.FromSelector(wanted)}, func(r *storagev1alpha1.ListDisksResponse) {
			for _, d := range r.Disks {
				disks = append(disks, storagewire.ToDisk(d))
			}
		}),
	)
	return disks, err
}
