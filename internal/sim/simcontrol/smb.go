// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
)

func (s *Service) AddSmbShare(r *simv1.SmbShare) error {
	return s.sys.SMB().AddShare(smbserver.Share{Server: r.Server, Name: r.Name, Users: r.Users, SizeBytes: r.SizeBytes,
		ReadOnly: r.ReadOnly})
}

func (s *Service) GrowSmbShare(r *simv1.SmbShare) error {
	return s.sys.SMB().GrowShare(r.Server, r.Name, r.SizeBytes)
}

func (s *Service) RemoveSmbShare(r *simv1.SmbShare) error {
	return s.sys.SMB().RemoveShare(r.Server, r.Name)
}

func (s *Service) SetSmbUser(r *simv1.SmbUser) error {
	return s.sys.SMB().SetUser(r.Server, r.User, csiproxy.NewSecret(r.Password))
}

func (s *Service) RemoveSmbUser(r *simv1.SmbUser) error {
	return s.sys.SMB().RemoveUser(r.Server, r.User)
}

func (s *Service) SetSmbServer(r *simv1.SmbServer) error {
	return s.sys.SMB().SetState(r.Name, smbserver.State{Unreachable: r.Unreachable, NoEncryption: r.NoEncryption, KnowsNode: r.KnowsNode})
}

func (s *Service) ListSmbServers() (*simv1.ListSmbServersResponse, error) {
	response := &simv1.ListSmbServersResponse{}
	for _, sv := range s.sys.SMB().Servers() {
		server := &simv1.SmbServer{Name: sv.Name, Unreachable: sv.Unreachable, NoEncryption: sv.NoEncryption,
			KnowsNode: sv.KnowsNode, Users: sv.Users}
		for _, sh := range sv.Shares {
			server.Shares = append(server.Shares,
				&simv1.SmbShare{Server: sh.Server, Name: sh.Name, Users: sh.Users, SizeBytes: sh.SizeBytes, ReadOnly: sh.ReadOnly})
		}
		response.Servers = append(response.Servers, server)
	}
	return response, nil
}
