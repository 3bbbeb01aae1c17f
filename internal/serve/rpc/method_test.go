// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-proxy/csi-proxy/api"
	filesystemv2alpha1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// A set of methods serves exactly the service that it fits.
func TestBind(t *testing.T) {
	mkdir := unary(func(context.Context, *filesystemv2alpha1.MkdirRequest) (*filesystemv2alpha1.MkdirResponse, error) {
		return nil, nil
	})
	rmdir := unary(func(context.Context, *filesystemv2alpha1.RmdirRequest) (*filesystemv2alpha1.RmdirResponse, error) {
		return nil, nil
	})
	mkdirs := streaming(func(context.Context, *filesystemv2alpha1.MkdirRequest,
		func(*filesystemv2alpha1.MkdirResponse) error) error {
		return nil
	})
	const (
		messages = `message_type { name: "Path" field { number: 1 name: "path" type: TYPE_STRING label: LABEL_OPTIONAL } }
			message_type { name: "Force" field { number: 1 name: "path" type: TYPE_STRING label: LABEL_OPTIONAL }
				field { number: 2 name: "force" type: TYPE_BOOL label: LABEL_OPTIONAL } }
			message_type { name: "Nothing" }`
		makes    = `method { name: "Mkdir" input_type: ".$.Path" output_type: ".$.Nothing" }`
		removes  = `method { name: "Rmdir" input_type: ".$.Force" output_type: ".$.Nothing" }`
		streams  = `method { name: "Mkdir" input_type: ".$.Path" output_type: ".$.Nothing" client_streaming: true server_streaming: true }`
		answers  = `method { name: "Mkdir" input_type: ".$.Path" output_type: ".$.Nothing" server_streaming: true }`
		uploads  = `method { name: "Mkdir" input_type: ".$.Path" output_type: ".$.Nothing" client_streaming: true }`
		asksMore = `method { name: "Mkdir" input_type: ".$.Force" output_type: ".$.Nothing" }`
		saysMore = `method { name: "Mkdir" input_type: ".$.Path" output_type: ".$.Path" }`
	)
	tests := []struct {
		name    string
		methods string
		sets    []methods
		want    error // nil, a sentinel, or a *wire.ClashError
	}{
		{"one set", makes + removes, []methods{{"Mkdir": mkdir, "Rmdir": rmdir}}, nil},
		{"two sets", makes + removes, []methods{{"Mkdir": mkdir}, {"Rmdir": rmdir}}, nil},
		{"no method", "", nil, nil},
		{"missing method", makes + removes, []methods{{"Mkdir": mkdir}}, errMissingMethod},
		{"extra method", makes, []methods{{"Mkdir": mkdir, "Rmdir": rmdir}}, errUnknownMethod},
		{"method twice", makes, []methods{{"Mkdir": mkdir}, {"Mkdir": mkdir}}, errDuplicateMethod},
		{"stream of a handler without", streams, []methods{{"Mkdir": mkdir}}, errStreaming},
		{"stream", streams, []methods{{"Mkdir": mkdirs}}, nil},
		{"no stream of a handler with one", makes, []methods{{"Mkdir": mkdirs}}, errStreaming},
		{"requests streaming", uploads, []methods{{"Mkdir": mkdir}}, errStreaming},
		{"requests streaming only", uploads, []methods{{"Mkdir": mkdirs}}, errStreaming},
		{"responses streaming only", answers, []methods{{"Mkdir": mkdirs}}, errStreaming},
		{"another request", asksMore, []methods{{"Mkdir": mkdir}}, &wire.ClashError{Field: 2}},
		{"another response", saysMore, []methods{{"Mkdir": mkdir}}, &wire.ClashError{Field: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := wiretest.File(t, "p", messages+`service { name: "S" `+test.methods+` }`)
			err := bind(file.Services().ByName("S"), test.sets)
			if clash, ok := test.want.(*wire.ClashError); ok {
				wantClash(t, err, clash.Field)
			} else if !errors.Is(err, test.want) {
				t.Errorf("error = %v, want %v", err, test.want)
			}
		})
	}
}

// bind returns the first fault of a row.
func bind(service protoreflect.ServiceDescriptor, sets []methods) error {
	united, err := unite(sets)
	if err != nil {
		return err
	}
	return united.check(service)
}

// Each row of the tables is what its version's descriptor says.
func TestProve(t *testing.T) {
	all := services(t, new(fakeNode))
	if len(all) != api.VersionCount() {
		t.Errorf("%d services, want %d", len(all), api.VersionCount())
	}
	must(t, Prove(all))
	if err := Prove([]*Service{{"disk", "v9", nil}}); !errors.Is(err, errUnknownVersion) {
		t.Errorf("disk v9: error = %v, want %v", err, errUnknownVersion)
	}
	for _, s := range all {
		other := &Service{s.Group, s.Version, methods{}}
		if err := Prove([]*Service{other}); !errors.Is(err, errMissingMethod) {
			t.Errorf("%s %s without methods: error = %v, want %v", s.Group, s.Version, err, errMissingMethod)
		}
	}
}

// A row that passes a handler of the new shape off as the old one is a fault.
func TestBindRefusesClashingVersion(t *testing.T) {
	service, ok := api.Service("filesystem", "v1beta1")
	if !ok {
		t.Fatal("no filesystem v1beta1")
	}
	table := filesystemVersions(new(fakeNode))
	sets := table["v1beta1"]
	if err := bind(service, sets); err != nil {
		t.Fatalf("the right row: %v", err)
	}
	sets[0]["Rmdir"] = table["v2alpha1"][0]["Rmdir"]
	wantClash(t, bind(service, sets), 2)
}

// The table of a group has a row for each version and no other one.
func TestBindGroup(t *testing.T) {
	complete := func() versions { return diskVersions(new(fakeNode)) }
	if services, err := bindGroup("disk", complete()); err != nil || len(services) != 5 {
		t.Fatalf("%d services, error %v", len(services), err)
	}

	missing := complete()
	delete(missing, "v1beta3")
	if _, err := bindGroup("disk", missing); !errors.Is(err, errMissingVersion) {
		t.Errorf("without v1beta3: error = %v, want %v", err, errMissingVersion)
	}
	unknown := complete()
	unknown["v9"] = unknown["v1"]
	if _, err := bindGroup("disk", unknown); !errors.Is(err, errUnknownVersion) {
		t.Errorf("with v9: error = %v, want %v", err, errUnknownVersion)
	}
	twice := complete()
	twice["v1"] = append(twice["v1"], twice["v1"]...)
	if _, err := bindGroup("disk", twice); !errors.Is(err, errDuplicateMethod) {
		t.Errorf("with each method twice: error = %v, want %v", err, errDuplicateMethod)
	}
	wrong := complete()
	wrong["v1beta1"] = wrong["v1beta2"]
	services, err := bindGroup("disk", wrong)
	must(t, err)
	if err := Prove(services); !errors.Is(err, errUnknownMethod) {
		t.Errorf("with methods too many: error = %v, want %v", err, errUnknownMethod)
	}
}

// Each call decodes into a message of its own.
func TestNewRequest(t *testing.T) {
	m := filesystemVersions(nil)["v2alpha1"][0]["Rmdir"]
	first, second := m.newRequest(), m.newRequest()
	if first == second {
		t.Error("two calls share a request")
	}
	want := protoreflect.FullName("csiproxy.filesystem.v2alpha1.RmdirRequest")
	if got := first.ProtoReflect().Descriptor().FullName(); got != want {
		t.Errorf("request is a %s, want %s", got, want)
	}
}

// wantClash checks that err is a clash at a field, or nil if the number is 0.
func wantClash(t *testing.T, err error, field protoreflect.FieldNumber) {
	t.Helper()
	var clash *wire.ClashError
	ok := errors.As(err, &clash)
	switch {
	case field == 0 && err != nil:
		t.Errorf("error = %v, want none", err)
	case field != 0 && (!ok || clash.Field != field):
		t.Errorf("error = %v, want a clash at field %d", err, field)
	}
}
