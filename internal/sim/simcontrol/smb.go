// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"context"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/secret"
)

// AddSmbShare implements simv1.SimServer.
func (s *Service) AddSmbShare(_ context.Context, r *simv1.AddSmbShareRequest) (*simv1.AddSmbShareResponse, error) {
	share := smbserver.Share{Server: r.GetShare().GetServer(), Name: r.GetShare().GetName(), Users: r.GetShare().GetUsers(), SizeBytes: r.GetShare().GetSizeBytes()}
	return &simv1.AddSmbShareResponse{}, classify(s.sys.SMB().AddShare(share))
}

// GrowSmbShare implements simv1.SimServer.
func (s *Service) GrowSmbShare(_ context.Context, r *simv1.GrowSmbShareRequest) (*simv1.GrowSmbShareResponse, error) {
	return &simv1.GrowSmbShareResponse{}, classify(s.sys.SMB().GrowShare(r.Server, r.Name, r.SizeBytes))
}

// RemoveSmbShare implements simv1.SimServer.
func (s *Service) RemoveSmbShare(_ context.Context, r *simv1.RemoveSmbShareRequest) (*simv1.RemoveSmbShareResponse, error) {
	return &simv1.RemoveSmbShareResponse{}, classify(s.sys.SMB().RemoveShare(r.Server, r.Name))
}

// SetSmbUser implements simv1.SimServer.
func (s *Service) SetSmbUser(_ context.Context, r *simv1.SetSmbUserRequest) (*simv1.SetSmbUserResponse, error) {
	return &simv1.SetSmbUserResponse{}, classify(s.sys.SMB().SetUser(r.Server, r.User, secret.New(r.Password)))
}

// RemoveSmbUser implements simv1.SimServer.
func (s *Service) RemoveSmbUser(_ context.Context, r *simv1.RemoveSmbUserRequest) (*simv1.RemoveSmbUserResponse, error) {
	return &simv1.RemoveSmbUserResponse{}, classify(s.sys.SMB().RemoveUser(r.Server, r.User))
}

// SetSmbServer implements simv1.SimServer.
func (s *Service) SetSmbServer(_ context.Context, r *simv1.SetSmbServerRequest) (*simv1.SetSmbServerResponse, error) {
	state := smbserver.State{Unreachable: r.Unreachable, NoEncryption: r.NoEncryption}
	return &simv1.SetSmbServerResponse{}, classify(s.sys.SMB().SetState(r.Server, state))
}

// ListSmbServers implements simv1.SimServer.
func (s *Service) ListSmbServers(context.Context, *simv1.ListSmbServersRequest) (*simv1.ListSmbServersResponse, error) {
	response := &simv1.ListSmbServersResponse{}
	for _, sv := range s.sys.SMB().Servers() {
		server := &simv1.SmbServer{Name: sv.Name, Unreachable: sv.Unreachable, NoEncryption: sv.NoEncryption, Users: sv.Users}
		for _, sh := range sv.Shares {
			server.Shares = append(server.Shares, &simv1.SmbShare{Server: sh.Server, Name: sh.Name, Users: sh.Users, SizeBytes: sh.SizeBytes})
		}
		response.Servers = append(response.Servers, server)
	}
	return response, nil
}
