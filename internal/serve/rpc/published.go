// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// publishedFile returns the file of a version in the drivers' form: the proto package is just the
// version, and csiproxy.disk.v1.Disk becomes v1.Disk. The contract's own files have longer
// packages, because groups share their versions' names and one program may have to hold them all.
func publishedFile(qualified protoreflect.FileDescriptor) (protoreflect.FileDescriptor, error) {
	file := protodesc.ToFileDescriptorProto(qualified)
	version := string(qualified.Package().Name())
	group := string(qualified.Package().Parent().Name())
	file.Name = proto.String(version + "/" + group + ".proto")
	file.Package = proto.String(version)

	rename := renamer{from: "." + string(qualified.Package()) + ".", to: "." + version + "."}
	rename.messages(file.MessageType)
	for _, service := range file.Service {
		for _, method := range service.Method {
			rename.reference(&method.InputType)
			rename.reference(&method.OutputType)
		}
	}
	published, err := protodesc.NewFile(file, nil)
	if err != nil {
		return nil, fmt.Errorf("derive published form of %s: %w", qualified.Path(), err)
	}
	return published, nil
}

// renamer moves references to types from one package to another.
type renamer struct{ from, to string }

func (r renamer) messages(messages []*descriptorpb.DescriptorProto) {
	for _, message := range messages {
		for _, field := range message.Field {
			if field.TypeName != nil {
				r.reference(&field.TypeName)
			}
		}
		r.messages(message.NestedType)
	}
}

func (r renamer) reference(name **string) {
	if rest, ok := strings.CutPrefix(**name, r.from); ok {
		*name = proto.String(r.to + rest)
	}
}
