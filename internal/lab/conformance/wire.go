// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
)

// fields are a request's fields by word. A password is a csiproxy.Secret.
type fields = drivers.Fields

var (
	methodOf, fieldOf = drivers.MethodOf, drivers.FieldOf
	olderMethods      = drivers.OlderMethods
)

// endpoint is where a version is served.
type endpoint struct{ group, version string }

// connection is what a published Go client has: one connection that proves that the
// endpoint is there and never sends a byte, and one for calls.
type connection struct {
	silent net.Conn
	conn   *grpc.ClientConn
}

func connect(ctx context.Context, o Options, e endpoint) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, o.CallTimeout)
	defer cancel()
	silent, err := o.Dial(ctx, e.group, e.version)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+api.EndpointName(e.group, e.version),
		grpc.WithContextDialer(func(ctx context.Context,
			_ string) (net.Conn, error) {
			return o.Dial(ctx, e.group, e.version)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials())) // nobody else is between the ends
	if err != nil {
		return nil, errors.Join(err, silent.Close())
	}
	return &connection{silent, conn}, nil
}

func (c *connection) close() error { return errors.Join(c.conn.Close(), c.silent.Close()) }

// invoke calls a method of a version, by its newest name.
func (c *connection) invoke(ctx context.Context, e endpoint, method string, f fields) (answer, error) {
	service, _ := api.Service(e.group, e.version)
	m := methodOf(service, method)
	request, response := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := drivers.Encode(request, f); err != nil {
		return answer{}, err
	}
	err := c.conn.Invoke(ctx, "/"+api.ServiceName(e.group, e.version)+"/"+string(m.Name()), proto.Message(request),
		response)
	return answer{response}, err
}

// answer is a response, whose fields are read by word. A word that it doesn't have is a
// mistake of the check, and panics.
type answer struct{ protoreflect.Message }

func (a answer) get(word string) protoreflect.Value {
	field := fieldOf(a.Descriptor(), word)
	if field == nil {
		panic(fmt.Sprintf("%s has no field for %q", a.Descriptor().FullName(), word))
	}
	return a.Get(field)
}

func (a answer) text(word string) string  { return a.get(word).String() }
func (a answer) is(word string) bool      { return a.get(word).Bool() }
func (a answer) number(word string) int64 { return numberOf(a.get(word)) }
func (a answer) texts(word string) []string {
	var all []string
	list := a.get(word).List()
	for i := range list.Len() {
		all = append(all, list.Get(i).String())
	}
	return all
}

// byDisk calls a method that has to succeed, and returns the values of a map whose keys are disk
// numbers, or their decimal texts.
func (t *trial) byDisk(method, word string) map[string]answer {
	all := make(map[string]answer)
	for key, value := range t.do(method, nil).get(word).Map().Range {
		_, err := strconv.ParseUint(key.String(), 10, 32)
		t.want(err == nil, "%s: %q is no disk number", method, key.String())
		all[key.String()] = answer{value.Message()}
	}
	return all
}

func numberOf(v protoreflect.Value) int64 {
	switch n := v.Interface().(type) {
	case uint32:
		return int64(n)
	case protoreflect.EnumNumber:
		return int64(n)
	}
	return v.Int()
}
