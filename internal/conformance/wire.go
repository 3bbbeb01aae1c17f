// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/secret"
)

// Checks are written once and run in every version. They name methods as the newest
// version does, and fields by the words below.

// olderMethods are the names that methods have in older versions.
var olderMethods = map[string]string{
	"GetDiskStats":              "DiskStats",
	"SetDiskState":              "SetAttachState",
	"GetDiskState":              "GetAttachState",
	"UnmountVolume":             "DismountVolume",
	"GetVolumeStats":            "VolumeStats",
	"GetDiskNumberFromVolumeID": "GetVolumeDiskNumber",
	"GetVolumeIDFromTargetPath": "GetVolumeIDFromMount",
	"CreateSymlink":             "LinkPath",
	"IsSymlink":                 "IsMountPoint",
}

// fieldNames are the names of a field in the messages of all versions, by its word. A
// word that isn't here is the field's only name.
var fieldNames = map[string][]string{
	"disk":      {"disk_number", "diskID", "disk_id", "diskNumber"},
	"disks":     {"diskIDs"},
	"locations": {"disk_locations"},
	"online":    {"is_online", "isOnline"},
	"partition": {"partition_number"},
	"volume":    {"volume_id"},
	"volumes":   {"volume_ids"},
	"path":      {"path", "target_path", "mount"},
	"source":    {"source_path"},
	"target":    {"target_path"},
	"size":      {"size_bytes", "size"},
	"total":     {"total_bytes", "diskSize", "volumeSize"},
	"used":      {"used_bytes", "volumeUsedSize"},
	"isLink":    {"is_symlink", "is_mount_point"},
	"remote":    {"remote_path"},
	"local":     {"local_path"},
	"portal":    {"target_portal"},
	"address":   {"target_address"},
	"port":      {"target_port"},
	"portals":   {"target_portals"},
	"secret":    {"MutualChapSecret"},
}

// methodOf returns a service's method by its newest name; nil if it has none.
func methodOf(service protoreflect.ServiceDescriptor, newest string) protoreflect.MethodDescriptor {
	if m := service.Methods().ByName(protoreflect.Name(newest)); m != nil {
		return m
	}
	return service.Methods().ByName(protoreflect.Name(olderMethods[newest]))
}

// fieldOf returns a message's field by its word; nil if it has none.
func fieldOf(message protoreflect.MessageDescriptor, word string) protoreflect.FieldDescriptor {
	names, ok := fieldNames[word]
	if !ok {
		names = []string{word}
	}
	for _, name := range names {
		if f := message.Fields().ByName(protoreflect.Name(name)); f != nil {
			return f
		}
	}
	return nil
}

// fields are a request's fields by word. Values are bool, int, int64, uint32, string,
// secret.Text, or fields for a message.
type fields map[string]any

// with returns the fields with one more.
func (f fields) with(word string, value any) fields {
	all := maps.Clone(f)
	all[word] = value
	return all
}

// String is without secrets.
func (f fields) String() string {
	var parts []string
	for _, word := range slices.Sorted(maps.Keys(f)) {
		value := f[word]
		switch v := value.(type) {
		case string:
			if value = strconv.Quote(shortened(v)); strconv.CanBackquote(v) {
				value = `"` + shortened(v) + `"` // backslashes as they are
			}
		case secret.Text:
			value = "…"
		}
		parts = append(parts, fmt.Sprintf("%s: %v", word, value))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// shortened bounds a text that goes into a result.
func shortened(s string) string {
	const limit = 100
	if len(s) > limit {
		return s[:limit/2] + "…" + s[len(s)-limit/2:]
	}
	return s
}

// encode fills a message with fields.
func encode(message protoreflect.Message, f fields) error {
	for word, value := range f {
		field := fieldOf(message.Descriptor(), word)
		if field == nil {
			return fmt.Errorf("%s has no field for %q", message.Descriptor().FullName(), word)
		}
		if nested, ok := value.(fields); ok {
			if err := encode(message.Mutable(field).Message(), nested); err != nil {
				return err
			}
			continue
		}
		v, err := valueOf(field, value)
		if err != nil {
			return err
		}
		message.Set(field, v)
	}
	return nil
}

// valueOf converts a value to what a field takes: a number becomes decimal text where
// the field is text, as disk numbers are in older versions.
func valueOf(field protoreflect.FieldDescriptor, value any) (protoreflect.Value, error) {
	text := fmt.Sprint(value)
	if s, ok := value.(secret.Text); ok {
		text = s.Reveal()
	}
	var v any
	var err error
	switch field.Kind() {
	case protoreflect.StringKind:
		v = text
	case protoreflect.BoolKind:
		v, err = strconv.ParseBool(text)
	case protoreflect.Uint32Kind:
		var n uint64
		n, err = strconv.ParseUint(text, 10, 32)
		v = uint32(n)
	case protoreflect.Int64Kind:
		v, err = strconv.ParseInt(text, 10, 64)
	case protoreflect.EnumKind:
		var n int64
		n, err = strconv.ParseInt(text, 10, 32)
		v = protoreflect.EnumNumber(n)
	default:
		err = fmt.Errorf("field %s has the kind %s", field.FullName(), field.Kind())
	}
	return protoreflect.ValueOf(v), err
}

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
	if err := encode(request, f); err != nil {
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

// byDisk returns the values of a map whose keys are disk numbers, or their decimal
// texts.
func (a answer) byDisk(word string) (map[string]answer, error) {
	all := make(map[string]answer)
	var err error
	a.get(word).Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if _, parseErr := strconv.ParseUint(key.String(), 10, 32); parseErr != nil {
			err = fmt.Errorf("%q is no disk number", key.String())
		}
		all[key.String()] = answer{value.Message()}
		return err == nil
	})
	return all, err
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
