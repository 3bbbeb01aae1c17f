// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// stuck is a system whose calls block until the test lets them go, as a dead
// device makes them.
type stuck struct {
	System
	entered chan struct{}
	release chan struct{}
	open    atomic.Int32 // handles
}

func newStuck() *stuck {
	return &stuck{entered: make(chan struct{}, 10), release: make(chan struct{})}
}

func (s *stuck) block() {
	s.entered <- struct{}{}
	<-s.release
}

func (s *stuck) FindVolumes(context.Context) ([]string, error) {
	s.block()
	return []string{"v"}, nil
}

func (s *stuck) DeviceInterfaces(context.Context, win.GUID) ([]string, error) {
	panic("a bug")
}

func (s *stuck) OpenDevice(_ context.Context, path string, _ win.Access) (win.Device, error) {
	if path == "slow" {
		s.block()
	}
	s.open.Add(1)
	return &stuckDevice{s: s}, nil
}

type stuckDevice struct {
	win.Device
	s *stuck
}

func (d *stuckDevice) Control(context.Context, win.IoctlCode, []byte, []byte) (int, error) {
	d.s.block()
	return 0, win.ErrorNotReady
}

func (d *stuckDevice) Close() error { d.s.open.Add(-1); return nil }

// cancelled starts f with a context that ends once the stuck call has begun,
// and returns f's error.
func cancelled(t *testing.T, s *stuck, f func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	<-s.entered
	cancel()
	return <-done
}

func TestCallerIsReleasedWhenItsContextEnds(t *testing.T) {
	s := newStuck()
	g := Wrap(s, 4, nil)
	err := cancelled(t, s, func(ctx context.Context) error { _, err := g.FindVolumes(ctx); return err })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v, want context.Canceled", err)
	}
	close(s.release)
}

func TestCallsUnderWayAreBounded(t *testing.T) {
	s := newStuck()
	g := Wrap(s, 1, nil)
	cancelled(t, s, func(ctx context.Context) error { _, err := g.FindVolumes(ctx); return err })

	// The abandoned call still holds the only place.
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := g.FindVolumes(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call beyond the bound gave %v, want context.DeadlineExceeded", err)
	}
	close(s.release)
	if _, err := g.FindVolumes(t.Context()); err != nil {
		t.Errorf("after the stuck call ended: %v", err)
	}
}

func TestHandleOfAnAbandonedOpenIsClosed(t *testing.T) {
	s := newStuck()
	g := Wrap(s, 1, nil)
	cancelled(t, s, func(ctx context.Context) error { _, err := g.OpenDevice(ctx, "slow", 0); return err })
	close(s.release)
	// With one place in all, the next call runs only when the open has ended.
	if _, err := g.FindVolumes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.open.Load(); n != 0 {
		t.Errorf("%d handles are open", n)
	}
}

func TestHandleStaysOpenUnderAnAbandonedCall(t *testing.T) {
	s := newStuck()
	g := Wrap(s, 1, nil)
	dev, err := g.OpenDevice(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	cancelled(t, s, func(ctx context.Context) error { _, err := dev.Control(ctx, 0, nil, nil); return err })
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s.open.Load(); n != 1 {
		t.Errorf("the handle was closed under a running call")
	}
	close(s.release)
	if _, err := g.FindVolumes(t.Context()); err != nil { // waits for the place
		t.Fatal(err)
	}
	if n := s.open.Load(); n != 0 {
		t.Errorf("the handle wasn't closed when the call had ended")
	}
	if err := dev.Close(); !errors.Is(err, win.ErrorInvalidHandle) {
		t.Errorf("closing twice gave %v", err)
	}
	if _, err := dev.Control(t.Context(), 0, nil, nil); !errors.Is(err, win.ErrorInvalidHandle) {
		t.Errorf("a call on a closed handle gave %v", err)
	}
}

func TestPanicReachesTheCaller(t *testing.T) {
	g := Wrap(newStuck(), 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer func() {
		if recover() == nil {
			t.Error("the panic was lost")
		}
	}()
	g.DeviceInterfaces(ctx, win.GUID{})
}

func TestObserverSeesEveryCall(t *testing.T) {
	s := newStuck()
	close(s.release)
	type seen struct {
		call string
		err  error
	}
	var calls []seen
	g := Wrap(s, 1, func(call string, _ time.Duration, err error) { calls = append(calls, seen{call, err}) })
	dev, err := g.OpenDevice(context.Background(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	dev.Control(context.Background(), win.IoctlStorageGetDeviceNumber, nil, nil)
	want := []seen{{"CreateFileW", nil}, {"IOCTL_STORAGE_GET_DEVICE_NUMBER", win.ErrorNotReady}}
	if len(calls) != 2 || calls[0] != want[0] || calls[1] != want[1] {
		t.Errorf("seen %v, want %v", calls, want)
	}
}
