// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

const volumeName = `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`

// provider is a storage management provider that comes to know the volume when its
// cache has been updated some times.
type provider struct {
	updates   int // until the volume is known
	result    uint32
	err       error // of findVolume
	calls     []string
	formatted win.FormatOptions
}

func (p *provider) findVolume(_ context.Context, name string) (string, error) {
	p.calls = append(p.calls, "find")
	if p.updates > 0 || p.err != nil {
		return "", p.err
	}
	return "path of " + name, nil
}

func (p *provider) updateCache(context.Context) error {
	p.calls = append(p.calls, "update")
	p.updates--
	return nil
}

func (p *provider) format(_ context.Context, volume string, o win.FormatOptions) (uint32, error) {
	p.calls = append(p.calls, "format "+volume)
	p.formatted = o
	return p.result, nil
}

// The caller has just looked at the volume: it isn't waited for here.
func TestFormatVolumeDoesNotWait(t *testing.T) {
	p := &provider{updates: 1}
	o := win.FormatOptions{FileSystem: "NTFS", ClusterSize: 8192}
	if err := formatVolume(t.Context(), p, volumeName, o); !errors.Is(err, win.ErrorRetry) {
		t.Errorf("a volume that the provider doesn't know: %v", err)
	}
	if err := formatVolume(t.Context(), p, volumeName, o); err != nil {
		t.Error(err)
	}
	want := []string{"find", "update", "find", "format path of " + volumeName}
	if !slices.Equal(p.calls, want) || p.formatted != o {
		t.Errorf("calls %q with %+v; want %q with %+v", p.calls, p.formatted, want, o)
	}
}

func TestFormatVolumeFails(t *testing.T) {
	tests := map[uint32]win.Errno{
		1: win.ErrorNotSupported, 40001: win.ErrorAccessDenied, 42010: win.ErrorAccessDenied,
		43006: win.ErrorWriteProtect, 4: win.ErrorGenFailure, 99999: win.ErrorGenFailure,
	}
	for result, want := range tests {
		err := formatVolume(t.Context(), &provider{result: result}, volumeName, win.FormatOptions{})
		if !errors.Is(err, want) {
			t.Errorf("result %d gives %v; want %v", result, err, want)
		}
	}
	p := &provider{err: win.ErrorServiceNotActive}
	if err := formatVolume(t.Context(), p, volumeName, win.FormatOptions{}); err != win.ErrorServiceNotActive || len(p.calls) != 1 {
		t.Errorf("error %v after %q; want ErrorServiceNotActive at once", err, p.calls)
	}
}
