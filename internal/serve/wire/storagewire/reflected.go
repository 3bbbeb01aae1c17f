// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagewire turns structs of package storage into messages of the API and back, for both
// ends of a call. The messages mirror the structs: a field of a struct is the field of the message
// that has its name, as in JSON where the struct has a tag for that, without regard to case and
// underscores. A time has _milliseconds behind its name, and the fields of an embedded struct are in
// the message itself, as they are in JSON.
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
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/secret"
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
	return reflectEncode(reflect.ValueOf(r), m.ProtoReflect(), func(text string) string { return text })
}

// EncodeResponse fills a response with the fields of a struct. In its texts, which come from
// hardware, what isn't UTF-8 is replaced.
func EncodeResponse(v any, m proto.Message) error {
	return reflectEncode(reflect.ValueOf(v), m.ProtoReflect(), wire.ValidText)
}

// Decode sets the fields of a struct, to which v points, from a message. A number that has no room
// in its field, or no meaning, is csiproxy.ErrInvalidArgument.
func Decode[T any](m proto.Message) (v T, err error) {
	err = reflectDecode(m.ProtoReflect(), reflect.ValueOf(&v).Elem())
	return v, err
}

func reflectEncode(v reflect.Value, m protoreflect.Message, text func(string) string) error {
	return eachField(v, m, func(v reflect.Value, f protoreflect.FieldDescriptor) error {
		if f.IsList() {
			list := m.Mutable(f).List()
			for i := range v.Len() {
				if f.Message() == nil {
					list.Append(protoreflect.ValueOfString(text(v.Index(i).String())))
				} else if err := reflectEncode(v.Index(i), list.AppendMutable().Message(), text); err != nil {
					return err
				}
			}
			return nil
		}
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return nil
			}
			v = v.Elem()
		}
		if f.Message() != nil {
			return reflectEncode(v, m.Mutable(f).Message(), text)
		}
		value, err := encoded(v, f, text)
		if err == nil {
			m.Set(f, value)
		}
		return err
	})
}

func encoded(v reflect.Value, f protoreflect.FieldDescriptor, text func(string) string) (protoreflect.Value, error) {
	switch value := v.Interface().(type) {
	case secret.Text:
		return protoreflect.ValueOfString(value.Reveal()), nil
	case time.Duration:
		return protoreflect.ValueOfInt64(reflectedMilliseconds(value)), nil
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text(v.String())), nil
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(v.Bool()), nil
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(v.Uint())), nil
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(v.Int())), checkEnum(f, v.Int())
	}
	return protoreflect.ValueOfInt64(v.Int()), nil
}

func reflectDecode(m protoreflect.Message, v reflect.Value) error {
	return eachField(v, m, func(v reflect.Value, f protoreflect.FieldDescriptor) error {
		if f.IsList() {
			list := m.Get(f).List()
			for i := range list.Len() {
				v.Grow(1)
				v.SetLen(i + 1)
				if f.Message() == nil {
					v.Index(i).SetString(list.Get(i).String())
				} else if err := reflectDecode(list.Get(i).Message(), v.Index(i)); err != nil {
					return err
				}
			}
			return nil
		}
		if v.Kind() == reflect.Pointer {
			if !m.Has(f) {
				return nil
			}
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
		}
		if f.Message() != nil {
			return reflectDecode(m.Get(f).Message(), v)
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
	case protoreflect.EnumKind:
		v.SetInt(int64(value.Enum()))
		return checkEnum(f, v.Int())
	default:
		v.SetInt(value.Int())
	}
	return nil
}

// checkEnum refuses a number that an enumeration doesn't have: what isn't known mustn't become a login
// without CHAP.
func checkEnum(f protoreflect.FieldDescriptor, number int64) error {
	known := f.Enum().Values().ByNumber(protoreflect.EnumNumber(number))
	if known == nil || int64(known.Number()) != number {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown %s %d", f.Enum().Name(), number)
	}
	return nil
}

// milliseconds returns a time in milliseconds. A shorter one that isn't 0, which stands for the
// default, is one millisecond. One that is negative is -1.
func reflectedMilliseconds(d time.Duration) int64 {
	if d > 0 {
		return max(d.Milliseconds(), 1)
	}
	return max(int64(d), -1)
}

// fields are the fields of messages for the fields of structs, by struct and message: nil for an
// embedded struct. Neither side ever changes.
var fields sync.Map // of fieldsKey to []protoreflect.FieldDescriptor

type fieldsKey struct {
	of reflect.Type
	in protoreflect.MessageDescriptor
}

// fieldsOf returns the message's field for each field of a struct.
func fieldsOf(of reflect.Type, in protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	key := fieldsKey{of, in}
	if known, ok := fields.Load(key); ok {
		return known.([]protoreflect.FieldDescriptor)
	}
	all := make([]protoreflect.FieldDescriptor, of.NumField())
	for i := range all {
		field := of.Field(i)
		if field.Anonymous {
			continue
		}
		tag, _, _ := strings.Cut(strings.TrimPrefix(field.Tag.Get("json"), "-"), ",")
		name := cmp.Or(strings.ReplaceAll(tag, "_", ""), field.Name)
		if field.Type == reflect.TypeFor[time.Duration]() {
			name += "Milliseconds"
		}
		for j := range in.Fields().Len() {
			if f := in.Fields().Get(j); strings.EqualFold(f.JSONName(), name) {
				all[i] = f
			}
		}
		if all[i] == nil {
			panic(fmt.Sprintf("%s has no field for %s of %v", in.FullName(), field.Name, of))
		}
	}
	fields.Store(key, all)
	return all
}

// eachField calls f for each field of a struct, with the message's field for it.
func eachField(v reflect.Value, m protoreflect.Message,
	f func(reflect.Value, protoreflect.FieldDescriptor) error) error {
	for i, in := range fieldsOf(v.Type(), m.Descriptor()) {
		var err error
		if in != nil {
			err = f(v.Field(i), in)
		} else {
			err = eachField(v.Field(i), m, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
