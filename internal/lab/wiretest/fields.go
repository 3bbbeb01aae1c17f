// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wiretest

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Fill sets each field of m and of the messages in it to a value that no other field has: a
// field that is forgotten, or taken for another, shows. A list gets one entry. Numbers are
// less than 256, times are whole seconds, and enums have their highest value.
func Fill(m proto.Message) {
	n := 0
	fill(m.ProtoReflect(), &n)
}

func fill(m protoreflect.Message, n *int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsList() && f.Message() != nil:
			entry := m.Mutable(f).List().AppendMutable().Message()
			fill(entry, n)
		case f.IsList():
			m.Mutable(f).List().Append(value(f, n))
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), n)
		default:
			m.Set(f, value(f, n))
		}
	}
}

func value(f protoreflect.FieldDescriptor, n *int) protoreflect.Value {
	*n++
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("text-%d", *n))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(values.Len() - 1).Number())
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(*n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(*n))
	case protoreflect.Int64Kind:
		if strings.HasSuffix(string(f.Name()), "_milliseconds") {
			return protoreflect.ValueOfInt64(int64(*n) * 1000)
		}
		return protoreflect.ValueOfInt64(int64(*n))
	}
	panic(fmt.Sprintf("%s: no value for a %s", f.FullName(), f.Kind()))
}

// EachUnset calls f for each field of m, and of the messages in it, that isn't set.
func EachUnset(m proto.Message, f func(field protoreflect.FieldDescriptor)) {
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case !m.ProtoReflect().Has(field):
			f(field)
		case field.Message() != nil && !field.IsList():
			EachUnset(m.ProtoReflect().Get(field).Message().Interface(), f)
		}
	}
}

// EachField calls f for each field that is set in m and in the messages in it, while that one
// field is cleared.
func EachField(m proto.Message, f func(field protoreflect.FieldDescriptor)) {
	eachField(m.ProtoReflect(), f)
}

func eachField(m protoreflect.Message, f func(field protoreflect.FieldDescriptor)) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !m.Has(field) {
			continue
		}
		was := m.Get(field)
		switch {
		case field.IsList() && field.Message() != nil:
			eachField(was.List().Get(0).Message(), f)
		case field.Message() != nil:
			eachField(was.Message(), f)
		}
		m.Clear(field)
		f(field)
		m.Set(field, was)
	}
}
