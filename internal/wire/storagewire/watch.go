// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagewire

import (
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/storage"
)

// FromChanges returns the message for changes.
func FromChanges(c storage.DiskChanges) *storagev1alpha1.WatchDisksResponse {
	return &storagev1alpha1.WatchDisksResponse{
		Removed: FromDisks(c.Removed), Added: FromDisks(c.Added), Changed: FromDisks(c.Changed),
	}
}

// ToChanges returns the changes in a message.
func ToChanges(m *storagev1alpha1.WatchDisksResponse) storage.DiskChanges {
	return storage.DiskChanges{Removed: ToDisks(m.Removed), Added: ToDisks(m.Added), Changed: ToDisks(m.Changed)}
}

// FromDisks returns the messages for disks.
func FromDisks(disks []storage.Disk) (all []*storagev1alpha1.Disk) {
	for _, d := range disks {
		all = append(all, FromDisk(d))
	}
	return all
}

// ToDisks returns the disks in messages.
func ToDisks(all []*storagev1alpha1.Disk) (disks []storage.Disk) {
	for _, m := range all {
		disks = append(disks, ToDisk(m))
	}
	return disks
}
