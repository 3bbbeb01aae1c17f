// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

func init() {
	simulated = (*program).sim
	examples += simExamples
}

// The sim commands are made from the descriptors of their service: a command is a call, its
// arguments and flags are fields of the request, and what it prints are fields of the
// response. simcommands.go says which.
var simService = simv1.File_csiproxy_sim_v1_sim_proto.Services().Get(0)

// simCall says what a command is besides its use and its help.
type simCall struct {
	method string
	args   []string // the fields that the arguments are, by their paths in the request
	flags  []simFlag
	show   func(protoreflect.Message) reply // prints the response; nil prints nothing
}

// simFlag is a flag for a field of the request.
type simFlag struct {
	field string // its path, such as nvme.eui64; a bool after ! is what the flag isn't
	name  string
	usage string
	// value is the default, which the help shows. It is sent if the message that has the
	// field is there. Without one, a field is sent only if its flag is given.
	value    string
	required bool
	secret   bool // the flag names a file with the value
}

// simLeaf is a command that makes a call.
func (p *program) simLeaf(use, short string, call simCall) *cobra.Command {
	method := simService.Methods().ByName(protoreflect.Name(call.method))
	request := dynamicpb.NewMessage(method.Input())
	var before []func() error
	cmd := p.leaf(use, short, func(ctx context.Context, args []string) (reply, error) {
		for i, value := range args {
			if err := setField(request, call.args[min(i, len(call.args)-1)], value); err != nil {
				return reply{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%q: %v", value, err)
			}
		}
		for _, f := range before {
			if err := f(); err != nil {
				return reply{}, err
			}
		}
		response := dynamicpb.NewMessage(method.Output())
		if err := p.callSim(ctx, call.method, request, response); err != nil || call.show == nil {
			return done, err
		}
		return call.show(response), nil
	})
	if len(call.args) > 0 && strings.HasSuffix(call.args[0], "disk_number") {
		cmd.ValidArgsFunction = p.completeDisks
	}
	for _, f := range call.flags {
		if f.secret {
			read := secretFlag(cmd, f.name, f.usage)
			before = append(before, func() error { return setSecret(cmd, request, f, read) })
		} else {
			v := &fieldFlag{request: request, simFlag: f, fd: fieldOf(method.Input(), f.field)}
			cmd.Flags().VarPF(v, f.name, "", f.usage).NoOptDefVal = v.withoutValue()
			v.complete(cmd)
			before = append(before, func() error { return v.sendDefault(cmd) })
		}
		if f.required {
			require(cmd, f.name)
		}
	}
	return cmd
}

func setSecret(cmd *cobra.Command, request protoreflect.Message, f simFlag, read func() (csiproxy.Secret, error)) error {
	if !cmd.Flags().Changed(f.name) {
		return nil
	}
	text, err := read()
	if err != nil {
		return err
	}
	return setField(request, f.field, text.Reveal())
}

// callSim makes a call to the control of the simulated node.
func (p *program) callSim(ctx context.Context, method string, request, response proto.Message) error {
	address := pipe.Address(p.endpointDir, simv1.EndpointName)
	probe, err := pipe.Dial(ctx, address)
	if err != nil {
		return &csiproxy.Error{
			Op: "connect", Object: "to the simulated node", Kind: csiproxy.ErrUnavailable,
			Detail: "CSI Proxy isn't running, or doesn't run on a simulated node", Err: err,
		}
	}
	_ = probe.Close() // nothing was sent that could get lost
	conn, err := grpc.NewClient("passthrough:///"+simv1.EndpointName,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.Dial(ctx, address) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	err = conn.Invoke(ctx, fmt.Sprintf("/%s/%s", simService.FullName(), method), request, response)
	return errors.Join(wire.FromStatus(err), conn.Close())
}

// fieldFlag is a field of a request as a flag.
type fieldFlag struct {
	simFlag
	request protoreflect.Message
	fd      protoreflect.FieldDescriptor
}

// String, Set and Type are pflag.Value.
func (f *fieldFlag) String() string { return f.value }

func (f *fieldFlag) Set(s string) error {
	values := []string{s}
	if f.fd.IsList() && (f.fd.Kind() == protoreflect.StringKind || f.fd.Message().FullName() == portalName) {
		values = strings.Split(s, ",")
	}
	for _, value := range values {
		if err := setField(f.request, f.field, value); err != nil {
			return err
		}
	}
	return nil
}

func (f *fieldFlag) Type() string {
	switch {
	case f.withoutValue() != "":
		return "bool" // which the help leaves out
	case isSize(f.fd):
		return "size"
	case isDuration(f.fd):
		return "duration"
	case f.fd.IsList() && f.fd.Kind() == protoreflect.StringKind:
		return "strings"
	case f.fd.Kind() == protoreflect.BytesKind:
		return "string"
	case f.fd.Kind() == protoreflect.MessageKind:
		return "kind=value"
	}
	return f.fd.Kind().String()
}

// withoutValue is the value of a flag that is given without one: "true" of a bool, and of a
// message, which is there then.
func (f *fieldFlag) withoutValue() string {
	if f.fd.Kind() == protoreflect.BoolKind || f.fd.Kind() == protoreflect.MessageKind && !f.fd.IsList() {
		return "true"
	}
	return ""
}

// complete offers the values of an enum.
func (f *fieldFlag) complete(cmd *cobra.Command) {
	if f.fd.Kind() != protoreflect.EnumKind {
		return
	}
	complete(cmd, f.name, cobra.FixedCompletions(enumNames(f.fd.Enum()), cobra.ShellCompDirectiveNoFileComp))
}

// sendDefault sends the default if the message that has the field is there.
func (f *fieldFlag) sendDefault(cmd *cobra.Command) error {
	if f.value == "" || cmd.Flags().Changed(f.name) {
		return nil
	}
	path := strings.Split(strings.TrimPrefix(f.field, "!"), ".")
	m := f.request
	for _, name := range path[:len(path)-1] {
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !m.Has(fd) {
			return nil
		}
		m = m.Get(fd).Message()
	}
	return setField(f.request, f.field, f.value)
}

// fieldOf finds the field with a path.
func fieldOf(m protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	name, rest, more := strings.Cut(strings.TrimPrefix(path, "!"), ".")
	fd := m.Fields().ByName(protoreflect.Name(name))
	if fd == nil {
		panic(fmt.Sprintf("%s has no field %s", m.FullName(), path)) // a mistake of this program
	}
	if more {
		return fieldOf(fd.Message(), rest)
	}
	return fd
}

// setField sets the field with a path in m to a value from the command line. A list gets one
// more element.
func setField(m protoreflect.Message, path, value string) error {
	name, rest, more := strings.Cut(strings.TrimPrefix(path, "!"), ".")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if more {
		return setField(m.Mutable(fd).Message(), rest, value)
	}
	if strings.HasPrefix(path, "!") {
		is, err := strconv.ParseBool(value)
		value = strconv.FormatBool(!is)
		if err != nil {
			return err
		}
	}
	if !fd.IsList() {
		v, err := parseValue(m.NewField(fd), fd, value)
		if err == nil {
			m.Set(fd, v)
		}
		return err
	}
	list := m.Mutable(fd).List()
	v, err := parseValue(list.NewElement(), fd, value)
	if err == nil {
		list.Append(v)
	}
	return err
}

// parseValue reads a value of a field; empty is a new one.
func parseValue(empty protoreflect.Value, fd protoreflect.FieldDescriptor, s string) (protoreflect.Value, error) {
	switch {
	case isSize(fd):
		var size sizeFlag
		err := size.Set(s)
		return protoreflect.ValueOfInt64(int64(size)), err
	case isDuration(fd):
		d, err := time.ParseDuration(s)
		return protoreflect.ValueOfInt64(int64(d)), err
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		is, err := strconv.ParseBool(s)
		return protoreflect.ValueOfBool(is), err
	case protoreflect.Uint32Kind:
		n, err := strconv.ParseUint(s, 0, 32)
		if err != nil {
			err = errors.New("must be a number, 0 or more")
		}
		return protoreflect.ValueOfUint32(uint32(n)), err
	case protoreflect.Int32Kind:
		n, err := strconv.ParseInt(s, 0, 32)
		return protoreflect.ValueOfInt32(int32(n)), err
	case protoreflect.StringKind:
		if fd.FullName() == "csiproxy.sim.v1.ExportDiskRequest.file" {
			s, err := filepath.Abs(s)
			return protoreflect.ValueOfString(s), err
		}
		return protoreflect.ValueOfString(s), nil
	case protoreflect.BytesKind:
		if fd.FullName() == "csiproxy.sim.v1.WriteFileRequest.data" {
			return protoreflect.ValueOfBytes([]byte(s)), nil
		}
		b, err := hex.DecodeString(s)
		return protoreflect.ValueOfBytes(b), err
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		for i := range values.Len() {
			if s != "" && s == enumName(values.Get(i)) {
				return protoreflect.ValueOfEnum(values.Get(i).Number()), nil
			}
		}
		names := enumNames(fd.Enum())
		return empty, fmt.Errorf("must be %s or %s", strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
	}
	switch fd.Message().FullName() {
	case portalName:
		return empty, parseSimPortal(empty.Message(), s)
	case "csiproxy.sim.v1.Designator":
		return empty, parseDesignator(empty.Message(), s)
	}
	_, err := strconv.ParseBool(s) // a message that is there
	return empty, err
}

// isSize and isDuration report what a number is, by the unit in its field's name.
func isSize(fd protoreflect.FieldDescriptor) bool {
	return strings.HasSuffix(string(fd.Name()), "_bytes") && fd.Kind() != protoreflect.Uint32Kind
}

func isDuration(fd protoreflect.FieldDescriptor) bool {
	return strings.HasSuffix(string(fd.Name()), "_ns")
}

// notOffered are values that only answers have.
var notOffered = map[protoreflect.FullName]bool{
	"csiproxy.sim.v1.OFFLINE_REASON_UNKNOWN": true, "csiproxy.sim.v1.START_TYPE_BOOT": true,
	"csiproxy.sim.v1.START_TYPE_SYSTEM": true,
}

// enumNames are the names of an enum's values that the command line takes.
func enumNames(e protoreflect.EnumDescriptor) (names []string) {
	for i := range e.Values().Len() {
		if v := e.Values().Get(i); enumName(v) != "" && !notOffered[v.FullName()] {
			names = append(names, enumName(v))
		}
	}
	return names
}

// enumName returns the short name of an enum's value: "present" for DISK_STATE_PRESENT. For UNSPECIFIED and UNKNOWN it
// returns "".
func enumName(v protoreflect.EnumValueDescriptor) string {
	prefix := ""
	for i, r := range string(v.Parent().Name()) {
		if i > 0 && 'A' <= r && r <= 'Z' {
			prefix += "_"
		}
		prefix += strings.ToUpper(string(r))
	}
	name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(string(v.Name()), prefix+"_"), "_", "-"))
	if name == "unspecified" || name == "unknown" {
		return ""
	}
	return name
}
