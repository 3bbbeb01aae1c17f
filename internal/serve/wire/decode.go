// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Limits of messages in their encoded form, in bytes, at both ends of a call.
const (
	// MaxRequestBytes is enough for any request of the API: the longest text in one is a
	// path, for which Windows allows 32,767 characters.
	MaxRequestBytes = 128 << 10
	// MaxResponseBytes is what a gRPC client accepts by default.
	MaxResponseBytes = 4 << 20
)

// Decode decodes the request of a caller into m. Fields that m doesn't have are
// discarded: the message would hold their bytes for as long as the call lasts.
//
// Bytes that are no such message are an error of the class
// csiproxy.ErrInvalidArgument. It names the message, or the field whose text isn't
// UTF-8, and never has a value in it, since that may be a secret.
func Decode(data []byte, m proto.Message) error {
	err := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
	if err == nil {
		return nil
	}
	// The text of err isn't used: the protobuf module changes it on purpose from
	// build to build, and doesn't always name the field.
	descriptor := m.ProtoReflect().Descriptor()
	if field := invalidText(data, descriptor); field != "" {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "field %s isn't valid UTF-8", field)
	}
	return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the %s can't be decoded: it isn't a valid protobuf message",
		descriptor.Name())
}

// invalidText returns the name of the first text field in an encoded message that
// isn't UTF-8: target_portal.target_address for one in a message within. It is empty
// if there is none, or what is before it can't be decoded.
func invalidText(data []byte, m protoreflect.MessageDescriptor) string {
	for len(data) > 0 {
		number, wireType, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ""
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, wireType, data)
		if size < 0 {
			return ""
		}
		field := m.Fields().ByNumber(number)
		if field != nil && wireType == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data)
			switch {
			case field.Kind() == protoreflect.StringKind && !utf8.Valid(value):
				return string(field.Name())
			case field.Kind() == protoreflect.MessageKind:
				if inner := invalidText(value, field.Message()); inner != "" {
					return string(field.Name()) + "." + inner
				}
			}
		}
		data = data[size:]
	}
	return ""
}
