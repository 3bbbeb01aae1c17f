// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// wireVersion is an element of wire.json: all facts of one version.
type wireVersion struct {
	Group    string                      `json:"group"`
	Version  string                      `json:"version"`
	Pipe     string                      `json:"pipe"`
	Service  string                      `json:"service"`
	Methods  []wireMethod                `json:"methods"`
	Messages map[string][]wireField      `json:"messages"`
	Enums    map[string]map[string]int32 `json:"enums"`
}

type wireMethod struct {
	Name     string `json:"name"`
	Request  string `json:"request"`
	Response string `json:"response"`
}

type wireField struct {
	Number int32  `json:"number"`
	Name   string `json:"name"`
	Type   string `json:"type"`
}

// The descriptors say exactly what the published contract says, no less and no more.
func TestDescriptorsMatchContract(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "wire.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want []wireVersion
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&want); err != nil {
		t.Fatal(err)
	}

	var got []wireVersion
	for _, group := range PublishedGroups() {
		for _, version := range slices.Sorted(slices.Values(Versions(group))) {
			got = append(got, wireVersionOf(t, group, version))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("contract (-) and descriptors (+):\n%s", diff)
	}
}

func wireVersionOf(t *testing.T, group, version string) wireVersion {
	service, ok := Service(group, version)
	if !ok {
		t.Fatalf("Versions(%q) has %q, Service doesn't", group, version)
	}
	if got, want := QualifiedServiceName(group, version), string(service.FullName()); got != want {
		t.Errorf("QualifiedServiceName = %q, descriptor has %q", got, want)
	}
	file := service.ParentFile()
	if file.Services().Len() != 1 || file.Extensions().Len() != 0 || file.Imports().Len() != 0 {
		t.Errorf("%s has more than one service, messages and enums", file.Path())
	}
	if file.Syntax() != protoreflect.Proto3 {
		t.Errorf("%s has syntax %v", file.Path(), file.Syntax())
	}

	facts := wireVersion{
		Group:    group,
		Version:  version,
		Pipe:     `\\.\pipe\` + EndpointName(group, version),
		Service:  ServiceName(group, version),
		Messages: map[string][]wireField{},
		Enums:    map[string]map[string]int32{},
	}
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		if method.IsStreamingClient() || method.IsStreamingServer() {
			t.Errorf("%s is a streaming call", method.FullName())
		}
		facts.Methods = append(facts.Methods, wireMethod{
			Name:     string(method.Name()),
			Request:  string(method.Input().Name()),
			Response: string(method.Output().Name()),
		})
	}
	addEnums(facts.Enums, file.Enums())
	addMessages(facts, file.Messages())
	return facts
}

func addEnums(facts map[string]map[string]int32, enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		values := map[string]int32{}
		for j := range enums.Get(i).Values().Len() {
			value := enums.Get(i).Values().Get(j)
			values[string(value.Name())] = int32(value.Number())
		}
		facts[string(enums.Get(i).Name())] = values
	}
}

func addMessages(facts wireVersion, messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		message := messages.Get(i)
		if message.IsMapEntry() {
			continue
		}
		fields := []wireField{}
		for j := range message.Fields().Len() {
			field := message.Fields().Get(j)
			fields = append(fields, wireField{int32(field.Number()), string(field.Name()), typeOf(field)})
		}
		facts.Messages[string(message.Name())] = fields
		addEnums(facts.Enums, message.Enums())
		addMessages(facts, message.Messages())
	}
}

// typeOf writes the type of a field as wire.json does. An optional field or one of
// a oneof, which the contract doesn't have, gets a type that it doesn't have.
func typeOf(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return "map<" + typeOf(field.MapKey()) + ", " + typeOf(field.MapValue()) + ">"
	case field.ContainingOneof() != nil:
		return "oneof " + field.Kind().String()
	}
	prefix := ""
	if field.IsList() {
		prefix = "repeated "
	}
	switch field.Kind() {
	case protoreflect.MessageKind:
		return prefix + string(field.Message().Name())
	case protoreflect.EnumKind:
		return prefix + string(field.Enum().Name())
	}
	return prefix + field.Kind().String()
}

func TestVersionsNewestFirst(t *testing.T) {
	want := map[string][]string{
		"disk":       {"v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha1"},
		"filesystem": {"v2alpha1", "v1", "v1beta2", "v1beta1", "v1alpha1"},
		"iscsi":      {"v1alpha2", "v1alpha1"},
		"smb":        {"v1", "v1beta2", "v1beta1", "v1alpha1"},
		"storage":    {"v1alpha1"},
		"system":     {"v1alpha1"},
		"volume":     {"v2alpha1", "v1", "v1beta3", "v1beta2", "v1beta1", "v1alpha1"},
	}
	got := map[string][]string{}
	for _, group := range Groups() {
		got[group] = Versions(group)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// Credentials are marked in every version, so that what logs messages can tell.
func TestCredentialsAreMarked(t *testing.T) {
	var got []string
	for _, group := range Groups() {
		for _, version := range Versions(group) {
			service, _ := Service(group, version)
			messages := service.ParentFile().Messages()
			for i := range messages.Len() {
				fields := messages.Get(i).Fields()
				for j := range fields.Len() {
					if options, ok := fields.Get(j).Options().(*descriptorpb.FieldOptions); ok && options.GetDebugRedact() {
						got = append(got, strings.TrimPrefix(string(fields.Get(j).FullName()), "csiproxy."))
					}
				}
			}
		}
	}
	want := []string{
		"iscsi.v1alpha2.ConnectTargetRequest.chap_username",
		"iscsi.v1alpha2.ConnectTargetRequest.chap_secret",
		"iscsi.v1alpha2.SetMutualChapSecretRequest.MutualChapSecret",
		"iscsi.v1alpha1.ConnectTargetRequest.chap_username",
		"iscsi.v1alpha1.ConnectTargetRequest.chap_secret",
		"smb.v1.NewSmbGlobalMappingRequest.username",
		"smb.v1.NewSmbGlobalMappingRequest.password",
		"smb.v1beta2.NewSmbGlobalMappingRequest.username",
		"smb.v1beta2.NewSmbGlobalMappingRequest.password",
		"smb.v1beta1.NewSmbGlobalMappingRequest.username",
		"smb.v1beta1.NewSmbGlobalMappingRequest.password",
		"smb.v1alpha1.NewSmbGlobalMappingRequest.username",
		"smb.v1alpha1.NewSmbGlobalMappingRequest.password",
		"storage.v1alpha1.ISCSILogin.username",
		"storage.v1alpha1.ISCSILogin.secret",
		"storage.v1alpha1.ISCSILogin.mutual_secret",
		"storage.v1alpha1.Credentials.username",
		"storage.v1alpha1.Credentials.password",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields marked (-want +got):\n%s", diff)
	}
}

func TestAge(t *testing.T) {
	oldestFirst := []string{
		"v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta10", "v1",
		"v2alpha1", "v2alpha11", "v2", "v10alpha1",
	}
	var previous age
	for _, name := range oldestFirst {
		a, err := parseAge(name)
		if err != nil {
			t.Error(err)
		}
		if slices.Compare(previous[:], a[:]) >= 0 {
			t.Errorf("%s = %v isn't newer than its predecessor %v", name, a, previous)
		}
		previous = a
	}
	for _, name := range []string{"", "v", "1", "v1beta", "v1gamma1", "v1beta1x", "v99999999999999999999", "v-1"} {
		if a, err := parseAge(name); err == nil {
			t.Errorf("parseAge(%q) = %v, want an error", name, a)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	if got := Versions("tape"); len(got) != 0 {
		t.Errorf("Versions of an unknown group = %q", got)
	}
	for _, name := range [][2]string{{"tape", "v1"}, {"disk", "v3"}, {"", ""}} {
		if service, ok := Service(name[0], name[1]); ok {
			t.Errorf("Service%q = %v, want none", name, service.FullName())
		}
	}
	if got := ServiceName("", ""); got != "." {
		t.Errorf("ServiceName of nothing = %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	file := func(pkg, service string) *descriptorpb.FileDescriptorProto {
		return &descriptorpb.FileDescriptorProto{
			Name:    proto.String("test.proto"),
			Package: proto.String(pkg),
			Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String(service)}},
			Syntax:  proto.String("proto3"),
		}
	}
	twice := file("csiproxy.disk.v1", "Disk")
	tests := []struct {
		name  string
		files []*descriptorpb.FileDescriptorProto
	}{
		{"a package that is no version", []*descriptorpb.FileDescriptorProto{file("csiproxy.disk", "Disk")}},
		{"a service of another name", []*descriptorpb.FileDescriptorProto{file("csiproxy.disk.v1", "Tape")}},
		{"a file twice", []*descriptorpb.FileDescriptorProto{twice, twice}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: test.files})
			if err != nil {
				t.Fatal(err)
			}
			_, listed := list(data)
			if _, err := parse(data); errors.Join(listed, err) == nil {
				t.Error("neither list nor parse has an error")
			}
		})
	}
	for _, garbage := range []string{"no descriptors", "\x0a", "\x0a\x01\x12", "\x0a\x7f"} {
		if groups, err := list([]byte(garbage)); err == nil {
			t.Errorf("list of %q = %v, want an error", garbage, groups)
		}
		if files, err := parse([]byte(garbage)); err == nil {
			t.Errorf("parse of %q = %v, want an error", garbage, files)
		}
	}
}

// Every start of the daemon and of a client lists the versions once.
func BenchmarkList(b *testing.B) {
	for b.Loop() {
		if _, err := list(descriptors); err != nil {
			b.Fatal(err)
		}
	}
}
