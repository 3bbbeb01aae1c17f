// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"context"
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// ReadFile implements simv1.SimServer.
func (s *Service) ReadFile(_ context.Context, r *simv1.ReadFileRequest) (*simv1.ReadFileResponse, error) {
	data, err := s.sys.ReadFile(r.Path)
	if err != nil {
		return nil, classify(err)
	}
	if len(data) > simv1.MaxData {
		return nil, &csiproxy.Error{
			Op:     "ReadFile",
			Object: r.Path,
			Kind:   csiproxy.ErrFailedPrecondition,
			Detail: fmt.Sprintf("its %d bytes are too many: one call gives %d", len(data), simv1.MaxData),
		}
	}
	return &simv1.ReadFileResponse{Data: data}, nil
}

// WriteFile implements simv1.SimServer.
func (s *Service) WriteFile(_ context.Context, r *simv1.WriteFileRequest) (*simv1.WriteFileResponse, error) {
	if err := checkLength("WriteFile", int64(len(r.Data))); err != nil {
		return nil, err
	}
	return &simv1.WriteFileResponse{}, classify(s.sys.WriteFile(r.Path, r.Data))
}

// ListDirectory implements simv1.SimServer.
func (s *Service) ListDirectory(_ context.Context, r *simv1.ListDirectoryRequest) (*simv1.ListDirectoryResponse, error) {
	entries, err := s.sys.ReadDir(r.Path)
	if err != nil {
		return nil, classify(err)
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

// MakeDirectory implements simv1.SimServer.
func (s *Service) MakeDirectory(_ context.Context, r *simv1.MakeDirectoryRequest) (*simv1.MakeDirectoryResponse, error) {
	return &simv1.MakeDirectoryResponse{}, classify(s.sys.MkdirAll(r.Path))
}

// CreateSymlink implements simv1.SimServer.
func (s *Service) CreateSymlink(_ context.Context, r *simv1.CreateSymlinkRequest) (*simv1.CreateSymlinkResponse, error) {
	return &simv1.CreateSymlinkResponse{}, classify(s.sys.Symlink(r.TargetPath, r.SourcePath, !r.File))
}

// ReadLink implements simv1.SimServer.
func (s *Service) ReadLink(_ context.Context, r *simv1.ReadLinkRequest) (*simv1.ReadLinkResponse, error) {
	target, err := s.sys.ReadLink(r.Path)
	return &simv1.ReadLinkResponse{Target: target}, classify(err)
}

// Rename implements simv1.SimServer.
func (s *Service) Rename(_ context.Context, r *simv1.RenameRequest) (*simv1.RenameResponse, error) {
	return &simv1.RenameResponse{}, classify(s.sys.Rename(r.OldPath, r.NewPath, r.Replace))
}

// Remove implements simv1.SimServer.
func (s *Service) Remove(_ context.Context, r *simv1.RemoveRequest) (*simv1.RemoveResponse, error) {
	return &simv1.RemoveResponse{}, classify(s.sys.Remove(r.Path))
}
