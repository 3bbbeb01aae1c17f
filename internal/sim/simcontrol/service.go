// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simcontrol serves the control calls of a simulated node over gRPC, for
// tools outside the daemon's process.
package simcontrol

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoregistry"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Service is the service csiproxy.sim.v1.Sim. Its endpoint is simv1.EndpointName.
type Service struct {
	simv1.UnimplementedSimServer
	sys *winsim.System

	mu    sync.Mutex
	rules []*simv1.Rule // added and not cleared
}

// New returns the service of a node.
func New(sys *winsim.System) *Service { return &Service{sys: sys} }

// Register registers the service.
func (s *Service) Register(registrar grpc.ServiceRegistrar) { simv1.RegisterSimServer(registrar, s) }

// Files returns the descriptors of the service, for gRPC reflection.
func (s *Service) Files() (*protoregistry.Files, error) {
	files := new(protoregistry.Files)
	return files, files.RegisterFile(simv1.File_csiproxy_sim_v1_sim_proto)
}

// PowerLoss implements simv1.SimServer.
func (s *Service) PowerLoss(context.Context, *simv1.PowerLossRequest) (*simv1.PowerLossResponse, error) {
	return &simv1.PowerLossResponse{}, classify(s.sys.PowerLoss())
}

// Reboot implements simv1.SimServer.
func (s *Service) Reboot(context.Context, *simv1.RebootRequest) (*simv1.RebootResponse, error) {
	return &simv1.RebootResponse{}, classify(s.sys.Reboot())
}

// classify gives an error of the node the class that it has here, where requests
// aren't checked before Windows' side sees them.
func classify(err error) error {
	if err == nil {
		return nil
	}
	_, isWindows := csiproxy.WindowsErrorOf(err)
	var kind error
	switch {
	case errors.Is(err, win.ErrorInvalidParameter):
		kind = csiproxy.ErrInvalidArgument
	case isWindows:
		// as for the storage calls
	case errors.Is(err, fs.ErrExist): // of the machine that runs the daemon, as the next ones
		kind = csiproxy.ErrAlreadyExists
	case errors.Is(err, fs.ErrNotExist):
		kind = csiproxy.ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		kind = csiproxy.ErrPermissionDenied
	}
	return &csiproxy.Error{Kind: kind, Err: err}
}

// invalid is the error for a request that makes no sense.
func invalid(op, detail string) error {
	return &csiproxy.Error{Op: op, Kind: csiproxy.ErrInvalidArgument, Detail: detail}
}
