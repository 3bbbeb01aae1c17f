// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	diskv1beta2 "github.com/csi-proxy/csi-proxy/api/disk/v1beta2"
	filesystemv2alpha1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/published"
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

// gated answers the long lists after a second, and counts them.
type gated struct {
	csiproxy.StorageOperations
	published.DiskOperations
	calls atomic.Int64
}

func (g *gated) answer(ctx context.Context) error {
	g.calls.Add(1)
	time.Sleep(time.Second)
	return ctx.Err()
}

func (g *gated) ListDisks(ctx context.Context, _ csiproxy.Selector) ([]csiproxy.Disk, error) {
	return nil, g.answer(ctx)
}

func (g *gated) ListVolumes(ctx context.Context) (csiproxy.VolumeList, error) {
	return csiproxy.VolumeList{}, g.answer(ctx)
}

func (g *gated) CleanUp(ctx context.Context, _ bool) (csiproxy.Leftovers, error) {
	return csiproxy.Leftovers{}, g.answer(ctx)
}

func (g *gated) ListDiskIDs(ctx context.Context) (map[csiproxy.DiskNumber]published.DiskIDs, error) {
	return nil, g.answer(ctx)
}

func (g *gated) ListDiskLocations(ctx context.Context) (map[csiproxy.DiskNumber]published.DiskLocation, error) {
	return nil, g.answer(ctx)
}

// Concurrent calls with the same request share one response, and none shares the response of an earlier call.
func TestLongAnswersAreShared(t *testing.T) {
	for name, requests := range map[string][]proto.Message{
		"disk v1 ListDiskIDs":            {&diskv1.ListDiskIDsRequest{}},
		"disk v1 ListDiskLocations":      {&diskv1.ListDiskLocationsRequest{}},
		"disk v1beta2 ListDiskIDs":       {&diskv1beta2.ListDiskIDsRequest{}},
		"disk v1beta2 ListDiskLocations": {&diskv1beta2.ListDiskLocationsRequest{}},
		"storage v1alpha1 ListDisks": {&storagev1alpha1.ListDisksRequest{},
			&storagev1alpha1.ListDisksRequest{Disk: &storagev1alpha1.DiskSelector{SerialNumber: "x"}}},
		"storage v1alpha1 ListVolumes": {&storagev1alpha1.ListVolumesRequest{}},
		"storage v1alpha1 CleanUp":     {&storagev1alpha1.CleanUpRequest{}, &storagev1alpha1.CleanUpRequest{Remove: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := new(gated)
			services, err := Services(Operations{Storage: g, Disk: g})
			must(t, err)
			var list method
			for _, s := range services {
				if method, ok := strings.CutPrefix(name, s.Group+" "+s.Version+" "); ok {
					list = s.methods[protoreflect.Name(method)]
				}
			}
			const calls = 100
			responses := make(chan any, calls*len(requests))
			call := func(request proto.Message) {
				response, err := list.call(t.Context(), request)
				must(t, err)
				responses <- response
			}
			for i := range calls {
				for _, request := range requests {
					go call(request)
				}
				if i == 0 {
					synctest.Wait()
				}
			}
			time.Sleep(time.Minute)
			different := make(map[any]int)
			for range cap(responses) {
				different[<-responses]++
			}
			want := 2 * len(requests) // one for the first call with a request, and one for the others
			if len(different) != want || g.calls.Load() != int64(want) {
				t.Errorf("%s: %d calls got %d responses, from %d lists, want %d", name, cap(responses), len(different), g.calls.Load(), want)
			}
		})
	}
}

// A list that hangs, and ignores the end of its context, keeps no later call from a list of its own.
func TestHangingRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		list := shared(func(context.Context, *storagev1alpha1.ListVolumesRequest) (*storagev1alpha1.ListVolumesResponse, error) {
			if calls++; calls == 1 {
				time.Sleep(time.Hour)
			}
			return nil, nil
		})
		hanging := make(chan error, 1)
		begun := time.Now()
		go func() { hanging <- second(list.call(t.Context(), &storagev1alpha1.ListVolumesRequest{})) }()
		synctest.Wait()
		must(t, second(list.call(t.Context(), &storagev1alpha1.ListVolumesRequest{})))
		if took := time.Since(begun); took > 3*time.Minute {
			t.Errorf("a call beside one that hangs takes %v", took)
		}
		if err := <-hanging; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the hanging call: %v", err)
		}
		time.Sleep(time.Hour)
	})
}

func second(_ any, err error) error { return err }
