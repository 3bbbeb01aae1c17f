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
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
)

// thereAndBack tests a message, and the struct of its fields. Each field comes through, and none comes
// in the place of another. So a field that is new in one of them fails here until the other has it.
// It adds the names of the messages to tested.
func thereAndBack[T any, M proto.Message](t *testing.T, tested map[protoreflect.FullName]bool,
	encode func(T) (M, error), decode func(M) (T, error)) {
	t.Helper()
	var none M
	m := none.ProtoReflect().New().Interface().(M)
	wiretest.Fill(m)
	check := func(without any) {
		t.Helper()
		v, err := decode(m)
		got := none
		if err == nil {
			got, err = encode(v)
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
	for _, v := range []T{filled[T](t, ""), zero} {
		m, err := encode(v)
		if err != nil {
			t.Errorf("%+v: %v", v, err)
		}
		got, err := decode(m)
		if diff := cmp.Diff(v, got); diff != "" || err != nil {
			t.Errorf("%T there and back: %v (-want +got):\n%s", v, err, diff)
		}
	}
}

// noError is f with an error, which is always nil.
func noError[A, B any](f func(A) B) func(A) (B, error) {
	return func(a A) (B, error) { return f(a), nil }
}

func TestThereAndBack(t *testing.T) {
	tested := map[protoreflect.FullName]bool{}
	thereAndBack(t, tested, noError(EncodeSelector), DecodeSelector)
	thereAndBack(t, tested, EncodeStageVolumeRequest, DecodeStageVolumeRequest)
	thereAndBack(t, tested, noError(EncodeUnstageVolumeRequest), DecodeUnstageVolumeRequest)
	thereAndBack(t, tested, noError(EncodeExpandVolumeRequest), DecodeExpandVolumeRequest)
	thereAndBack(t, tested, noError(EncodeStageShareRequest), noError(DecodeStageShareRequest))
	thereAndBack(t, tested, noError(EncodeUnstageShareRequest), noError(DecodeUnstageShareRequest))
	thereAndBack(t, tested, noError(EncodeCheckVolumeRequest), noError(DecodeCheckVolumeRequest))
	thereAndBack(t, tested, noError(EncodeDisks), DecodeDisks)
	thereAndBack(t, tested, noError(EncodeDiskChanges), DecodeDiskChanges)
	thereAndBack(t, tested, noError(EncodeStagedVolume), noError(DecodeStagedVolume))
	thereAndBack(t, tested, noError(EncodeUnstagedVolume), noError(DecodeUnstagedVolume))
	thereAndBack(t, tested, noError(EncodeExpandedVolume), noError(DecodeExpandedVolume))
	thereAndBack(t, tested, noError(EncodeVolume), noError(DecodeVolume))
	thereAndBack(t, tested, noError(EncodeVolumeList), noError(DecodeVolumeList))
	thereAndBack(t, tested, noError(EncodeLeftovers), noError(DecodeLeftovers))
	thereAndBack(t, tested, noError(EncodeUnstagedShare), noError(DecodeUnstagedShare))
	thereAndBack(t, tested, noError(EncodeCheckedVolume), DecodeCheckedVolume)
	// Package rpc tests that the other requests and responses come through.
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
// forgotten, or taken for another, shows. Each text ends with end.
func filled[T any](t *testing.T, end string) T {
	t.Helper()
	var v T
	n := 0
	fill(t, reflect.ValueOf(&v).Elem(), &n, end)
	return v
}

func fill(t *testing.T, v reflect.Value, n *int, end string) {
	t.Helper()
	*n++
	switch field := v.Addr().Interface().(type) {
	case *csiproxy.Secret:
		*field = csiproxy.NewSecret("secret " + strconv.Itoa(*n))
		return
	case *time.Duration:
		*field = time.Duration(*n) * time.Second
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n, end))
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
		fill(t, v.Elem(), n, end)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n, end)
		fill(t, v.Index(1), n, end)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n, end)
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
		got, err := DecodeExpandVolumeRequest(EncodeExpandVolumeRequest(csiproxy.ExpandVolumeRequest{Wait: wait}))
		if got.Wait != want || err != nil {
			t.Errorf("%v: %v, %v, want %v", wait, got.Wait, err, want)
		}
	}
	m := &storagev1alpha1.ExpandVolumeRequest{WaitMilliseconds: math.MinInt64}
	if got, err := DecodeExpandVolumeRequest(m); got.Wait != -time.Millisecond || err != nil {
		t.Errorf("%v, %v", got.Wait, err)
	}
}

// What isn't known mustn't become something else: no CHAP, or another port.
func TestRefusals(t *testing.T) {
	for _, auth := range []csiproxy.ISCSIAuthType{7, 1 << 32} {
		unknown := csiproxy.ISCSILogin{ISCSIAuthentication: csiproxy.ISCSIAuthentication{Type: auth}}
		_, err := EncodeStageVolumeRequest(csiproxy.StageVolumeRequest{Login: unknown})
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
		if _, err := DecodeStageVolumeRequest(r); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

// How to log in goes by what it means, whatever the numbers and names are at both ends.
func TestLogin(t *testing.T) {
	for auth, want := range map[csiproxy.ISCSIAuthType]storagev1alpha1.AuthenticationType{
		csiproxy.ISCSINoAuth:     storagev1alpha1.AuthenticationType_NONE,
		csiproxy.ISCSIOneWayCHAP: storagev1alpha1.AuthenticationType_ONE_WAY_CHAP,
		csiproxy.ISCSIMutualCHAP: storagev1alpha1.AuthenticationType_MUTUAL_CHAP,
	} {
		login := csiproxy.ISCSILogin{MutualSecret: csiproxy.NewSecret("m"),
			ISCSIAuthentication: csiproxy.ISCSIAuthentication{Type: auth, Username: "u", Secret: csiproxy.NewSecret("s")}}
		want := &storagev1alpha1.ISCSILogin{Type: want, Username: "u", Secret: "s", MutualSecret: "m"}
		if m, err := encodeLogin(login); !proto.Equal(m, want) || err != nil {
			t.Errorf("%v, %v, want %v", m, err, want)
		}
		if got, err := decode(want, (*decoder).login); !cmp.Equal(got, login) || err != nil {
			t.Errorf("%v from %v, %v", got, want, err)
		}
	}
}

// One byte that isn't UTF-8 doesn't fail the whole response. In a request it does.
func TestTextsOfResponsesAreMadeValid(t *testing.T) {
	const bad = "\xff"
	for _, m := range []proto.Message{
		EncodeDisks(filled[[]csiproxy.Disk](t, bad)), EncodeDiskChanges(filled[csiproxy.DiskChanges](t, bad)),
		EncodeStagedVolume(filled[csiproxy.StagedVolume](t, bad)), EncodeVolume(filled[csiproxy.Volume](t, bad)),
		EncodeVolumeList(filled[csiproxy.VolumeList](t, bad)), EncodeLeftovers(filled[csiproxy.Leftovers](t, bad)),
	} {
		if _, err := proto.Marshal(m); err != nil || !strings.Contains(prototext.Format(m), "\uFFFD") {
			t.Errorf("%v: %v", m, err)
		}
	}
	if m := EncodeCheckVolumeRequest(csiproxy.CheckVolumeRequest{StagingPath: bad}); m.StagingPath != bad {
		t.Errorf("%v", m)
	}
}
