// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

func TestFormatVolumeFindsLaggingVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{updates: 2}
		o := win.FormatOptions{FileSystem: "NTFS", ClusterSize: 8192}
		if err := formatVolume(t.Context(), p, volumeName, o); err != nil {
			t.Fatal(err)
		}
		want := []string{"find", "update", "find", "update", "find", "format path of " + volumeName}
		if !slices.Equal(p.calls, want) || p.formatted != o {
			t.Errorf("calls %q with %+v; want %q with %+v", p.calls, p.formatted, want, o)
		}
	})
}

func TestFormatVolumeGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{updates: 1000}
		start := time.Now()
		if err := formatVolume(t.Context(), p, volumeName, win.FormatOptions{}); !errors.Is(err, win.ErrorRetry) {
			t.Errorf("error %v; want ErrorRetry", err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("gave up after %v", took)
		}
		if calls := strings.Join(p.calls, " "); strings.Contains(calls, "format") {
			t.Errorf("calls %s", calls)
		}
	})
}

func TestFormatVolumeEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), findPause/2)
		defer cancel()
		p := &provider{updates: 1000}
		if err := formatVolume(ctx, p, volumeName, win.FormatOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v; want DeadlineExceeded", err)
		}
	})
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
