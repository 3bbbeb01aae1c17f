// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
)

// connectRequest is a request with a field of each kind that matters, as
// ConnectTarget has them.
func connectRequest(t testing.TB) protoreflect.MessageDescriptor {
	return wiretest.File(t, "decode", `
		message_type { name: "Portal"
			field { name: "address" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "port" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL } }
		message_type { name: "ConnectRequest"
			field { name: "portal" number: 1 type: TYPE_MESSAGE type_name: ".decode.Portal" label: LABEL_OPTIONAL }
			field { name: "secret" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "names" number: 3 type: TYPE_STRING label: LABEL_REPEATED } }`,
	).Messages().ByName("ConnectRequest")
}

func TestDecode(t *testing.T) {
	descriptor := connectRequest(t)
	const broken = "the ConnectRequest can't be decoded: it isn't a valid protobuf message"
	for _, test := range []struct{ name, data, want string }{
		{"empty", "", ""},
		{"text", "\x12\x06secret", ""},
		{"unknown field", "\x7a\x03abc", ""},
		{"unknown field within", "\x0a\x05\x7a\x03abc", ""},
		{"known field of another wire type", "\x10\x01", ""},
		{"text that isn't UTF-8", "\x12\x07secret\xff", "field secret isn't valid UTF-8"},
		{"one of several", "\x1a\x01a\x1a\x01\xff", "field names isn't valid UTF-8"},
		{"text within", "\x0a\x03\x0a\x01\xff", "field portal.address isn't valid UTF-8"},
		{"after an unknown field", "\x7a\x01\xff\x12\x01\xff", "field secret isn't valid UTF-8"},
		{"tag without value", "\x12", broken},
		{"length beyond the end", "\x12\x7fsecret", broken},
		{"length beyond the end within", "\x0a\x02\x0a\x7f", broken},
		{"field number 0", "\x02\x00", broken},
		{"unknown wire type", "\x0e", broken},
		{"varint without end", strings.Repeat("\xff", 11), broken},
		{"end of no group", "\x0c", broken},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := dynamicpb.NewMessage(descriptor)
			err := Decode([]byte(test.data), m)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if held := unknownBytes(m); held > 0 {
					t.Errorf("the message holds %d bytes of unknown fields", held)
				}
				return
			}
			if err == nil || err.Error() != test.want || !errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Errorf("error is %v, want %s", err, test.want)
			}
		})
	}
}

// unknownBytes counts what a message and those in it hold of fields they don't have.
func unknownBytes(m protoreflect.Message) int {
	n := len(m.GetUnknown())
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Kind() == protoreflect.MessageKind && !field.IsList() && !field.IsMap() {
			n += unknownBytes(value.Message())
		}
		return true
	})
	return n
}

// Whatever the bytes, they are decoded as the protobuf module does it, less the
// unknown fields, or refused with an error that holds nothing of them.
func FuzzDecode(f *testing.F) {
	descriptor := connectRequest(f)
	for _, seed := range []string{"", "\x0a\x05\x0a\x01a\x10\x01\x12\x01s", "\x12\x01\xff", "\x0a\x03\x0a\x01\xff",
		"\x7a\x03abc", "\x0b\x0c", "\x12"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, plain := dynamicpb.NewMessage(descriptor), dynamicpb.NewMessage(descriptor)
		err, plainErr := Decode(data, m), proto.Unmarshal(data, plain)
		if (err == nil) != (plainErr == nil) {
			t.Fatalf("error %v, the protobuf module says %v", err, plainErr)
		}
		if err != nil {
			text := err.Error()
			if !errors.Is(err, csiproxy.ErrInvalidArgument) || !utf8.ValidString(text) || len(text) > 200 {
				t.Errorf("error %q", text)
			}
			return
		}
		if held := unknownBytes(m); held > 0 {
			t.Errorf("the message holds %d bytes of unknown fields", held)
		}
		for i := range descriptor.Fields().Len() {
			if field := descriptor.Fields().Get(i); field.Message() == nil && !m.Get(field).Equal(plain.Get(field)) {
				t.Errorf("field %s is %v, want %v", field.Name(), m.Get(field), plain.Get(field))
			}
		}
		again := dynamicpb.NewMessage(descriptor)
		if err := Decode(protowire.AppendVarint(protowire.AppendTag(data, 100, protowire.VarintType), 7), again); err != nil {
			t.Errorf("with one more unknown field: %v", err)
		}
		if !proto.Equal(m, again) {
			t.Error("one more unknown field makes another message of it")
		}
	})
}
