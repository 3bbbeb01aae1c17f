// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/doctor"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/system"
)

type refusingStorage struct {
	storage.Operations
	kind error
}

func (r refusingStorage) ListDisks(context.Context, storage.Selector) ([]storage.Disk, error) {
	return nil, csiproxy.Errorf(r.kind, "refused")
}

func (r refusingStorage) ListVolumes(context.Context) (storage.VolumeList, error) {
	return storage.VolumeList{}, csiproxy.Errorf(r.kind, "refused")
}

type refusingDisk struct {
	disk.Operations
	kind error
}

func (r refusingDisk) ListDiskLocations(context.Context) (map[disk.Number]disk.Location, error) {
	return nil, csiproxy.Errorf(r.kind, "refused")
}

type refusingSystem struct {
	system.Operations
	kind error
}

func (r refusingSystem) GetService(context.Context, string) (system.Service, error) {
	return system.Service{}, csiproxy.Errorf(r.kind, "refused")
}

// refusing returns a daemon's operations that fail.
func refusing(kind error, o doctor.Operations) doctor.Operations {
	return doctor.Operations{
		Disk: refusingDisk{o.Disk, kind}, Storage: refusingStorage{o.Storage, kind}, System: refusingSystem{o.System, kind},
	}
}
