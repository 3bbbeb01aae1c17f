// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagewire

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/storage"
)

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

// Everything comes through, field by field, and so does a value without anything.
func TestThereAndBack(t *testing.T) {
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
	same(t, filled[storage.UnstageShareRequest](t), ToUnstageShare(FromUnstageShare(filled[storage.UnstageShareRequest](t))), nil)
	same(t, filled[storage.Leftovers](t), ToLeftovers(FromLeftovers(filled[storage.Leftovers](t))), nil)
	checked := storage.CheckedVolume{ErrorsFound: true, Fixed: true, Duration: time.Hour}
	same(t, checked, ToChecked(FromChecked(checked)), nil)
	staged := filled[storage.StagedVolume](t)
	same(t, staged, ToStaged(FromStaged(staged)), nil)
	// Their fields are all true, so which of them is which, internal/rpc and client show.
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

// A time that isn't the default doesn't become it.
func TestWait(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{
		0: 0, time.Nanosecond: time.Millisecond, -1: -time.Millisecond, -time.Hour: -time.Millisecond, time.Second + 1: time.Second,
	} {
		if got, err := toWait(fromWait(wait)); got != want || err != nil {
			t.Errorf("%v: %v, %v, want %v", wait, got, err, want)
		}
	}
	if _, err := toWait(math.MaxInt64); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Error(err)
	}
}

// What isn't known mustn't become a login without CHAP.
func TestUnknownAuthentication(t *testing.T) {
	_, err := FromStageVolume(storage.StageVolumeRequest{Login: storage.Login{Authentication: iscsi.Authentication{Type: 7}}})
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
	_, err := ToSelector(&storagev1alpha1.DiskSelector{Iscsi: &storagev1alpha1.ISCSISelector{PortalPort: math.MaxUint16 + 1}})
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
