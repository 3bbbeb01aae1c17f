// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// answering is a device that answers each control call alike.
type answering struct {
	win.Device
	answer func(out []byte) (int, error)
	sizes  []int // of the buffers for answers, by call
}

func (a *answering) Control(_ context.Context, _ win.IoctlCode, _, out []byte) (int, error) {
	a.sizes = append(a.sizes, len(out))
	return a.answer(out)
}

// unopenable has devices that can't be opened.
type unopenable struct{ win.DeviceOpener }

func (unopenable) OpenDevice(context.Context, string, win.Access) (win.Device, error) {
	return nil, winerr.ErrorIODevice
}

// operations are all that make one control call, until an answer fits.
func operations(ctx context.Context, h win.DeviceHandle) map[string]func() error {
	asking := map[string]func() (any, error){
		"Number":           func() (any, error) { return h.Number(ctx) },
		"Identifiers":      func() (any, error) { return h.Identifiers(ctx) },
		"NVMeNamespace":    func() (any, error) { return h.NVMeNamespace(ctx, 1) },
		"Descriptor":       func() (any, error) { return h.Descriptor(ctx) },
		"Location":         func() (any, error) { return h.Location(ctx) },
		"SCSIAddress":      func() (any, error) { return h.SCSIAddress(ctx) },
		"Geometry":         func() (any, error) { return h.Geometry(ctx) },
		"State":            func() (any, error) { return h.State(ctx) },
		"AwaitVolumes":     func() (any, error) { return nil, h.AwaitVolumesReady(ctx) },
		"Layout":           func() (any, error) { return h.Layout(ctx) },
		"Extents":          func() (any, error) { return h.Extents(ctx) },
		"size of NTFS":     func() (any, error) { return h.FileSystemData(ctx, "NTFS") },
		"size of ReFS":     func() (any, error) { return h.FileSystemData(ctx, "ReFS") },
		"IsDirty":          func() (any, error) { return h.IsDirty(ctx) },
		"SetState":         func() (any, error) { return nil, h.SetState(ctx, win.DiskState{ReadOnly: true}, win.DiskState{}) },
		"SetLayout":        func() (any, error) { return nil, h.SetLayout(ctx, new(win.DriveLayout)) },
		"CreateDisk":       func() (any, error) { return nil, h.CreateDisk(ctx, win.CreateDisk{Style: win.StyleGPT}) },
		"UpdateProperties": func() (any, error) { return nil, h.UpdateProperties(ctx) },
		"UpdateDriveSize":  func() (any, error) { return nil, h.UpdateDriveSize(ctx) },
		"GrowPartition":    func() (any, error) { return nil, h.GrowPartition(ctx, win.GrowPartition{}) },
		"OnlineVolume":     func() (any, error) { return nil, h.OnlineVolume(ctx) },
		"OfflineVolume":    func() (any, error) { return nil, h.OfflineVolume(ctx) },
		"ExtendFileSystem": func() (any, error) { return nil, h.ExtendFileSystem(ctx, 1) },
		"LockVolume":       func() (any, error) { return nil, h.LockVolume(ctx) },
		"DismountVolume":   func() (any, error) { return nil, h.DismountVolume(ctx) },
	}
	all := make(map[string]func() error)
	for name, ask := range asking {
		all[name] = func() error { _, err := ask(); return err }
	}
	return all
}

// Each operation has the error of Windows, and one of an answer that Windows can't have given.
func TestErrorsArePassedOn(t *testing.T) {
	a := &answering{answer: func([]byte) (int, error) { return 0, winerr.ErrorIODevice }}
	h := win.DeviceHandle{Device: a}
	for name, operation := range operations(t.Context(), h) {
		a.sizes = nil
		if err := operation(); !errors.Is(err, winerr.ErrorIODevice) || len(a.sizes) != 1 {
			t.Errorf("%s: %v after %d calls", name, err, len(a.sizes))
		}
	}
	for _, length := range []func(out []byte) int{
		func([]byte) int { return -1 },
		func(out []byte) int { return len(out) + 1 },
	} {
		a.answer = func(out []byte) (int, error) { return length(out), nil }
		for name, operation := range operations(t.Context(), h) {
			if err := operation(); err == nil {
				t.Errorf("%s takes an answer that isn't as long as its buffer", name)
			}
		}
	}
	if _, err := win.ExtentsOf(t.Context(), unopenable{}, ""); !errors.Is(err, winerr.ErrorIODevice) {
		t.Errorf("ExtentsOf: %v", err)
	}
	if _, err := h.FileSystemData(t.Context(), "FAT32"); !errors.Is(err, winerr.ErrorNotSupported) {
		t.Errorf("FAT32: %v", err)
	}
}

// A buffer grows while an answer doesn't fit, up to a bound.
func TestBuffersGrow(t *testing.T) {
	for _, number := range []winerr.Errno{winerr.ErrorInsufficientBuffer, winerr.ErrorMoreData} {
		a := &answering{answer: func([]byte) (int, error) { return 0, number }}
		_, err := win.DeviceHandle{Device: a}.Layout(t.Context())
		if want := []int{4096, 16384, 65536, 262144, 1048576}; !errors.Is(err, number) || !slices.Equal(a.sizes, want) {
			t.Errorf("buffers of %v: %v", a.sizes, err)
		}
	}
	for _, test := range []struct {
		full  uint32 // what the device says that its answer has
		sizes []int
	}{
		{1024, []int{1024}}, {1025, []int{1024, 1025}}, {8 << 10, []int{1024, 8 << 10}}, {8<<10 + 1, []int{1024}},
	} {
		a := &answering{answer: func(out []byte) (int, error) {
			binary.LittleEndian.PutUint32(out, 40)
			binary.LittleEndian.PutUint32(out[4:], test.full)
			return len(out), nil
		}}
		_, _ = win.DeviceHandle{Device: a}.Descriptor(t.Context()) // of zeros
		if !slices.Equal(a.sizes, test.sizes) {
			t.Errorf("for %d bytes there were buffers of %v", test.full, a.sizes)
		}
	}
}

// What was decoded stays, when the buffer of its answer has the next one.
func TestAnswersShareNoBuffer(t *testing.T) {
	a := new(answering)
	h := win.DeviceHandle{Device: a}
	answer := func(b []byte) { a.answer = func(out []byte) (int, error) { return copy(out, b), nil } }
	answer(win.DeviceDescriptor{SerialNumber: "one"}.Encode())
	descriptor, err := h.Descriptor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answer(win.EncodeDeviceIDs([]win.Identifier{{ID: []byte("one")}}))
	ids, err := h.Identifiers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answer(slices.Repeat([]byte{0xFF}, 1024))
	_, _ = h.Identifiers(t.Context()) // it makes no sense
	if descriptor.SerialNumber != "one" || len(ids) != 1 || string(ids[0].ID) != "one" {
		t.Errorf("they became %+v and %+v", descriptor, ids)
	}
}
