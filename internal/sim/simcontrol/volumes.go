// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

var damages = map[volumes.Damage]simv1.Damage{
	volumes.NoDamage:      simv1.Damage_DAMAGE_NONE,
	volumes.SpotDamage:    simv1.Damage_DAMAGE_SPOT,
	volumes.OfflineDamage: simv1.Damage_DAMAGE_OFFLINE,
}

func (s *Service) ListVolumes() (*simv1.ListVolumesResponse, error) {
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

func (s *Service) SetVolume(r *simv1.SetVolumeRequest) error {
	var changes []func() error
	for damage, name := range damages {
		if r.Damage == name {
			changes = append(changes, func() error { return s.sys.SetVolumeDamage(r.Volume, damage) })
		}
	}
	if r.Damage != simv1.Damage_DAMAGE_UNSPECIFIED && len(changes) == 0 {
		return invalid("SetVolume", "there is no damage "+r.Damage.String())
	}
	if r.Dirty != nil {
		changes = append(changes, func() error { return s.sys.SetVolumeDirty(r.Volume, *r.Dirty) })
	}
	if r.ReadOnly != nil {
		changes = append(changes, func() error { return s.sys.SetVolumeReadOnly(r.Volume, *r.ReadOnly) })
	}
	if r.BitlockerLocked != nil { // late: the file system can't be changed while it is locked
		changes = append(changes, func() error { return s.sys.SetVolumeLocked(r.Volume, *r.BitlockerLocked) })
	}
	if r.Letter != nil { // last: r.Volume may be the letter before
		changes = append(changes, func() error { return s.sys.SetVolumeLetter(r.Volume, *r.Letter) })
	}
	if len(changes) == 0 {
		return invalid("SetVolume", "there is nothing to change")
	}
	for _, change := range changes {
		if err := change(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) StartProcess(r *simv1.Process) (*simv1.Process, error) {
	id, err := s.sys.StartProcess(r.Program, r.Paths...)
	if err != nil {
		return nil, err
	}
	return &simv1.Process{ProcessId: uint32(id)}, nil
}

func (s *Service) EndProcess(r *simv1.Process) error {
	return s.sys.EndProcess(win.ProcessID(r.ProcessId))
}

func (s *Service) ListProcesses() (*simv1.ListProcessesResponse, error) {
	response := &simv1.ListProcessesResponse{}
	for _, p := range s.sys.Processes() {
		response.Processes = append(response.Processes,
			&simv1.Process{ProcessId: uint32(p.ID), Program: p.Image, Paths: p.Holds})
	}
	return response, nil
}
