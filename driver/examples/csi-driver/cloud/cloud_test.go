// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// plugs is hardware that notes what is done, and fails when it is told to.
type plugs struct {
	done []string
	err  error
}

func (p *plugs) note(format string, a ...any) error {
	p.done = append(p.done, fmt.Sprintf(format, a...))
	return p.err
}

func (p *plugs) Attach(_ context.Context, _ string, size int64, readOnly bool) error {
	return p.note("attach %d MiB, read-only %t", size>>20, readOnly)
}
func (p *plugs) Detach(context.Context, string) error { return p.note("detach") }
func (p *plugs) Grow(_ context.Context, _ string, size int64) error {
	return p.note("grow to %d MiB", size>>20)
}
func (p *plugs) Delete(context.Context, string) error { return p.note("delete") }

func open(t *testing.T, file string, h Hardware) *Cloud {
	t.Helper()
	c, err := Open(file, "node", h)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSizes(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		r    Range
		want int64 // 0: out of range
	}{
		{Range{}, 1024 * mib},
		{Range{Required: 1}, 64 * mib},
		{Range{Required: 100*mib + 1}, 101 * mib},
		{Range{Required: 100 * mib, Limit: 100 * mib}, 100 * mib},
		{Range{Limit: 500 * mib}, 500 * mib},
		{Range{Limit: 1}, 0},
		{Range{Required: 100*mib + 1, Limit: 100*mib + 2}, 0}, // no multiple of 1 MiB
		{Range{Required: 2, Limit: 1}, 0},
		{Range{Required: -1}, 0},
		{Range{Limit: -1}, 0},
		{Range{Required: 1 << 62}, 0},
	} {
		size, err := test.r.choose()
		if size != test.want || (test.want == 0) != (status.Code(err) == codes.OutOfRange) {
			t.Errorf("%+v: %d, %v, want %d", test.r, size, err, test.want)
		}
	}
}

func TestCreateIsByName(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "cloud.json"), new(plugs))
	first, err := c.Create("a", Range{Required: 1 << 30}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Create("a", Range{Required: 1 << 20}, true, nil)
	if err != nil || again.ID != first.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	for name, create := range map[string]func() (Volume, error){
		"larger":           func() (Volume, error) { return c.Create("a", Range{Required: 2 << 30}, true, nil) },
		"other parameters": func() (Volume, error) { return c.Create("a", Range{}, true, map[string]string{"type": "disk"}) },
		"no disk":          func() (Volume, error) { return c.Create("a", Range{}, false, nil) },
	} {
		if _, err := create(); !errors.Is(err, csiproxy.ErrAlreadyExists) {
			t.Errorf("%s: %v, want ErrAlreadyExists", name, err)
		}
	}
}

// What has happened to a volume is known to the next process, also if it was in the
// middle of it.
func TestCloudOutlastsItsProcess(t *testing.T) {
	file, h := filepath.Join(t.TempDir(), "cloud.json"), new(plugs)
	c := open(t, file, h)
	v, err := c.Create("a", Range{}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.err = errors.New("the power has gone")
	if err := c.Attach(t.Context(), v.ID, "node", true); !errors.Is(err, h.err) {
		t.Errorf("attach: %v", err)
	}
	h.err = nil

	c = open(t, file, h)
	if err := c.Delete(t.Context(), v.ID); !errors.Is(err, csiproxy.ErrFailedPrecondition) {
		t.Errorf("delete a disk that may be plugged in: %v", err)
	}
	for _, step := range []func() error{
		func() error { return c.Attach(t.Context(), v.ID, "node", true) },
		func() error { _, err := c.Grow(t.Context(), v.ID, Range{Required: 2 << 30}); return err },
		func() error { return c.Detach(t.Context(), v.ID, "another node") },
		func() error { return c.Detach(t.Context(), v.ID, "node") },
		func() error { return c.Detach(t.Context(), v.ID, "node") },
		func() error { _, err := c.Grow(t.Context(), v.ID, Range{Required: 3 << 30}); return err },
	} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	c = open(t, file, h)
	if v, err = c.Get(v.ID); err != nil || v.SizeBytes != 3<<30 || v.Node != "" {
		t.Errorf("%+v, %v", v, err)
	}
	h.err = errors.New("the power has gone")
	if err := c.Delete(t.Context(), v.ID); !errors.Is(err, h.err) {
		t.Errorf("delete: %v", err)
	}
	h.err = nil
	c = open(t, file, h)
	for range 2 {
		if err := c.Delete(t.Context(), v.ID); err != nil {
			t.Error(err)
		}
	}
	want := []string{"attach 1024 MiB, read-only true", "attach 1024 MiB, read-only true", "grow to 2048 MiB", "detach",
		"delete", "delete"}
	if diff := cmp.Diff(want, h.done); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if all := open(t, file, h).List(); len(all) != 0 {
		t.Errorf("volumes %+v", all)
	}
}
