// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simcontrol serves the control calls of a simulated node over gRPC, for
// tools outside the daemon's process.
package simcontrol

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Service is the service csiproxy.sim.v1.Sim. Its endpoint is simv1.EndpointName.
//
// The method of a call is that of Service with its name. It takes the request, if that isn't
// Empty, and returns the response, if that isn't Empty, and an error.
type Service struct {
	sys *winsim.System

	mu    sync.Mutex
	rules []rule // added and not cleared
}

// New returns the service of a node.
func New(sys *winsim.System) *Service { return &Service{sys: sys} }

// Register registers the service.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	service := simv1.File_csiproxy_sim_v1_sim_proto.Services().Get(0)
	desc := &grpc.ServiceDesc{ServiceName: string(service.FullName()), HandlerType: (*any)(nil)}
	for i := range service.Methods().Len() {
		desc.Methods = append(desc.Methods, s.method(service.Methods().Get(i)))
	}
	registrar.RegisterService(desc, nil)
}

// method serves a call by the method with its name.
func (s *Service) method(m protoreflect.MethodDescriptor) grpc.MethodDesc {
	do := reflect.ValueOf(s).MethodByName(string(m.Name()))
	handle := func(_ context.Context, request any) (any, error) {
		var in []reflect.Value
		if do.Type().NumIn() > 0 {
			in = append(in, reflect.ValueOf(request))
		}
		out := do.Call(in)
		if err, _ := out[len(out)-1].Interface().(error); err != nil {
			return nil, wire.ToStatus(classify(err))
		}
		if len(out) == 1 {
			return &simv1.Empty{}, nil
		}
		return out[0].Interface(), nil
	}
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())}
	return grpc.MethodDesc{
		MethodName: string(m.Name()),
		Handler: func(_ any, ctx context.Context, decode func(any) error,
			interceptor grpc.UnaryServerInterceptor) (any, error) {
			var request any = &simv1.Empty{}
			if do.Type().NumIn() > 0 {
				request = reflect.New(do.Type().In(0).Elem()).Interface()
			}
			if err := decode(request); err != nil {
				return nil, err
			}
			if interceptor == nil {
				return handle(ctx, request)
			}
			return interceptor(ctx, request, info, handle)
		},
	}
}

// Files returns the descriptors of the service, for gRPC reflection.
func (s *Service) Files() (*protoregistry.Files, error) {
	files := new(protoregistry.Files)
	return files, files.RegisterFile(simv1.File_csiproxy_sim_v1_sim_proto)
}

func (s *Service) PowerLoss() error {
	return s.sys.PowerLoss()
}

func (s *Service) Reboot() error {
	return s.sys.Reboot()
}

// classify gives an error of the node the class that it has here, where requests
// aren't checked before Windows' side sees them.
func classify(err error) error {
	if errors.As(err, new(*csiproxy.Error)) {
		return err
	}
	_, isWindows := csiproxy.WindowsErrorOf(err)
	var kind error
	switch {
	case errors.Is(err, winerr.ErrorInvalidParameter):
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
