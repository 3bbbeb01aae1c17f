// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// simColumn is a column of a table: a field of each message, or what text makes of it.
type simColumn struct {
	header string
	field  string // its path; a bool after ! is shown as what it isn't
	text   func(m protoreflect.Message) string
}

// showList shows the messages in the only list of a response, or the list that is named.
func showList(list string, columns ...simColumn) func(protoreflect.Message) reply {
	return func(response protoreflect.Message) reply {
		fd := fieldOf(response.Descriptor(), list)
		var r reply
		for _, c := range columns {
			r.header = append(r.header, c.header)
		}
		for i := range response.Get(fd).List().Len() {
			m := response.Get(fd).List().Get(i).Message()
			var row []string
			for _, c := range columns {
				if c.text != nil {
					row = append(row, c.text(m))
				} else {
					row = append(row, fieldText(m, c.field))
				}
			}
			r.rows = append(r.rows, row)
		}
		r.json = json.RawMessage(appendField(nil, fd, response.Get(fd)))
		return r
	}
}

// showField shows one field of a response.
func showField(field string) func(protoreflect.Message) reply {
	return func(response protoreflect.Message) reply {
		fd := fieldOf(response.Descriptor(), field)
		value := json.RawMessage(appendField(nil, fd, response.Get(fd)))
		return line(map[string]json.RawMessage{field: value}, fieldText(response, field))
	}
}

// fieldText is a field in a table.
func fieldText(m protoreflect.Message, path string) string {
	name, rest, more := strings.Cut(strings.TrimPrefix(path, "!"), ".")
	fd := fieldOf(m.Descriptor(), name)
	v := m.Get(fd)
	switch {
	case more:
		return fieldText(v.Message(), rest)
	case strings.HasPrefix(path, "!"):
		return yesNo(!v.Bool())
	case fd.HasPresence() && !m.Has(fd):
		return ""
	case !fd.IsList():
		return valueText(fd, v)
	}
	var texts []string
	for i := range v.List().Len() {
		texts = append(texts, valueText(fd, v.List().Get(i)))
	}
	return strings.Join(texts, ", ")
}

// valueText is a value of a field in a table.
func valueText(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case fd.Kind() == protoreflect.BoolKind:
		return yesNo(v.Bool())
	case fd.Kind() == protoreflect.EnumKind:
		return enumText(fd, v)
	case fd.Kind() == protoreflect.Uint64Kind && isSize(fd):
		return size(int64(v.Uint()))
	case isSize(fd):
		return size(v.Int())
	case isDuration(fd):
		return time.Duration(v.Int()).String()
	case fd.Kind() != protoreflect.MessageKind:
		return fmt.Sprint(v.Interface())
	}
	m := v.Message()
	switch m.Descriptor().FullName() {
	case portalName:
		return simPortalText(m)
	case "csiproxy.sim.v1.SmbShare":
		if users := fieldText(m, "users"); users != "" {
			return fieldText(m, "name") + " (" + users + ")"
		}
		return fieldText(m, "name")
	case "csiproxy.sim.v1.DiskHardware":
		return fieldText(m, "serial_number") + " (" + fieldText(m, "size_bytes") + ")"
	}
	return m.Interface().(fmt.Stringer).String()
}

func enumText(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if value := fd.Enum().Values().ByNumber(v.Enum()); value != nil {
		return enumName(value)
	}
	return strconv.Itoa(int(v.Enum()))
}

// appendMessage appends a message as JSON: all fields in their order, but messages and parts
// of a oneof that are missing, and secrets, which answers lack. A number that is missing is
// null.
func appendMessage(b []byte, m protoreflect.Message) []byte {
	b = append(b, '{')
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		isSecret := fd.Options().(*descriptorpb.FieldOptions).GetDebugRedact() && !fd.IsList()
		if !m.Has(fd) && !fd.HasOptionalKeyword() && (isSecret || fd.HasPresence()) {
			continue
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, string(fd.Name())), ':')
		if fd.HasPresence() && !m.Has(fd) {
			b = append(b, "null"...)
		} else {
			b = appendField(b, fd, m.Get(fd))
		}
	}
	return append(b, '}')
}

// appendField appends the value of a field as JSON. Bytes are hexadecimal digits.
func appendField(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	if fd.IsList() {
		if _, ok := v.Interface().(protoreflect.List); ok {
			b = append(b, '[')
			for i := range v.List().Len() {
				if i > 0 {
					b = append(b, ',')
				}
				b = appendValue(b, fd, v.List().Get(i))
			}
			return append(b, ']')
		}
	}
	return appendValue(b, fd, v)
}

func appendValue(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	var plain any
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return appendMessage(b, v.Message())
	case protoreflect.EnumKind:
		plain = enumText(fd, v)
	case protoreflect.BytesKind:
		plain = hex.EncodeToString(v.Bytes())
	default:
		plain = v.Interface()
	}
	text, err := json.Marshal(plain)
	if err != nil {
		panic(err) // a number, a bool or a string
	}
	return append(b, text...)
}
