// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagewire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/storage"
)

func randomText(r *rand.Rand) string {
	return []string{"", "a", "text", "a\xffb", "ü", "\xfe"}[r.IntN(6)]
}

func randomStruct(r *rand.Rand, v reflect.Value) {
	switch field := v.Addr().Interface().(type) {
	case *secret.Text:
		*field = secret.New(randomText(r))
		return
	case *time.Duration:
		*field = []time.Duration{0, 1, -1, -time.Hour, time.Second, math.MaxInt64, math.MinInt64, 1500 * time.Microsecond}[r.IntN(8)]
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(randomText(r))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int64:
		v.SetInt(int64(r.Uint64()))
	case reflect.Int:
		v.SetInt([]int64{0, 1, 2, 3, -1, 7, 1 << 32}[r.IntN(7)])
		if r.IntN(2) == 0 {
			v.SetInt(int64(r.IntN(3)))
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64) & (1<<v.Type().Bits() - 1))
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomStruct(r, v.Elem())
		}
	case reflect.Slice:
		for range r.IntN(3) {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			randomStruct(r, v.Index(v.Len()-1))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			randomStruct(r, v.Field(i))
		}
	default:
		panic(v.Type())
	}
}

func randomMessage(r *rand.Rand, m protoreflect.Message) {
	value := func(f protoreflect.FieldDescriptor) protoreflect.Value {
		switch f.Kind() {
		case protoreflect.StringKind:
			return protoreflect.ValueOfString(randomText(r))
		case protoreflect.BoolKind:
			return protoreflect.ValueOfBool(r.IntN(2) == 0)
		case protoreflect.EnumKind:
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber([]int{0, 1, 2, 1, 2, 0, 7, -1}[r.IntN(8)]))
		case protoreflect.Uint32Kind:
			return protoreflect.ValueOfUint32(r.Uint32() >> (r.IntN(32) | 8*r.IntN(4)))
		case protoreflect.Int64Kind:
			return protoreflect.ValueOfInt64(int64(r.Uint64()) >> r.IntN(64))
		}
		panic(f.Kind())
	}
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case r.IntN(4) == 0:
		case f.IsList():
			for range r.IntN(3) {
				if f.Message() != nil {
					randomMessage(r, m.Mutable(f).List().AppendMutable().Message())
				} else {
					m.Mutable(f).List().Append(value(f))
				}
			}
		case f.Message() != nil:
			randomMessage(r, m.Mutable(f).Message())
		default:
			m.Set(f, value(f))
		}
	}
}

func text2(err error) string { return fmt.Sprint(err) }

func same[T any, M proto.Message](t *testing.T, request bool, newMessage func() M, encode func(T) (M, error), decode func(M) (T, error)) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	failed := 0
	for range 300 {
		var v T
		randomStruct(r, reflect.ValueOf(&v).Elem())
		want := newMessage()
		wantErr := EncodeResponse(v, want)
		if request {
			want = newMessage()
			wantErr = EncodeRequest(v, want)
		}
		got, err := encode(v)
		if text2(err) != text2(wantErr) || err == nil && !proto.Equal(got, want) {
			t.Fatalf("%+v: %v, %v, want %v, %v", v, got, err, want, wantErr)
		}
		m := newMessage()
		randomMessage(r, m.ProtoReflect())
		wantV, wantErr := Decode[T](m)
		gotV, err := decode(m)
		if text2(err) != text2(wantErr) || err == nil && !cmp.Equal(gotV, wantV) {
			t.Fatalf("%v: %v, %v, want %v, %v\n%s", m, gotV, err, wantV, wantErr, cmp.Diff(wantV, gotV))
		}
		if wantErr != nil {
			failed++
		}
	}
	var v T
	t.Logf("%T: %d of 300 messages are refused", v, failed)
}

func noError[A, B any](f func(A) B) func(A) (B, error) {
	return func(a A) (B, error) { return f(a), nil }
}

func TestSameAsReflection(t *testing.T) {
	same(t, true, func() *storagev1alpha1.DiskSelector { return new(storagev1alpha1.DiskSelector) }, noError(EncodeSelector), DecodeSelector)
	same(t, true, func() *storagev1alpha1.StageVolumeRequest { return new(storagev1alpha1.StageVolumeRequest) }, EncodeStageVolumeRequest, DecodeStageVolumeRequest)
	same(t, true, func() *storagev1alpha1.UnstageVolumeRequest { return new(storagev1alpha1.UnstageVolumeRequest) }, noError(EncodeUnstageVolumeRequest), DecodeUnstageVolumeRequest)
	same(t, true, func() *storagev1alpha1.ExpandVolumeRequest { return new(storagev1alpha1.ExpandVolumeRequest) }, noError(EncodeExpandVolumeRequest), DecodeExpandVolumeRequest)
	same(t, true, func() *storagev1alpha1.StageShareRequest { return new(storagev1alpha1.StageShareRequest) }, noError(EncodeStageShareRequest), noError(DecodeStageShareRequest))
	same(t, true, func() *storagev1alpha1.UnstageShareRequest { return new(storagev1alpha1.UnstageShareRequest) }, noError(EncodeUnstageShareRequest), noError(DecodeUnstageShareRequest))
	same(t, true, func() *storagev1alpha1.CheckVolumeRequest { return new(storagev1alpha1.CheckVolumeRequest) }, noError(EncodeCheckVolumeRequest), noError(DecodeCheckVolumeRequest))
	type disks struct{ Disks []storage.Disk }
	same(t, false, func() *storagev1alpha1.ListDisksResponse { return new(storagev1alpha1.ListDisksResponse) },
		func(d disks) (*storagev1alpha1.ListDisksResponse, error) { return EncodeDisks(d.Disks), nil },
		func(m *storagev1alpha1.ListDisksResponse) (disks, error) { d, err := DecodeDisks(m); return disks{d}, err })
	same(t, false, func() *storagev1alpha1.WatchDisksResponse { return new(storagev1alpha1.WatchDisksResponse) }, noError(EncodeDiskChanges), DecodeDiskChanges)
	same(t, false, func() *storagev1alpha1.StageVolumeResponse { return new(storagev1alpha1.StageVolumeResponse) }, noError(EncodeStagedVolume), noError(DecodeStagedVolume))
	same(t, false, func() *storagev1alpha1.UnstageVolumeResponse { return new(storagev1alpha1.UnstageVolumeResponse) }, noError(EncodeUnstagedVolume), noError(DecodeUnstagedVolume))
	same(t, false, func() *storagev1alpha1.ExpandVolumeResponse { return new(storagev1alpha1.ExpandVolumeResponse) }, noError(EncodeExpandedVolume), noError(DecodeExpandedVolume))
	same(t, false, func() *storagev1alpha1.Volume { return new(storagev1alpha1.Volume) }, noError(EncodeVolume), noError(DecodeVolume))
	same(t, false, func() *storagev1alpha1.ListVolumesResponse { return new(storagev1alpha1.ListVolumesResponse) }, noError(EncodeVolumeList), noError(DecodeVolumeList))
	same(t, false, func() *storagev1alpha1.CleanUpResponse { return new(storagev1alpha1.CleanUpResponse) }, noError(EncodeLeftovers), noError(DecodeLeftovers))
	same(t, false, func() *storagev1alpha1.UnstageShareResponse { return new(storagev1alpha1.UnstageShareResponse) }, noError(EncodeUnstagedShare), noError(DecodeUnstagedShare))
	same(t, false, func() *storagev1alpha1.CheckVolumeResponse { return new(storagev1alpha1.CheckVolumeResponse) }, noError(EncodeCheckedVolume), DecodeCheckedVolume)
}
