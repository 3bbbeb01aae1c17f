// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Tests of all versions are written once. They name methods as the newest version does, and
// fields by the words below.

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

// fieldNames are the names of a field in the messages of all versions, by its word. A field
// may also be given by its name.
var fieldNames = map[string][]string{
	"disk":      {"disk_number", "diskID", "disk_id", "diskNumber"},
	"online":    {"is_online", "isOnline"},
	"partition": {"partition_number"},
	"volume":    {"volume_id"},
	"path":      {"path", "target_path", "mount"},
	"source":    {"source_path"},
	"target":    {"target_path"},
	"size":      {"size_bytes", "size"},
	"total":     {"total_bytes", "diskSize", "volumeSize"},
	"isLink":    {"is_symlink", "is_mount_point"},
	"secret":    {"MutualChapSecret"},
}

// MethodOf returns a service's method by its newest name; nil if it has none.
func MethodOf(service protoreflect.ServiceDescriptor, newest string) protoreflect.MethodDescriptor {
	if m := service.Methods().ByName(protoreflect.Name(newest)); m != nil {
		return m
	}
	return service.Methods().ByName(protoreflect.Name(olderMethods[newest]))
}

// FieldOf returns a message's field by its word, or by its name; nil if it has none.
func FieldOf(message protoreflect.MessageDescriptor, word string) protoreflect.FieldDescriptor {
	for _, name := range append(slices.Clone(fieldNames[word]), word) {
		if f := message.Fields().ByName(protoreflect.Name(name)); f != nil {
			return f
		}
	}
	return nil
}

// Fields are the fields of a request, by their words or names. A message in it is Fields again, a
// list of them []Fields.
type Fields map[string]any

// With returns the fields with one more.
func (f Fields) With(word string, value any) Fields {
	all := Fields{}
	maps.Copy(all, f)
	all[word] = value
	return all
}

// Encode fills a message with fields.
func Encode(message protoreflect.Message, f Fields) error {
	for word, value := range f {
		field := FieldOf(message.Descriptor(), word)
		if field == nil {
			return fmt.Errorf("%s has no field for %q", message.Descriptor().FullName(), word)
		}
		switch v := value.(type) {
		case Fields:
			if err := Encode(message.Mutable(field).Message(), v); err != nil {
				return err
			}
		case []Fields:
			list := message.Mutable(field).List()
			for _, f := range v {
				element := list.NewElement()
				if err := Encode(element.Message(), f); err != nil {
					return err
				}
				list.Append(element)
			}
		default:
			scalar, err := valueOf(field, value)
			if err != nil {
				return err
			}
			message.Set(field, scalar)
		}
	}
	return nil
}

// valueOf converts a value to what a field takes: a number becomes decimal text where
// the field is text, as disk numbers are in older versions.
func valueOf(field protoreflect.FieldDescriptor, value any) (protoreflect.Value, error) {
	text := fmt.Sprint(value)
	var v any
	var err error
	switch field.Kind() {
	case protoreflect.StringKind:
		v = text
	case protoreflect.BytesKind:
		v = value
	case protoreflect.BoolKind:
		v, err = strconv.ParseBool(text)
	case protoreflect.Uint32Kind:
		var n uint64
		n, err = strconv.ParseUint(text, 10, 32)
		v = uint32(n)
	case protoreflect.Int32Kind:
		var n int64
		n, err = strconv.ParseInt(text, 10, 32)
		v = int32(n)
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
