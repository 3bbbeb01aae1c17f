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

// thereAndBack tests a message, and the struct of its fields. Each field comes through, and none comes
// in the place of another. So a field that is new in one of them fails here until the other has it.
// It adds the names of the messages to tested.
func thereAndBack[T any](t *testing.T, m proto.Message, tested map[protoreflect.FullName]bool) {
	t.Helper()
	wiretest.Fill(m)
	check := func(without any) {
		t.Helper()
		v, err := Decode[T](m)
		got := m.ProtoReflect().New().Interface()
		if err == nil {
			err = EncodeRequest(v, got)
		}
		if diff := cmp.Diff(m, got, protocmp.Transform(), protocmp.IgnoreEmptyMessages()); diff != "" || err != nil {
			t.Errorf("%T without %v: %v (-want +got):\n%s", m, without, err, diff)
		}
	}
	check(nil)
	wiretest.EachField(m, func(f protoreflect.FieldDescriptor) {
		tested[f.Parent().FullName()] = true
		if f.Message() == nil { // a message that is missing may become an empty one
			check(f.Name())
		}
	})

	var zero T
	for _, v := range []T{filled[T](t), zero} {
		m := m.ProtoReflect().New().Interface()
		if err := EncodeResponse(v, m); err != nil {
			t.Errorf("%+v: %v", v, err)
		}
		got, err := Decode[T](m)
		if diff := cmp.Diff(v, got); diff != "" || err != nil {
			t.Errorf("%T there and back: %v (-want +got):\n%s", v, err, diff)
		}
	}
}

func TestThereAndBack(t *testing.T) {
	tested := map[protoreflect.FullName]bool{}
	for m, test := range map[proto.Message]func(*testing.T, proto.Message, map[protoreflect.FullName]bool){
		new(storagev1alpha1.DiskSelector):          thereAndBack[storage.Selector],
		new(storagev1alpha1.Disk):                  thereAndBack[storage.Disk],
		new(storagev1alpha1.StageVolumeRequest):    thereAndBack[storage.StageVolumeRequest],
		new(storagev1alpha1.StageVolumeResponse):   thereAndBack[storage.StagedVolume],
		new(storagev1alpha1.UnstageVolumeRequest):  thereAndBack[storage.UnstageVolumeRequest],
		new(storagev1alpha1.UnstageVolumeResponse): thereAndBack[storage.UnstagedVolume],
		new(storagev1alpha1.ExpandVolumeRequest):   thereAndBack[storage.ExpandVolumeRequest],
		new(storagev1alpha1.ExpandVolumeResponse):  thereAndBack[storage.ExpandedVolume],
		new(storagev1alpha1.ListVolumesResponse):   thereAndBack[storage.VolumeList],
		new(storagev1alpha1.StageShareRequest):     thereAndBack[storage.StageShareRequest],
		new(storagev1alpha1.UnstageShareRequest):   thereAndBack[storage.UnstageShareRequest],
		new(storagev1alpha1.UnstageShareResponse):  thereAndBack[storage.UnstagedShare],
		new(storagev1alpha1.CleanUpResponse):       thereAndBack[storage.Leftovers],
		new(storagev1alpha1.CheckVolumeRequest):    thereAndBack[storage.CheckVolumeRequest],
		new(storagev1alpha1.CheckVolumeResponse):   thereAndBack[storage.CheckedVolume],
		new(storagev1alpha1.WatchDisksResponse):    thereAndBack[storage.DiskChanges],
	} {
		test(t, m, tested)
	}
	// Package rpc tests that requests and responses with fields of their own come through.
	messages := storagev1alpha1.File_csiproxy_storage_v1alpha1_storage_proto.Messages()
	for i := range messages.Len() {
		name := string(messages.Get(i).Name())
		ownFields := strings.HasSuffix(name, "Request") || strings.HasSuffix(name, "Response")
		if !ownFields && !tested[messages.Get(i).FullName()] {
			t.Errorf("%s isn't tested", name)
		}
	}
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
	switch field := v.Addr().Interface().(type) {
	case *secret.Text:
		*field = secret.New("secret " + strconv.Itoa(*n))
		return
	case *time.Duration:
		*field = time.Duration(*n) * time.Second
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

// A time that isn't the default doesn't become it.
func TestWait(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{
		0: 0, time.Nanosecond: time.Millisecond, -1: -time.Millisecond, -time.Hour: -time.Millisecond,
		time.Second + 1: time.Second,
	} {
		m := new(storagev1alpha1.ExpandVolumeRequest)
		err := EncodeRequest(storage.ExpandVolumeRequest{Wait: wait}, m)
		got, decodeErr := Decode[storage.ExpandVolumeRequest](m)
		if got.Wait != want || err != nil || decodeErr != nil {
			t.Errorf("%v: %v, %v, %v, want %v", wait, got.Wait, err, decodeErr, want)
		}
	}
	m := &storagev1alpha1.ExpandVolumeRequest{WaitMilliseconds: math.MinInt64}
	if got, err := Decode[storage.ExpandVolumeRequest](m); got.Wait != -time.Millisecond || err != nil {
		t.Errorf("%v, %v", got.Wait, err)
	}
}

// What isn't known mustn't become something else: no CHAP, or another port.
func TestRefusals(t *testing.T) {
	for _, auth := range []iscsi.AuthType{7, 1 << 32} {
		unknown := storage.Login{Authentication: iscsi.Authentication{Type: auth}}
		err := EncodeRequest(storage.StageVolumeRequest{Login: unknown}, new(storagev1alpha1.StageVolumeRequest))
		if !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Error(auth, err)
		}
	}
	for _, r := range []*storagev1alpha1.StageVolumeRequest{
		{Login: &storagev1alpha1.ISCSILogin{Type: 7}},
		{Disk: &storagev1alpha1.DiskSelector{Iscsi: &storagev1alpha1.ISCSISelector{
			Portal: &storagev1alpha1.Portal{Port: math.MaxUint16 + 1}}}},
		{WaitMilliseconds: math.MaxInt64},
	} {
		if _, err := Decode[storage.StageVolumeRequest](r); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// How to log in goes by what it means, whatever the numbers and names are at both ends.
func TestLogin(t *testing.T) {
	for auth, want := range map[iscsi.AuthType]storagev1alpha1.AuthenticationType{
		iscsi.NoAuth:     storagev1alpha1.AuthenticationType_NONE,
		iscsi.OneWayCHAP: storagev1alpha1.AuthenticationType_ONE_WAY_CHAP,
		iscsi.MutualCHAP: storagev1alpha1.AuthenticationType_MUTUAL_CHAP,
	} {
		login := storage.Login{MutualSecret: secret.New("m"),
			Authentication: iscsi.Authentication{Type: auth, Username: "u", Secret: secret.New("s")}}
		want := &storagev1alpha1.ISCSILogin{Type: want, Username: "u", Secret: "s", MutualSecret: "m"}
		m := new(storagev1alpha1.ISCSILogin)
		if err := EncodeRequest(login, m); !proto.Equal(m, want) || err != nil {
			t.Errorf("%v, %v, want %v", m, err, want)
		}
		if got, err := Decode[storage.Login](m); !cmp.Equal(got, login) || err != nil {
			t.Errorf("%v from %v, %v", got, m, err)
		}
	}
}

// One byte that isn't UTF-8 doesn't fail the whole list. In a request it does.
func TestHardwareTextIsMadeValid(t *testing.T) {
	d := storage.Disk{SerialNumber: "a\xff", Identifiers: []storage.Identifier{{Text: "\xfe"}},
		Partitions: []storage.Partition{{Paths: []string{"\xfd"}}}}
	m := new(storagev1alpha1.Disk)
	err := EncodeResponse(d, m)
	if m.SerialNumber != "a\uFFFD" || m.Identifiers[0].Text != "\uFFFD" || m.Partitions[0].Paths[0] != "\uFFFD" ||
		err != nil {
		t.Errorf("%v, %v", m, err)
	}
	if err := EncodeRequest(d, m); m.SerialNumber != "a\xff" || err != nil {
		t.Errorf("%v, %v", m, err)
	}
}
