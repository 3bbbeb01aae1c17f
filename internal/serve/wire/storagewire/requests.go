// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagewire

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
)

// EncodeSelector returns the message for a selector.
func EncodeSelector(s csiproxy.Selector) *storagev1alpha1.DiskSelector {
	m := &storagev1alpha1.DiskSelector{
		Number:        (*uint32)(s.Number),
		SerialNumber:  s.SerialNumber,
		Identifier:    s.Identifier,
		Adapter:       s.Adapter,
		Port:          s.Port,
		Lun:           s.LUN,
		AzureLun:      s.AzureLUN,
		Vendor:        s.Vendor,
		Product:       s.Product,
		NvmeNamespace: s.NVMeNamespace,
	}
	if s.ISCSI != nil {
		m.Iscsi = &storagev1alpha1.ISCSISelector{
			Portal: &storagev1alpha1.Portal{Address: s.ISCSI.Portal.Address, Port: uint32(s.ISCSI.Portal.Port)},
			Iqn:    string(s.ISCSI.IQN),
			Lun:    s.ISCSI.LUN,
		}
	}
	return m
}

// DecodeSelector returns the selector in a message.
func DecodeSelector(m *storagev1alpha1.DiskSelector) (csiproxy.Selector, error) {
	return decode(m, (*decoder).selector)
}

func (d *decoder) selector(m *storagev1alpha1.DiskSelector) csiproxy.Selector {
	if m == nil {
		return csiproxy.Selector{}
	}
	s := csiproxy.Selector{
		Number:        (*csiproxy.DiskNumber)(m.Number),
		SerialNumber:  m.SerialNumber,
		Identifier:    m.Identifier,
		Adapter:       m.Adapter,
		Port:          m.Port,
		LUN:           m.Lun,
		AzureLUN:      m.AzureLun,
		Vendor:        m.Vendor,
		Product:       m.Product,
		NVMeNamespace: m.NvmeNamespace,
	}
	if m.Iscsi != nil {
		portal := m.Iscsi.GetPortal()
		s.ISCSI = &csiproxy.ISCSISelector{
			Portal: csiproxy.ISCSIPortal{Address: portal.GetAddress(), Port: fit[uint16](d, "port", portal.GetPort())},
			IQN:    csiproxy.IQN(m.Iscsi.Iqn),
			LUN:    m.Iscsi.Lun,
		}
	}
	return s
}

// EncodeStageVolumeRequest returns the message for a request. An authentication type unknown to the
// API fails with csiproxy.ErrInvalidArgument.
func EncodeStageVolumeRequest(r csiproxy.StageVolumeRequest) (*storagev1alpha1.StageVolumeRequest, error) {
	login, err := encodeLogin(r.Login)
	if err != nil {
		return nil, err
	}
	return &storagev1alpha1.StageVolumeRequest{
		Disk:        EncodeSelector(r.Disk),
		Login:       login,
		StagingPath: r.StagingPath,
		Partition:   r.Partition,
		ReadOnly:    r.ReadOnly,
		Format: &storagev1alpha1.FormatOptions{
			FileSystem:          string(r.Format.FileSystem),
			AllocationUnitBytes: r.Format.AllocationUnitBytes,
			Label:               r.Format.Label,
			NoShortNames:        r.Format.NoShortNames,
			IntegrityStreams:    r.Format.IntegrityStreams,
			Writers:             r.Format.Writers,
		},
		Grow:             r.Grow,
		WaitMilliseconds: milliseconds(r.Wait),
	}, nil
}

// DecodeStageVolumeRequest returns the request in a message.
func DecodeStageVolumeRequest(m *storagev1alpha1.StageVolumeRequest) (csiproxy.StageVolumeRequest, error) {
	return decode(m, func(d *decoder, m *storagev1alpha1.StageVolumeRequest) csiproxy.StageVolumeRequest {
		return csiproxy.StageVolumeRequest{
			Disk:        d.selector(m.Disk),
			Login:       d.login(m.Login),
			StagingPath: m.StagingPath,
			Partition:   m.Partition,
			ReadOnly:    m.ReadOnly,
			Format: csiproxy.FormatOptions{
				FileSystem:          csiproxy.FileSystem(m.Format.GetFileSystem()),
				AllocationUnitBytes: m.Format.GetAllocationUnitBytes(),
				Label:               m.Format.GetLabel(),
				NoShortNames:        m.Format.GetNoShortNames(),
				IntegrityStreams:    m.Format.GetIntegrityStreams(),
				Writers:             m.Format.GetWriters(),
			},
			Grow: m.Grow,
			Wait: d.duration("wait_milliseconds", m.WaitMilliseconds),
		}
	})
}

func encodeLogin(l csiproxy.ISCSILogin) (*storagev1alpha1.ISCSILogin, error) {
	t := storagev1alpha1.AuthenticationType(l.Type)
	if csiproxy.ISCSIAuthType(t) != l.Type || !isKnown(t) {
		return nil, unknownAuthentication(l.Type)
	}
	return &storagev1alpha1.ISCSILogin{
		Type:         t,
		Username:     l.Username,
		Secret:       l.Secret.Reveal(),
		MutualSecret: l.MutualSecret.Reveal(),
	}, nil
}

func (d *decoder) login(m *storagev1alpha1.ISCSILogin) csiproxy.ISCSILogin {
	if !isKnown(m.GetType()) {
		d.fail(unknownAuthentication(csiproxy.ISCSIAuthType(m.GetType())))
	}
	return csiproxy.ISCSILogin{
		ISCSIAuthentication: csiproxy.ISCSIAuthentication{
			Type:     csiproxy.ISCSIAuthType(m.GetType()),
			Username: m.GetUsername(),
			Secret:   csiproxy.NewSecret(m.GetSecret()),
		},
		MutualSecret: csiproxy.NewSecret(m.GetMutualSecret()),
	}
}

// EncodeUnstageVolumeRequest returns the message for a request.
func EncodeUnstageVolumeRequest(r csiproxy.UnstageVolumeRequest) *storagev1alpha1.UnstageVolumeRequest {
	return &storagev1alpha1.UnstageVolumeRequest{
		StagingPath: r.StagingPath,
		Force:       r.Force,
		Disk:        EncodeSelector(r.Disk),
	}
}

// DecodeUnstageVolumeRequest returns the request in a message.
func DecodeUnstageVolumeRequest(m *storagev1alpha1.UnstageVolumeRequest) (csiproxy.UnstageVolumeRequest, error) {
	return decode(m, func(d *decoder, m *storagev1alpha1.UnstageVolumeRequest) csiproxy.UnstageVolumeRequest {
		return csiproxy.UnstageVolumeRequest{
			StagingPath: m.StagingPath,
			Force:       m.Force,
			Disk:        d.selector(m.Disk),
		}
	})
}

// EncodeExpandVolumeRequest returns the message for a request.
func EncodeExpandVolumeRequest(r csiproxy.ExpandVolumeRequest) *storagev1alpha1.ExpandVolumeRequest {
	return &storagev1alpha1.ExpandVolumeRequest{
		StagingPath:      r.StagingPath,
		DiskSizeBytes:    r.DiskSizeBytes,
		WaitMilliseconds: milliseconds(r.Wait),
	}
}

// DecodeExpandVolumeRequest returns the request in a message.
func DecodeExpandVolumeRequest(m *storagev1alpha1.ExpandVolumeRequest) (csiproxy.ExpandVolumeRequest, error) {
	return decode(m, func(d *decoder, m *storagev1alpha1.ExpandVolumeRequest) csiproxy.ExpandVolumeRequest {
		return csiproxy.ExpandVolumeRequest{
			StagingPath:   m.StagingPath,
			DiskSizeBytes: m.DiskSizeBytes,
			Wait:          d.duration("wait_milliseconds", m.WaitMilliseconds),
		}
	})
}

// EncodeStageShareRequest returns the message for a request.
func EncodeStageShareRequest(r csiproxy.StageShareRequest) *storagev1alpha1.StageShareRequest {
	return &storagev1alpha1.StageShareRequest{
		RemotePath:  r.RemotePath,
		StagingPath: r.StagingPath,
		Credentials: &storagev1alpha1.Credentials{
			Username: r.Credentials.Username,
			Password: r.Credentials.Password.Reveal(),
		},
		Privacy:  string(r.Privacy),
		ReadOnly: r.ReadOnly,
	}
}

// DecodeStageShareRequest returns the request in a message.
func DecodeStageShareRequest(m *storagev1alpha1.StageShareRequest) csiproxy.StageShareRequest {
	return csiproxy.StageShareRequest{
		RemotePath:  m.RemotePath,
		StagingPath: m.StagingPath,
		Credentials: csiproxy.SMBCredentials{
			Username: m.Credentials.GetUsername(),
			Password: csiproxy.NewSecret(m.Credentials.GetPassword()),
		},
		Privacy:  csiproxy.SharePrivacy(m.Privacy),
		ReadOnly: m.ReadOnly,
	}
}

// EncodeUnstageShareRequest returns the message for a request.
func EncodeUnstageShareRequest(r csiproxy.UnstageShareRequest) *storagev1alpha1.UnstageShareRequest {
	return &storagev1alpha1.UnstageShareRequest{StagingPath: r.StagingPath, RemotePath: r.RemotePath}
}

// DecodeUnstageShareRequest returns the request in a message.
func DecodeUnstageShareRequest(m *storagev1alpha1.UnstageShareRequest) csiproxy.UnstageShareRequest {
	return csiproxy.UnstageShareRequest{StagingPath: m.StagingPath, RemotePath: m.RemotePath}
}

// EncodeCheckVolumeRequest returns the message for a request.
func EncodeCheckVolumeRequest(r csiproxy.CheckVolumeRequest) *storagev1alpha1.CheckVolumeRequest {
	return &storagev1alpha1.CheckVolumeRequest{StagingPath: r.StagingPath, SpotFix: r.SpotFix}
}

// DecodeCheckVolumeRequest returns the request in a message.
func DecodeCheckVolumeRequest(m *storagev1alpha1.CheckVolumeRequest) csiproxy.CheckVolumeRequest {
	return csiproxy.CheckVolumeRequest{StagingPath: m.StagingPath, SpotFix: m.SpotFix}
}
