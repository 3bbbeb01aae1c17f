// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// SMBGlobalMappings lists the instances of MSFT_SmbGlobalMapping in the order of
// their paths.
func (s *System) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	return ask(ctx, s, Call{win.CallSMBGlobalMappings, ""}, sure(s.smb.Mappings))
}

// SMBConnections lists the instances of MSFT_SmbConnection.
func (s *System) SMBConnections(ctx context.Context) ([]win.SMBConnection, error) {
	return ask(ctx, s, Call{win.CallSMBConnections, ""}, func() ([]win.SMBConnection, error) {
		if s.settings.NoSMBConnections {
			return nil, nil
		}
		return s.smb.Connections(func(fs *ntfs.FS) (opens int) {
			for h := range s.handles {
				if h.dead == 0 && paths.IsOn(h.root, fs) {
					opens++
				}
			}
			return opens
		}), nil
	})
}

// CreateSMBGlobalMapping is the method Create of MSFT_SmbGlobalMapping:
// [smbserver.Network.CreateMapping].
func (s *System) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return s.call(ctx, Call{win.CallCreateSMBGlobalMapping, remotePath}, func() error {
		return s.smb.CreateMapping(remotePath, o)
	})
}

// RemoveSMBGlobalMapping is the method Remove of MSFT_SmbGlobalMapping, forced:
// [smbserver.Network.RemoveMapping].
func (s *System) RemoveSMBGlobalMapping(ctx context.Context, name string) error {
	return s.call(ctx, Call{win.CallRemoveSMBGlobalMapping, name}, func() error {
		return s.smb.RemoveMapping(name)
	})
}

// breakShare breaks what is open on the file system of a share.
//
// Guess: files that are open on a share answer error 64 when its mapping or server goes.
func (s *System) breakShare(fs *ntfs.FS) {
	s.handles.kill(winerr.ErrorNetNameDeleted, func(h *handle) bool { return paths.IsOn(h.root, fs) })
}

// SMB is the SMB servers that the node can reach, for control calls. Each method is
// that of [smbserver.Network], under the node's lock.
type SMB struct{ sys *System }

// SMB returns the SMB servers.
func (s *System) SMB() SMB { return SMB{s} }

// AddShare adds an empty share, and its server if there is none.
func (b SMB) AddShare(share smbserver.Share) error {
	return b.sys.control(func() error { return b.sys.smb.AddShare(share) })
}

// GrowShare makes a share larger.
func (b SMB) GrowShare(server, name string, sizeBytes int64) error {
	return b.sys.control(func() error { return b.sys.smb.GrowShare(server, name, sizeBytes) })
}

// RemoveShare removes a share with its files.
func (b SMB) RemoveShare(server, name string) error {
	return b.sys.control(func() error { return b.sys.smb.RemoveShare(server, name) })
}

// SetUser adds a user to a server, or changes his password.
func (b SMB) SetUser(server, name string, password csiproxy.Secret) error {
	return b.sys.control(func() error { return b.sys.smb.SetUser(server, name, password) })
}

// RemoveUser removes a user from a server.
func (b SMB) RemoveUser(server, name string) error {
	return b.sys.control(func() error { return b.sys.smb.RemoveUser(server, name) })
}

// SetState sets how a server is.
func (b SMB) SetState(server string, state smbserver.State) error {
	return b.sys.control(func() error { return b.sys.smb.SetState(server, state) })
}

// Map makes a mapping as another program does.
func (b SMB) Map(m smbserver.Mapping) error {
	return b.sys.control(func() error { return b.sys.smb.Map(m) })
}

// Servers lists the servers in the order of their names.
func (b SMB) Servers() []smbserver.Server { return look(b.sys, b.sys.smb.Servers) }
