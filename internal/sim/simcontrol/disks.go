// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"fmt"
	"math"
	"path/filepath"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

func (s *Service) ListDisks() (*simv1.ListDisksResponse, error) {
	response := &simv1.ListDisksResponse{}
	for _, d := range s.sys.Disks() {
		response.Disks = append(response.Disks, &simv1.Disk{
			DiskNumber:   numberOf(d.Number),
			State:        states[d.State],
			SizeBytes:    d.Size,
			SeenBytes:    d.Seen,
			SectorSize:   d.Spec.SectorSize,
			SerialNumber: d.Spec.Serial,
			Address: &simv1.ScsiAddress{
				Adapter: uint32(d.Spec.SCSI.PortNumber),
				Bus:     uint32(d.Spec.SCSI.PathID),
				Target:  uint32(d.Spec.SCSI.TargetID),
				Lun:     uint32(d.Spec.SCSI.LUN),
			},
			System:        d.System,
			Offline:       d.Attributes&win.DiskOffline != 0,
			ReadOnly:      d.Attributes&win.DiskReadOnly != 0,
			OfflineReason: simv1.OfflineReason(d.OfflineReason),
			Nvme:          namespaceOf(d.Spec.NVMe),
		})
	}
	return response, nil
}

// namespaceOf is the namespace of an NVMe disk, nil for another one.
func namespaceOf(n *hardware.NVMe) *simv1.NvmeNamespace {
	if n == nil {
		return nil
	}
	namespace := &simv1.NvmeNamespace{ControllerSerialNumber: n.Controller, NamespaceId: n.Namespace}
	if n.EUI64 != [8]byte{} {
		namespace.Eui64 = n.EUI64[:]
	}
	if n.NGUID != [16]byte{} {
		namespace.Nguid = n.NGUID[:]
	}
	return namespace
}

var states = map[disks.State]simv1.DiskState{
	disks.Detached: simv1.DiskState_DISK_STATE_DETACHED,
	disks.Attached: simv1.DiskState_DISK_STATE_ATTACHED,
	disks.Present:  simv1.DiskState_DISK_STATE_PRESENT,
}

// numberOf returns the disk number, nil if there is none.
func numberOf(n csiproxy.DiskNumber) *uint32 {
	if n == win.NoNumber {
		return nil
	}
	number := uint32(n)
	return &number
}

func (s *Service) AttachDisk(r *simv1.DiskHardware) (*simv1.DiskNumber, error) {
	spec, err := specOf("AttachDisk", r)
	if err != nil {
		return nil, err
	}
	n, err := s.sys.AttachDisk(spec)
	if err != nil {
		return nil, err
	}
	return &simv1.DiskNumber{DiskNumber: numberOf(n)}, nil
}

func (s *Service) CloneDisk(r *simv1.CloneDiskRequest) (*simv1.DiskNumber, error) {
	spec, err := specOf("CloneDisk", r.GetDisk())
	if err != nil {
		return nil, err
	}
	n, err := s.sys.CloneDisk(csiproxy.DiskNumber(r.DiskNumber), spec)
	if err != nil {
		return nil, err
	}
	return &simv1.DiskNumber{DiskNumber: numberOf(n)}, nil
}

// specOf is the hardware in a request to op.
func specOf(op string, r *simv1.DiskHardware) (winsim.DiskSpec, error) {
	spec := winsim.DiskSpec{
		SizeBytes:   r.GetSizeBytes(),
		SectorSize:  r.GetSectorSize(),
		Serial:      r.GetSerialNumber(),
		Offline:     r.GetOffline(),
		ReadOnly:    r.GetReadOnly(),
		NeedsRescan: r.GetNeedsRescan(),
		Page83:      page83Of(r.GetPage83()),
		VendorID:    r.GetVendor(),
		ProductID:   r.GetProduct(),
		Revision:    r.GetRevision(),
		Location:    r.GetLocation(),
		Late:        time.Duration(r.GetLateNs()),
	}
	if r != nil && r.DiskNumber != nil {
		number := csiproxy.DiskNumber(*r.DiskNumber)
		spec.Number = &number
	}
	if a := r.GetAddress(); a != nil {
		if max(a.Adapter, a.Bus, a.Target, a.Lun) > math.MaxUint8 {
			return spec, invalid(op, fmt.Sprintf("the parts of the address are below %d", math.MaxUint8+1))
		}
		spec.SCSI = &win.SCSIAddress{PortNumber: byte(a.Adapter), PathID: byte(a.Bus), TargetID: byte(a.Target),
			LUN: byte(a.Lun)}
	}
	if len(r.GetDesignators()) > 0 && r.GetPage83() != "" {
		return spec, invalid(op, "page83 and designators can't be given together")
	}
	for _, d := range r.GetDesignators() {
		spec.Page83 = append(spec.Page83, win.Identifier{
			CodeSet: win.CodeSet(d.CodeSet), Type: win.IdentifierType(d.Type), Association: win.Association(d.Association),
			ID: d.Id,
		})
	}
	if n := r.GetNvme(); n != nil {
		spec.NVMe = &hardware.NVMe{Controller: n.ControllerSerialNumber, Namespace: n.NamespaceId}
		for _, id := range []struct {
			name     string
			from, to []byte
		}{{"EUI-64", n.Eui64, spec.NVMe.EUI64[:]}, {"NGUID", n.Nguid, spec.NVMe.NGUID[:]}} {
			if len(id.from) != 0 && len(id.from) != len(id.to) {
				return spec, invalid(op, fmt.Sprintf("the %s of an NVMe namespace has %d bytes, and not %d", id.name, len(id.to),
					len(id.from)))
			}
			copy(id.to, id.from)
		}
	}
	return spec, nil
}

// page83Of returns the designators of a disk with an ASCII identifier, nil for the
// default.
func page83Of(id string) []win.Identifier {
	if id == "" {
		return nil
	}
	return []win.Identifier{{CodeSet: win.CodeSetASCII, Type: win.IdentifierT10, ID: []byte(id)}}
}

func (s *Service) DetachDisk(r *simv1.DiskNumber) error {
	return s.sys.DetachDisk(csiproxy.DiskNumber(r.GetDiskNumber()))
}

func (s *Service) DeleteDisk(r *simv1.SerialNumber) error {
	return s.sys.DeleteDisk(r.SerialNumber)
}

func (s *Service) TakeDisk(r *simv1.TakeDiskRequest) error {
	if err := checkPath("TakeDisk", r.File); err != nil {
		return err
	}
	return s.sys.TakeDisk(r.SerialNumber, r.File)
}

func (s *Service) GiveDisk(r *simv1.DiskFile) error {
	if err := checkPath("GiveDisk", r.File); err != nil {
		return err
	}
	return s.sys.GiveDisk(r.File)
}

func (s *Service) GrowDisk(r *simv1.GrowDiskRequest) error {
	return s.sys.GrowDisk(csiproxy.DiskNumber(r.DiskNumber), r.SizeBytes)
}

func (s *Service) SetDiskAttributes(r *simv1.SetDiskAttributesRequest) error {
	change := win.SetDiskAttributes{Persist: r.Persist}
	set := func(attribute win.DiskAttributes, value *bool) {
		if value == nil {
			return
		}
		change.Mask |= attribute
		if *value {
			change.Attributes |= attribute
		}
	}
	set(win.DiskOffline, r.Offline)
	set(win.DiskReadOnly, r.ReadOnly)
	switch {
	case change.Mask == 0:
		return invalid("SetDiskAttributes", "there is nothing to change")
	case r.OfflineReason != 0 && (!r.GetOffline() || r.ReadOnly != nil || r.Persist):
		return invalid("SetDiskAttributes", "a reason goes with offline alone: what Windows does by itself isn't persistent")
	case simv1.OfflineReason_name[int32(r.OfflineReason)] == "":
		return invalid("SetDiskAttributes", fmt.Sprintf("there is no reason %d", r.OfflineReason))
	case r.OfflineReason != 0:
		return s.sys.SetOfflineReason(csiproxy.DiskNumber(r.DiskNumber), win.OfflineReason(r.OfflineReason))
	}
	return s.sys.SetDiskAttributes(csiproxy.DiskNumber(r.DiskNumber), change)
}

func (s *Service) ReadDisk(r *simv1.ReadDiskRequest) (*simv1.Data, error) {
	if r.Length < 0 {
		return nil, invalid("ReadDisk", fmt.Sprintf("a length of %d bytes", r.Length))
	}
	if err := checkLength("ReadDisk", r.Length); err != nil {
		return nil, err
	}
	data := make([]byte, r.Length)
	if err := s.sys.ReadImage(csiproxy.DiskNumber(r.DiskNumber), data, r.Offset); err != nil {
		return nil, err
	}
	return &simv1.Data{Data: data}, nil
}

func (s *Service) WriteDisk(r *simv1.WriteDiskRequest) error {
	if err := checkLength("WriteDisk", int64(len(r.Data))); err != nil {
		return err
	}
	return s.sys.WriteImage(csiproxy.DiskNumber(r.DiskNumber), r.Data, r.Offset)
}

func (s *Service) ExportDisk(r *simv1.ExportDiskRequest) error {
	if err := checkPath("ExportDisk", r.File); err != nil {
		return err
	}
	return s.sys.ExportImage(csiproxy.DiskNumber(r.DiskNumber), r.File)
}

// checkPath checks that a file is named so that the daemon knows where it is.
func checkPath(op, file string) error {
	if !filepath.IsAbs(file) {
		return invalid(op, fmt.Sprintf("the file %q has no absolute path", file))
	}
	return nil
}

// checkLength checks how many bytes a call is about.
func checkLength(op string, length int64) error {
	if length > simv1.MaxData {
		return invalid(op, fmt.Sprintf("%d bytes are too many: one call takes %d", length, simv1.MaxData))
	}
	return nil
}
