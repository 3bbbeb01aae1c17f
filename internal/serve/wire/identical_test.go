// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-proxy/csi-proxy/api"
	filesystemv2alpha1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
)

func TestIdentical(t *testing.T) {
	const (
		text  = `field { number: 1 name: "a" type: TYPE_STRING label: LABEL_OPTIONAL }`
		count = `field { number: 2 name: "b" type: TYPE_UINT32 label: LABEL_OPTIONAL }`
		list  = `field { number: 2 name: "b" type: TYPE_UINT32 label: LABEL_REPEATED }`

		entry = `field { number: 3 name: "c" type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".$.M.CEntry" }`
		key   = `field { number: 1 name: "key" type: TYPE_STRING label: LABEL_OPTIONAL }`
		value = `field { number: 2 name: "value" type: TYPE_INT64 label: LABEL_OPTIONAL }`
		isMap = `options { map_entry: true }`

		octets = `field { number: 1 name: "a" type: TYPE_BYTES label: LABEL_OPTIONAL }`

		inner = `field { number: 4 name: "d" type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".$.N" }`
		enum  = `field { number: 5 name: "e" type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".$.E" }`
		zero  = `value { number: 0 name: "ZERO" }`
		one   = `value { number: 1 name: "ONE" }`

		enums  = `field { number: 5 name: "e" type: TYPE_ENUM label: LABEL_REPEATED options { packed: true } type_name: ".$.E" }`
		values = `enum_type { name: "E" ` + zero + one + ` }`
		proto2 = `syntax: "proto2"`

		inOneof = `field { number: 6 name: "f" type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
			field { number: 7 name: "g" type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }`
		crossed = inOneof + ` field { number: 8 name: "h" type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 1 }
			field { number: 9 name: "i" type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 1 }`
		optional = `field { number: 1 name: "a" type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 0 }
			oneof_decl { name: "_a" }`
	)
	m := func(fields ...string) string {
		return `message_type { name: "M" ` + strings.Join(fields, " ") + ` }`
	}
	cEntry := func(fields ...string) string {
		return entry + ` nested_type { name: "CEntry" ` + strings.Join(fields, " ") + ` }`
	}
	tests := []struct {
		name  string
		a, b  string
		field protoreflect.FieldNumber // of the clash; 0 if there is none
	}{
		{"same", m(text, count), m(count, text), 0},
		{"empty", m(), m(), 0},
		{"field of the first only", m(text, count), m(text), 2},
		{"field of the second only", m(text), m(text, count), 2},
		{"names", m(text), m(strings.Replace(text, `"a"`, `"z"`, 1)), 1},
		{"types", m(count), m(strings.Replace(count, "UINT32", "UINT64", 1)), 2},
		{"types of one encoding", m(count), m(strings.Replace(count, "UINT32", "BOOL", 1)), 2},
		{"list", m(text), m(strings.Replace(text, "OPTIONAL", "REPEATED", 1)), 1},
		{"packed", m(list), m(strings.Replace(list, "label", "options { packed: false } label", 1)), 2},
		{"presence", m(text), m(text) + proto2, 1},
		{"presence by oneof", m(text), m(optional), 1},

		{"map", m(cEntry(key, value, isMap)), m(cEntry(key, value, isMap)), 0},
		{"map and list of the same", m(cEntry(key, value, isMap)), m(cEntry(key, value)), 3},
		{"map keys", m(cEntry(key, value, isMap)), m(cEntry(strings.Replace(key, "STRING", "UINT32", 1), value, isMap)), 1},
		{"map values", m(cEntry(key, value, isMap)), m(cEntry(key, strings.Replace(value, "INT64", "BOOL", 1), isMap)), 2},

		{"message in it", m(inner) + `message_type { name: "N" ` + text + ` }`,
			m(inner) + `message_type { name: "N" ` + octets + ` }`, 1},
		{"itself in it", m(text, strings.Replace(inner, "$.N", "$.M", 1)), m(text, strings.Replace(inner, "$.N", "$.M", 1)),
			0},
		{"one another in it", m(inner) + `message_type { name: "N" ` + strings.Replace(inner, "$.N", "$.M", 1) + text + ` }`,
			m(inner) + `message_type { name: "N" ` + strings.Replace(inner, "$.N", "$.M", 1) + octets + ` }`, 1},

		{"enum", m(enum) + values, m(enum) + values, 0},
		{"closed enum", m(enums) + values, m(enums) + values + proto2, 5},
		{"enum value of one only", m(enum) + values, m(enum) + `enum_type { name: "E" ` + zero + ` }`, 5},
		{"enum numbers", m(enum) + values,
			m(enum) + `enum_type { name: "E" ` + zero + strings.Replace(one, "1", "2", 1) + ` }`, 5},
		{"enum names", m(enum) + values,
			m(enum) + `enum_type { name: "E" ` + zero + strings.Replace(one, "ONE", "TWO", 1) + ` }`, 5},

		{"oneof", m(inOneof, `oneof_decl { name: "x" }`), m(inOneof, `oneof_decl { name: "x" }`), 0},
		{"two oneofs", m(inOneof, `oneof_decl { name: "x" }`),
			m(strings.Replace(inOneof, "index: 0", "index: 1", 1), `oneof_decl { name: "x" } oneof_decl { name: "y" }`), 6},
		{"oneofs crossed", m(crossed, `oneof_decl { name: "x" } oneof_decl { name: "y" }`),
			m(strings.NewReplacer("number: 7", "number: 8", "number: 8", "number: 7", `"g"`, `"h"`, `"h"`,
				`"g"`).Replace(crossed),
				`oneof_decl { name: "x" } oneof_decl { name: "y" }`), 6},
		{"oneof and optional", m(optional), m(strings.NewReplacer("proto3_optional: true", "", "_a", "x").Replace(optional) +
			`field { number: 2 name: "b" type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }`), 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := wiretest.File(t, "a", test.a).Messages().ByName("M")
			b := wiretest.File(t, "b", test.b).Messages().ByName("M")
			wantClash(t, Identical(a, b), test.field)
			wantClash(t, Identical(b, a), test.field)
		})
	}
}

// The trap in the published contract: field 2 was an enum before it was a bool.
func TestOldRmdirRequestClashes(t *testing.T) {
	old, ok := api.Service("filesystem", "v1alpha1")
	if !ok {
		t.Fatal("no filesystem v1alpha1")
	}
	request := old.Methods().ByName("Rmdir").Input()
	wantClash(t, Identical(request, new(filesystemv2alpha1.RmdirRequest).ProtoReflect().Descriptor()), 2)
}

// wantClash checks that err is a clash at a field, or nil if the number is 0.
func wantClash(t *testing.T, err error, field protoreflect.FieldNumber) {
	t.Helper()
	var clash *ClashError
	ok := errors.As(err, &clash)
	switch {
	case field == 0 && err != nil:
		t.Errorf("error = %v, want none", err)
	case field != 0 && (!ok || clash.Field != field):
		t.Errorf("error = %v, want a clash at field %d", err, field)
	}
}
