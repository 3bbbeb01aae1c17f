// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// VersionError reports an operation missing from the version in use of an API group.
type VersionError struct {
	Group   string // "volume"
	Version string // the one in use: "v1beta2"
	Method  string // the operation: "GetClosestVolumeIDFromTargetPath"
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("version %s of the %s API, which is in use, doesn't have this operation", e.Version, e.Group)
}

// variant is one way to do an operation: a gRPC method with the messages of some versions. The
// API's descriptors tell which variants a version supports.
type variant struct {
	method            string
	request, response proto.Message
	read              func() error // gets the result from the response
}

// message is a pointer to a generated message.
type message[T any] interface {
	*T
	proto.Message
}

// noResult is a variant whose response is empty.
func noResult(method string, request proto.Message) variant {
	return result(method, request, func(*emptypb.Empty) {})
}

// result is a variant with a result: read takes the result from the response.
func result[T any, Response message[T]](method string, request proto.Message, read func(Response)) variant {
	return checkedResult(method, request, func(response Response) error {
		read(response)
		return nil
	})
}

// checkedResult is result for a response that may be invalid. In this case read returns an error.
func checkedResult[T any, Response message[T]](method string, request proto.Message, read func(Response) error) variant {
	response := Response(new(T))
	return variant{method, request, response, func() error { return read(response) }}
}

// act calls an operation without a result. The gRPC method has the name of the operation.
func (g *group) act(ctx context.Context, op, object string, request proto.Message) error {
	return g.call(ctx, op, object, noResult(op, request))
}

// ask does an operation with one variant and a result: read takes the result from the response.
func ask[T any, Response message[T], Result any](ctx context.Context, g *group, op, object string,
	request proto.Message, read func(Response) Result) (got Result, err error) {
	err = g.call(ctx, op, object, result(op, request, func(r Response) { got = read(r) }))
	return got, err
}

// call does the operation op on object, in the first variant supported by the version in use.
func (g *group) call(ctx context.Context, op, object string, variants ...variant) error {
	version, err := g.version(ctx)
	if err != nil {
		return &csiproxy.Error{Op: op, Object: object, Err: err}
	}
	service, _ := api.Service(g.name, version)
	for _, variant := range variants {
		if !variant.isIn(service) {
			continue
		}
		if err := g.invoke(ctx, version, variant.method, variant.request, variant.response); err != nil {
			return operationError(op, object, variant.request, err)
		}
		if old, ok := variant.response.(interface{ GetError() string }); ok && old.GetError() != "" {
			return &csiproxy.Error{Op: op, Object: object, Kind: csiproxy.ErrInternal, Detail: old.GetError()}
		}
		if err := variant.read(); err != nil {
			return &csiproxy.Error{Op: op, Object: object, Err: err}
		}
		return nil
	}
	return &csiproxy.Error{
		Op: op, Object: object, Kind: csiproxy.ErrUnimplemented,
		Err: &VersionError{g.name, version, op},
	}
}

// isIn reports whether a service has the method with these messages.
func (v variant) isIn(service protoreflect.ServiceDescriptor) bool {
	method := service.Methods().ByName(protoreflect.Name(v.method))
	return method != nil &&
		wire.Identical(method.Input(), v.request.ProtoReflect().Descriptor()) == nil &&
		wire.Identical(method.Output(), v.response.ProtoReflect().Descriptor()) == nil
}

// operationError turns the error of a call into the error of the operation.
func operationError(op, object string, request proto.Message, err error) error {
	if _, invalid := proto.Marshal(request); invalid != nil { // a string isn't UTF-8
		return &csiproxy.Error{Op: op, Object: object, Kind: csiproxy.ErrInvalidArgument, Err: invalid}
	}
	err = wire.FromStatus(err)
	var e *csiproxy.Error
	ok := errors.As(err, &e)
	switch {
	case !ok:
	case e.Op != "": // it may be another name, that of the method in the version in use
		e.Op = op
	case !strings.Contains(e.Detail, op):
		// Errors of the published daemon and of a broken connection lack the operation and the
		// object.
		e.Op, e.Object = op, object
	}
	return err
}

// malformedError returns the error for a response that breaks the contract.
func malformedError(format string, a ...any) error {
	return &csiproxy.Error{Kind: csiproxy.ErrInternal, Detail: "the daemon's response has " + fmt.Sprintf(format, a...)}
}
