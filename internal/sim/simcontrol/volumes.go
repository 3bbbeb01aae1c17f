// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"context"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

var damages = map[winsim.Damage]simv1.Damage{
	winsim.NoDamage:      simv1.Damage_DAMAGE_NONE,
	winsim.SpotDamage:    simv1.Damage_DAMAGE_SPOT,
	winsim.OfflineDamage: simv1.Damage_DAMAGE_OFFLINE,
}

// ListVolumes implements simv1.SimServer.
func (s *Service) ListVolumes(context.Context, *simv1.ListVolumesRequest) (*simv1.ListVolumesResponse, error) {
	response := &simv1.ListVolumesResponse{}
	for _, v := range s.sys.Volumes() {
		volume := &simv1.Volume{
			VolumeId:         v.Name,
			DiskNumber:       uint32(v.DiskNumber),
			PartitionNumber:  v.Partition,
			Paths:            v.Paths,
			Offline:          v.Offline,
			ReadOnly:         v.ReadOnly,
			BitlockerLocked:  v.BitLocker,
			FileSystem:       v.FileSystem,
			Label:            v.Label,
			ClusterBytes:     v.ClusterSize,
			TotalBytes:       v.Space.Total,
			FreeBytes:        v.Space.Free,
			NoShortNames:     v.NoShortNames,
			IntegrityStreams: v.IntegrityStreams,
			Dirty:            v.Dirty,
		}
		if v.FileSystem != "" {
			volume.Damage = damages[v.Damage]
		}
		response.Volumes = append(response.Volumes, volume)
	}
	return response, nil
}

// SetVolume implements simv1.SimServer.
func (s *Service) SetVolume(_ context.Context, r *simv1.SetVolumeRequest) (*simv1.SetVolumeResponse, error) {
	var changes []func() error
	for damage, name := range damages {
		if r.Damage == name {
			changes = append(changes, func() error { return s.sys.SetVolumeDamage(r.Volume, damage) })
		}
	}
	if r.Damage != simv1.Damage_DAMAGE_UNSPECIFIED && len(changes) == 0 {
		return nil, invalid("SetVolume", "there is no damage "+r.Damage.String())
	}
	if r.Dirty != nil {
		changes = append(changes, func() error { return s.sys.SetVolumeDirty(r.Volume, *r.Dirty) })
	}
	if r.ReadOnly != nil {
		changes = append(changes, func() error { return s.sys.SetVolumeReadOnly(r.Volume, *r.ReadOnly) })
	}
	if r.BitlockerLocked != nil { // last: nothing else can be changed while it is locked
		changes = append(changes, func() error { return s.sys.SetVolumeLocked(r.Volume, *r.BitlockerLocked) })
	}
	if len(changes) == 0 {
		return nil, invalid("SetVolume", "there is nothing to change")
	}
	for _, change := range changes {
		if err := change(); err != nil {
			return nil, classify(err)
		}
	}
	return &simv1.SetVolumeResponse{}, nil
}

// StartProcess implements simv1.SimServer.
func (s *Service) StartProcess(_ context.Context, r *simv1.StartProcessRequest) (*simv1.StartProcessResponse, error) {
	id, err := s.sys.StartProcess(r.Program, r.Paths...)
	if err != nil {
		return nil, classify(err)
	}
	return &simv1.StartProcessResponse{ProcessId: uint32(id)}, nil
}

// EndProcess implements simv1.SimServer.
func (s *Service) EndProcess(_ context.Context, r *simv1.EndProcessRequest) (*simv1.EndProcessResponse, error) {
	return &simv1.EndProcessResponse{}, classify(s.sys.EndProcess(win.ProcessID(r.ProcessId)))
}

// ListProcesses implements simv1.SimServer.
func (s *Service) ListProcesses(context.Context, *simv1.ListProcessesRequest) (*simv1.ListProcessesResponse, error) {
	response := &simv1.ListProcessesResponse{}
	for _, p := range s.sys.Processes() {
		response.Processes = append(response.Processes, &simv1.Process{ProcessId: uint32(p.ID), Program: p.Image, Paths: p.Holds})
	}
	return response, nil
}
