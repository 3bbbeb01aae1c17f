// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func (s *Service) ReadFile(r *simv1.Path) (*simv1.Data, error) {
	data, err := s.sys.ReadFile(r.Path)
	if err != nil {
		return nil, err
	}
	if len(data) > simv1.MaxData {
		return nil, &csiproxy.Error{
			Op:     "ReadFile",
			Object: r.Path,
			Kind:   csiproxy.ErrFailedPrecondition,
			Detail: fmt.Sprintf("its %d bytes are too many: one call gives %d", len(data), simv1.MaxData),
		}
	}
	return &simv1.Data{Data: data}, nil
}

func (s *Service) WriteFile(r *simv1.WriteFileRequest) error {
	if err := checkLength("WriteFile", int64(len(r.Data))); err != nil {
		return err
	}
	account, ok := accounts[r.User]
	if !ok {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the user %q must be ContainerUser, ContainerAdministrator or empty", r.User)
	}
	return s.sys.As(account).WriteFile(r.Path, r.Data)
}

// accounts are those of WriteFileRequest.user.
var accounts = map[string]*winsim.Account{
	"": nil, "ContainerUser": winsim.ContainerUser, "ContainerAdministrator": winsim.ContainerAdministrator,
}

func (s *Service) ListDirectory(r *simv1.Path) (*simv1.ListDirectoryResponse, error) {
	entries, err := s.sys.ReadDir(r.Path)
	if err != nil {
		return nil, err
	}
	response := &simv1.ListDirectoryResponse{}
	for _, e := range entries {
		response.Entries = append(response.Entries, &simv1.DirectoryEntry{
			Name:      e.Name,
			Directory: e.IsDir(),
			Reparse:   e.IsReparsePoint(),
			ReadOnly:  e.Attributes&win.AttributeReadOnly != 0,
		})
	}
	return response, nil
}

func (s *Service) MakeDirectory(r *simv1.Path) error {
	return s.sys.MkdirAll(r.Path)
}

func (s *Service) CreateSymlink(r *simv1.CreateSymlinkRequest) error {
	return s.sys.Symlink(r.TargetPath, r.SourcePath, !r.File)
}

func (s *Service) ReadLink(r *simv1.Path) (*simv1.ReadLinkResponse, error) {
	target, err := s.sys.ReadLink(r.Path)
	return &simv1.ReadLinkResponse{Target: target}, err
}

func (s *Service) Rename(r *simv1.RenameRequest) error {
	return s.sys.Rename(r.OldPath, r.NewPath, r.Replace)
}

func (s *Service) Remove(r *simv1.Path) error {
	return s.sys.Remove(r.Path)
}
