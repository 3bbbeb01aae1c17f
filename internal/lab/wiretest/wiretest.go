// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wiretest has what each operation is on the wire, for the tests of both ends, and makes up
// messages and services for tests of what depends on their descriptors.
package wiretest

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// File makes a file of a package from a FileDescriptorProto in text form, in
// which $ is the package; the syntax is proto3 if it gives none.
func File(t testing.TB, pkg, text string) protoreflect.FileDescriptor {
	t.Helper()
	text = `name: "$.proto" package: "$" ` + text
	if !strings.Contains(text, "syntax") {
		text += ` syntax: "proto3"`
	}
	file := new(descriptorpb.FileDescriptorProto)
	if err := prototext.Unmarshal([]byte(strings.ReplaceAll(text, "$", pkg)), file); err != nil {
		t.Fatal(err)
	}
	descriptor, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return descriptor
}
