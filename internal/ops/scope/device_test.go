// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// counted is a device that counts its calls, and answers those for its number and its descriptor.
type counted struct {
	win.Device
	calls, closed int
	during        func() // a call
}

func (c *counted) Control(_ context.Context, code win.IoctlCode, _, out []byte) (int, error) {
	c.calls++
	if c.during != nil {
		c.during()
	}
	switch code {
	case win.IoctlStorageGetDeviceNumber:
		return 12, nil
	case win.IoctlStorageQueryProperty:
		return copy(out, win.DeviceDescriptor{SerialNumber: "serial"}.Encode()), nil
	}
	return 0, winerr.ErrorInvalidFunction
}

func (c *counted) Close() error {
	c.closed++
	return nil
}

// An operation that asks at once what the door has asked gets that answer, once.
func TestAnswersOfDoor(t *testing.T) {
	ctx := t.Context()
	for name, test := range map[string]struct {
		first func(h device.Handle) error // of the operation
		calls int                         // for two descriptors
	}{
		"at once":       {func(device.Handle) error { return nil }, 1},
		"by its number": {func(h device.Handle) error { _, err := h.Number(ctx); return err }, 1},
		"later":         {func(h device.Handle) error { _, _ = h.Layout(ctx); return nil }, 2},
		"in vain": {func(h device.Handle) error {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_, err := h.Descriptor(ended)
			return err
		}, 2},
	} {
		c := &counted{}
		o := &ownDevice{Device: c, sys: &System{}, asking: true}
		h := device.Handle{Device: o}
		for range 2 { // the door's own questions are all asked
			if _, err := h.Descriptor(ctx); err != nil {
				t.Fatal(err)
			}
		}
		o.endAsking()
		if c.calls != 2 {
			t.Errorf("%s: the door has made %d calls, want 2", name, c.calls)
		}
		if err := test.first(h); err != nil {
			t.Error(err)
		}
		c.calls = 0
		for range 2 {
			said, err := h.Descriptor(ctx)
			if err != nil || said.SerialNumber != "serial" {
				t.Errorf("%s: %+v, %v", name, said, err)
			}
		}
		if c.calls != test.calls {
			t.Errorf("%s: %d calls for two descriptors, want %d", name, c.calls, test.calls)
		}
	}
}

// A disk that is closed while it is asked stays open until it has answered, and isn't asked again.
func TestCloseWhileAsked(t *testing.T) {
	c := &counted{}
	s := &System{}
	d := &ownDevice{Device: c, sys: s, descriptor: win.DeviceDescriptor{SerialNumber: "serial"}}
	s.noteDisk(d)
	s.noteVolume(`\\?\Volume{A}\`, d)
	ask := func() bool {
		_, isThere := s.askOpenDisk(t.Context(), func(d *ownDevice) bool { return d.volumes[volumeKey(`\\?\volume{a}`)] })
		return isThere
	}
	c.during = func() {
		if err := errors.Join(d.Close(), d.Close()); err != nil || c.closed > 0 {
			t.Errorf("closed %d times while it is asked, %v", c.closed, err)
		}
	}
	if !ask() || ask() {
		t.Error("the disk isn't there while it is open, or is there once it is closed")
	}
	if c.closed != 1 {
		t.Errorf("closed %d times", c.closed)
	}
}

// A disk that goes offline doesn't say whose the volumes are that were on it: a copy may get their names.
func TestVolumesOfDiskThatChanges(t *testing.T) {
	for _, code := range []win.IoctlCode{
		win.IoctlDiskSetDiskAttributes, win.IoctlDiskSetDriveLayoutEx, win.IoctlDiskCreateDisk,
	} {
		s := &System{}
		d := &ownDevice{Device: &counted{}, sys: s, descriptor: win.DeviceDescriptor{SerialNumber: "serial"}}
		s.noteDisk(d)
		s.noteVolume(`\\?\Volume{A}\`, d)
		if _, err := d.Control(t.Context(), code, nil, nil); err == nil {
			t.Errorf("%v is answered", code)
		}
		match := func(d *ownDevice) bool { return d.volumes[volumeKey(`\\?\volume{a}`)] }
		if _, isThere := s.askOpenDisk(t.Context(), match); isThere {
			t.Errorf("after %v the disk still has its volumes", code)
		}
	}
}
