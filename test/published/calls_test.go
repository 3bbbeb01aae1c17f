// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/csi-proxy/csi-proxy/test/published/drivers"
)

var _ drivers.Node = stubs{}

// Call calls a method through the generated client that has it.
func (s stubs) Call(ctx context.Context, method string, request drivers.Fields) ([]byte, error) {
	for _, stub := range []any{s.disk, s.volume, s.filesystem, s.smb, s.iscsi} {
		generated := reflect.ValueOf(stub).MethodByName(method)
		if !generated.IsValid() {
			continue
		}
		req := reflect.New(generated.Type().In(1).Elem())
		if err := fill(message(req), nested(request)); err != nil {
			return nil, err
		}
		results := generated.Call([]reflect.Value{reflect.ValueOf(ctx), req})
		if err, failed := results[1].Interface().(error); failed {
			return nil, err
		}
		return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message(results[0]).Interface())
	}
	return nil, fmt.Errorf("no client has the method %s", method)
}

// nested are the fields of a request as fill takes them.
func nested(request drivers.Fields) fields {
	all := fields{}
	for name, value := range request {
		if f, ok := value.(drivers.Fields); ok {
			value = nested(f)
		}
		all[name] = value
	}
	return all
}
