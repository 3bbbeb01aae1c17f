// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagewire

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/storage"
)

// converter turns a message into the Go type and back.
type converter func(proto.Message) (proto.Message, error)

func pure[M proto.Message, T any](to func(M) T, from func(T) M) converter {
	return func(m proto.Message) (proto.Message, error) { return from(to(m.(M))), nil }
}

func failing[M proto.Message, T any](to func(M) (T, error), from func(T) M) converter {
	return func(m proto.Message) (proto.Message, error) {
		v, err := to(m.(M))
		return from(v), err
	}
}

// A message that has no converter is part of one that has, or simple.
var converters = map[proto.Message]converter{
	&storagev1alpha1.DiskSelector{}: failing(ToSelector, FromSelector),
	&storagev1alpha1.Disk{}:         pure(ToDisk, FromDisk),
	&storagev1alpha1.StageVolumeRequest{}: func(m proto.Message) (proto.Message, error) {
		r, err := ToStageVolume(m.(*storagev1alpha1.StageVolumeRequest))
		if err != nil {
			return nil, err
		}
		return FromStageVolume(r)
	},
	&storagev1alpha1.StageVolumeResponse{}:       pure(ToStaged, FromStaged),
	&storagev1alpha1.UnstageVolumeRequest{}:      failing(ToUnstageVolume, FromUnstageVolume),
	&storagev1alpha1.UnstageVolumeResponse{}:     pure(ToUnstaged, FromUnstaged),
	&storagev1alpha1.ExpandVolumeRequest{}:       failing(ToExpandVolume, FromExpandVolume),
	&storagev1alpha1.ExpandVolumeResponse{}:      pure(ToExpanded, FromExpanded),
	&storagev1alpha1.ListVolumesResponse{}:       pure(ToVolumes, FromVolumes),
	&storagev1alpha1.StageShareRequest{}:         pure(ToStageShare, FromStageShare),
	&storagev1alpha1.UnstageShareRequest{}:       pure(ToUnstageShare, FromUnstageShare),
	&storagev1alpha1.UnstageShareResponse{}:      pure(ToUnstagedShare, FromUnstagedShare),
	&storagev1alpha1.CleanUpResponse{}:           pure(ToLeftovers, FromLeftovers),
	&storagev1alpha1.MoveAsideResponse{}:         pure(ToMovedAside, FromMovedAside),
	&storagev1alpha1.CheckVolumeResponse{}:       pure(ToChecked, FromChecked),
	&storagev1alpha1.ListRefusedLogOnsResponse{}: pure(ToRefusedLogOns, FromRefusedLogOns),
	&storagev1alpha1.WatchDisksResponse{}:        pure(ToChanges, FromChanges),
}

// simple are the messages that client and package rpc build themselves, with their fields.
// What is new here must be added there, and to the tests' tables of all methods there.
var simple = map[string]string{
	"ListDisksRequest": "disk", "ListDisksResponse": "disks", "WatchDisksRequest": "disk",
	"PublishVolumeRequest": "staging_path target_path", "PublishVolumeResponse": "",
	"UnpublishVolumeRequest": "target_path", "UnpublishVolumeResponse": "",
	"GetVolumeRequest": "path", "GetVolumeResponse": "volume", "ListVolumesRequest": "",
	"StageShareResponse": "", "CleanUpRequest": "remove", "CheckVolumeRequest": "path spot_fix",
	"ListRefusedLogOnsRequest": "forget", "MoveAsideRequest": "path",
}

// Each field of each message comes through both ways, and none comes in the place of
// another. So a field that is new in the .proto file fails here until both ways have it.
func TestThereAndBack(t *testing.T) {
	tested := map[protoreflect.FullName]bool{}
	for m, convert := range converters {
		wiretest.Fill(m)
		check := func(without any) {
			t.Helper()
			got, err := convert(m)
			if diff := cmp.Diff(m, got, protocmp.Transform(), protocmp.IgnoreEmptyMessages()); diff != "" || err != nil {
				t.Errorf("%s without %v: %v (-want +got):\n%s", m.ProtoReflect().Descriptor().Name(), without, err, diff)
			}
		}
		check(nil)
		wiretest.EachField(m, func(f protoreflect.FieldDescriptor) {
			tested[f.Parent().FullName()] = true
			// A message that is missing becomes an empty one, and without a target there is no
			// LUN of it.
			if f.Message() == nil && f.Name() != "iscsi_iqn" {
				check(f.Name())
			}
		})
	}

	messages := storagev1alpha1.File_csiproxy_storage_v1alpha1_storage_proto.Messages()
	for i := range messages.Len() {
		m := messages.Get(i)
		var fields []string
		for i := range m.Fields().Len() {
			fields = append(fields, string(m.Fields().Get(i).Name()))
		}
		known, isSimple := simple[string(m.Name())]
		switch {
		case tested[m.FullName()] == isSimple:
			t.Errorf("%s has a place in converters: %v, and in simple: %v", m.Name(), !isSimple, isSimple)
		case isSimple && strings.Join(fields, " ") != known:
			t.Errorf("%s has the fields %q, and in simple are %q", m.Name(), fields, known)
		}
	}
}

// The Go types have nothing that the messages don't.
func TestGoTypesThereAndBack(t *testing.T) {
	for _, s := range []storage.Selector{filled[storage.Selector](t), {}} {
		got, err := ToSelector(FromSelector(s))
		same(t, s, got, err)
	}
	for _, d := range []storage.Disk{filled[storage.Disk](t), {}} {
		same(t, d, ToDisk(FromDisk(d)), nil)
	}
	stage := filled[storage.StageVolumeRequest](t)
	stage.Wait = 90 * time.Second
	for _, r := range []storage.StageVolumeRequest{stage, {}} {
		m, err := FromStageVolume(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ToStageVolume(m)
		same(t, r, got, err)
	}
	for _, v := range []storage.VolumeList{filled[storage.VolumeList](t), {}} {
		same(t, v, ToVolumes(FromVolumes(v)), nil)
	}
	same(t, filled[storage.DiskChanges](t), ToChanges(FromChanges(filled[storage.DiskChanges](t))), nil)
	same(t, filled[storage.StageShareRequest](t), ToStageShare(FromStageShare(filled[storage.StageShareRequest](t))), nil)
	same(t, filled[storage.UnstageShareRequest](t),
		ToUnstageShare(FromUnstageShare(filled[storage.UnstageShareRequest](t))), nil)
	same(t, filled[storage.Leftovers](t), ToLeftovers(FromLeftovers(filled[storage.Leftovers](t))), nil)
	checked := storage.CheckedVolume{ErrorsFound: true, Fixed: true, Duration: time.Hour}
	same(t, checked, ToChecked(FromChecked(checked)), nil)
	staged := filled[storage.StagedVolume](t)
	same(t, staged, ToStaged(FromStaged(staged)), nil)
	unstaged := filled[storage.UnstagedVolume](t)
	same(t, unstaged, ToUnstaged(FromUnstaged(unstaged)), nil)
	unstagedShare := filled[storage.UnstagedShare](t)
	same(t, unstagedShare, ToUnstagedShare(FromUnstagedShare(unstagedShare)), nil)
	expanded := filled[storage.ExpandedVolume](t)
	same(t, expanded, ToExpanded(FromExpanded(expanded)), nil)
	unstage, err := ToUnstageVolume(FromUnstageVolume(filled[storage.UnstageVolumeRequest](t)))
	same(t, filled[storage.UnstageVolumeRequest](t), unstage, err)
	expand := filled[storage.ExpandVolumeRequest](t)
	expand.Wait = time.Hour
	got, err := ToExpandVolume(FromExpandVolume(expand))
	same(t, expand, got, err)
}

// filled returns a value with something else in each of its fields, so that one that is
// forgotten, or taken for another, shows.
func filled[T any](t *testing.T) T {
	t.Helper()
	var v T
	n := 0
	fill(t, reflect.ValueOf(&v).Elem(), &n)
	return v
}

func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	if v.Type() == reflect.TypeFor[secret.Text]() {
		v.Set(reflect.ValueOf(secret.New("secret " + strconv.Itoa(*n))))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Int:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	default:
		t.Fatalf("a %v can't be filled", v.Type())
	}
}

var secrets = cmp.Comparer(func(a, b secret.Text) bool { return a.Reveal() == b.Reveal() })

func same[T any](t *testing.T, want, got T, err error) {
	t.Helper()
	if diff := cmp.Diff(want, got, secrets); diff != "" || err != nil {
		t.Errorf("%T there and back: %v (-want +got):\n%s", want, err, diff)
	}
}

// A time that isn't the default doesn't become it.
func TestWait(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{
		0: 0, time.Nanosecond: time.Millisecond, -1: -time.Millisecond, -time.Hour: -time.Millisecond,
		time.Second + 1: time.Second,
	} {
		if got, err := toWait(fromWait(wait)); got != want || err != nil {
			t.Errorf("%v: %v, %v, want %v", wait, got, err, want)
		}
	}
	if got, err := toWait(math.MinInt64); got != -time.Millisecond || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := toWait(math.MaxInt64); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Error(err)
	}
}

// What isn't known mustn't become a login without CHAP.
func TestUnknownAuthentication(t *testing.T) {
	unknown := iscsi.Authentication{Type: 7}
	_, err := FromStageVolume(storage.StageVolumeRequest{Login: storage.Login{Authentication: unknown}})
	if !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Error(err)
	}
	_, err = ToStageVolume(&storagev1alpha1.StageVolumeRequest{Login: &storagev1alpha1.ISCSILogin{AuthType: 7}})
	if !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestNoSelectorMeansAllDisks(t *testing.T) {
	if s, err := ToSelector(nil); err != nil || !s.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestPortOutOfRange(t *testing.T) {
	_, err := ToSelector(&storagev1alpha1.DiskSelector{Iscsi: &storagev1alpha1.ISCSISelector{PortalPort: math.MaxUint16 +
		1}})
	if !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Error(err)
	}
}

// One byte that isn't UTF-8 doesn't fail the whole list.
func TestHardwareTextIsMadeValid(t *testing.T) {
	m := FromDisk(storage.Disk{SerialNumber: "a\xff", Identifiers: []storage.Identifier{{Text: "\xfe"}}})
	if m.SerialNumber != "a\uFFFD" || m.Identifiers[0].Text != "\uFFFD" {
		t.Errorf("%q %q", m.SerialNumber, m.Identifiers[0].Text)
	}
}
