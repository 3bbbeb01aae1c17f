// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagewire turns structs of package storage into messages of the API and back, for both
// ends of a call. It goes by names: a field of a struct is the field of the message that has its
// name, as in JSON where the struct has a tag for that, without regard to case and underscores.
//
// Three things have another shape in a message. A time has _milliseconds behind its name. An
// embedded struct has its fields in the message itself. So does a struct for which the message has
// no field, often with its name in front, as in portal_address and iscsi_iqn.
//
// A field of a struct that isn't found in the message is a fault of the program, and a panic. Tests
// encode and decode each field of each message.
package storagewire

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/wire"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/storage"
)

// NewRequest returns an empty request of an operation of the storage group.
func NewRequest(op string) proto.Message { return newMessage(op + "Request") }

// NewResponse returns an empty response of an operation of the storage group.
func NewResponse(op string) proto.Message { return newMessage(op + "Response") }

func newMessage(name string) proto.Message {
	pkg := storagev1alpha1.File_csiproxy_storage_v1alpha1_storage_proto.Package()
	t, err := protoregistry.GlobalTypes.FindMessageByName(pkg.Append(protoreflect.Name(name)))
	if err != nil {
		panic(err) // never: the package above registers the messages of all operations
	}
	return t.New().Interface()
}

// EncodeRequest fills a request with the fields of a struct. What the API can't say, such as an
// unknown authentication type, is csiproxy.ErrInvalidArgument. Texts are the caller's, and stay.
func EncodeRequest(r any, m proto.Message) error {
	return encode(reflect.ValueOf(r), m.ProtoReflect(), func(text string) string { return text })
}

// EncodeResponse fills a response with the fields of a struct. In its texts, which come from
// hardware, what isn't UTF-8 is replaced.
func EncodeResponse(v any, m proto.Message) error {
	return encode(reflect.ValueOf(v), m.ProtoReflect(), wire.ValidText)
}

// Decode sets the fields of a struct, to which v points, from a message. A number that has no room
// in its field, or no meaning, is csiproxy.ErrInvalidArgument.
func Decode[T any](m proto.Message) (v T, err error) {
	err = decode(m.ProtoReflect(), reflect.ValueOf(&v).Elem())
	return v, err
}

func encode(v reflect.Value, m protoreflect.Message, text func(string) string) error {
	return pair(v, "", m, func(v reflect.Value, f protoreflect.FieldDescriptor) error {
		switch {
		case f.IsList():
			list := m.Mutable(f).List()
			for i := range v.Len() {
				if f.Message() != nil {
					if err := encode(v.Index(i), list.AppendMutable().Message(), text); err != nil {
						return err
					}
					continue
				}
				list.Append(protoreflect.ValueOfString(text(v.Index(i).String())))
			}
			return nil
		case v.Kind() == reflect.Pointer && v.IsNil():
			return nil
		case v.Kind() == reflect.Pointer:
			v = v.Elem()
		}
		if f.Message() != nil {
			return encode(v, m.Mutable(f).Message(), text)
		}
		value, err := encoded(v, f, text)
		if err == nil {
			m.Set(f, value)
		}
		return err
	})
}

func encoded(v reflect.Value, f protoreflect.FieldDescriptor, text func(string) string) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		if v.Kind() == reflect.String {
			return protoreflect.ValueOfString(text(v.String())), nil
		}
		return protoreflect.ValueOfString(v.Interface().(secret.Text).Reveal()), nil
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(v.Bool()), nil
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(v.Uint())), nil
	case protoreflect.EnumKind:
		auth, ok := authTypes[v.Interface().(iscsi.AuthType)]
		if !ok {
			return protoreflect.Value{}, unknownAuthType(v.Int())
		}
		return protoreflect.ValueOfEnum(auth.Number()), nil
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return protoreflect.ValueOfInt64(milliseconds(value)), nil
	case time.Time:
		if value.IsZero() {
			return protoreflect.ValueOfInt64(0), nil
		}
		return protoreflect.ValueOfInt64(value.UnixMilli()), nil
	}
	return protoreflect.ValueOfInt64(v.Int()), nil
}

func decode(m protoreflect.Message, v reflect.Value) error {
	return pair(v, "", m, func(v reflect.Value, f protoreflect.FieldDescriptor) error {
		switch {
		case f.IsList():
			list := m.Get(f).List()
			for i := range list.Len() {
				v.Grow(1)
				v.SetLen(i + 1)
				if f.Message() == nil {
					v.Index(i).SetString(list.Get(i).String())
				} else if err := decode(list.Get(i).Message(), v.Index(i)); err != nil {
					return err
				}
			}
			return nil
		case v.Kind() == reflect.Pointer && !m.Has(f):
			return nil
		case v.Kind() == reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
		}
		if f.Message() != nil {
			return decode(m.Get(f).Message(), v)
		}
		return setDecoded(v, f, m.Get(f))
	})
}

func setDecoded(v reflect.Value, f protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch field := v.Addr().Interface().(type) {
	case *secret.Text:
		*field = secret.New(value.String())
		return nil
	case *time.Duration:
		if value.Int() > math.MaxInt64/int64(time.Millisecond) {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s: %d milliseconds are too many", f.Name(), value.Int())
		}
		*field = time.Duration(max(value.Int(), -1)) * time.Millisecond
		return nil
	case *time.Time:
		if value.Int() != 0 {
			*field = time.UnixMilli(value.Int()).UTC()
		}
		return nil
	case *iscsi.AuthType:
		for auth, number := range authTypes {
			if number.Number() == value.Enum() {
				*field = auth
				return nil
			}
		}
		return unknownAuthType(int64(value.Enum()))
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		v.SetString(value.String())
	case protoreflect.BoolKind:
		v.SetBool(value.Bool())
	case protoreflect.Uint32Kind:
		if v.OverflowUint(value.Uint()) {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s: %d is too large", f.Name(), value.Uint())
		}
		v.SetUint(value.Uint())
	default:
		v.SetInt(value.Int())
	}
	return nil
}

var authTypes = map[iscsi.AuthType]storagev1alpha1.AuthenticationType{
	iscsi.NoAuth:     storagev1alpha1.AuthenticationType_NONE,
	iscsi.OneWayCHAP: storagev1alpha1.AuthenticationType_ONE_WAY_CHAP,
	iscsi.MutualCHAP: storagev1alpha1.AuthenticationType_MUTUAL_CHAP,
}

// unknownAuthType is an error, since what isn't known mustn't become a login without CHAP.
func unknownAuthType(number int64) error {
	return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown authentication type %d", number)
}

// milliseconds returns a time in milliseconds. A shorter one that isn't 0, which stands for the
// default, is one millisecond. One that is negative is -1.
func milliseconds(d time.Duration) int64 {
	if d > 0 {
		return max(d.Milliseconds(), 1)
	}
	return max(int64(d), -1)
}

// otherNames are the names of fields that have neither their own in the API nor a tag.
var otherNames = map[reflect.Type]map[string]string{
	reflect.TypeFor[iscsi.Authentication](): {"Type": "AuthType", "Username": "ChapUsername", "Secret": "ChapSecret"},
	reflect.TypeFor[storage.Login]():        {"MutualSecret": "MutualChapSecret"},
}

// place is where a field of a struct is in a message.
type place struct {
	in    protoreflect.FieldDescriptor // nil for a struct whose fields are in the message itself
	names string                       // what their names begin with there
}

// pairing is a struct and the message that has its fields.
type pairing struct {
	of    reflect.Type
	in    protoreflect.MessageDescriptor
	names string
}

// known has the places of the fields of each pairing, in their order. Neither side ever changes.
var known sync.Map

// places returns where the fields of a struct are in a message. Their names may begin with that of the
// struct there.
func places(p pairing) []place {
	if all, ok := known.Load(p); ok {
		return all.([]place)
	}
	all := make([]place, p.of.NumField())
	for i := range all {
		field := p.of.Field(i)
		tag, _, _ := strings.Cut(strings.TrimPrefix(field.Tag.Get("json"), "-"), ",")
		name := cmp.Or(otherNames[p.of][field.Name], strings.ReplaceAll(tag, "_", ""), field.Name)
		switch in := cmp.Or(find(p.in, field.Type, p.names+name), find(p.in, field.Type, name)); {
		case in != nil:
			all[i].in = in
		case field.Anonymous:
			all[i].names = p.names
		case field.Type.Kind() == reflect.Struct, field.Type.Kind() == reflect.Pointer:
			all[i].names = name
		default:
			panic(fmt.Sprintf("%s has no field for %s of %v", p.in.FullName(), field.Name, p.of))
		}
	}
	known.Store(p, all)
	return all
}

// find returns the field of a message with a name, for a field of a Go type; nil if there is none.
func find(m protoreflect.MessageDescriptor, t reflect.Type, name string) protoreflect.FieldDescriptor {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	isTime := t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[time.Time]()
	isMessage := t.Kind() == reflect.Struct && !isTime && t != reflect.TypeFor[secret.Text]()
	if isTime {
		name += "Milliseconds"
	}
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); (f.Message() != nil) == isMessage && strings.EqualFold(f.JSONName(), name) {
			return f
		}
	}
	return nil
}

// pair calls visit for each field of a struct, with the message's field for it. names is what the
// fields' names may begin with.
func pair(v reflect.Value, names string, m protoreflect.Message,
	visit func(reflect.Value, protoreflect.FieldDescriptor) error) error {
	for i, at := range places(pairing{v.Type(), m.Descriptor(), names}) {
		field := v.Field(i)
		var err error
		switch {
		case at.in != nil:
			err = visit(field, at.in)
		case field.Kind() == reflect.Pointer:
			err = pairPointer(field, at.names, m, visit)
		default:
			err = pair(field, at.names, m, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pairPointer is pair for a pointer to a struct. It is nil if none of the struct's fields are set.
func pairPointer(p reflect.Value, names string, m protoreflect.Message,
	visit func(reflect.Value, protoreflect.FieldDescriptor) error) error {
	inner := p
	if p.IsNil() {
		inner = reflect.New(p.Type().Elem())
	}
	err := pair(inner.Elem(), names, m, visit)
	if p.IsNil() && !inner.Elem().IsZero() {
		p.Set(inner)
	}
	return err
}
