// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

const volumeName = `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`

// provider is a storage management provider that comes to know the volume when its
// cache has been updated some times.
type provider struct {
	updates   int // until the volume is known
	result    uint32
	output    uint32
	err       error             // of findVolume and offlineDisks
	offline   map[uint32]uint32 // reasons by disk number
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

func (p *provider) repair(_ context.Context, volume string, mode win.RepairMode) (result, output uint32, err error) {
	p.calls = append(p.calls, "repair "+volume+" "+repairParameters[mode])
	return p.result, p.output, nil
}

func (p *provider) offlineDisks(_ context.Context, f func(number, reason uint32)) error {
	for number, reason := range p.offline {
		f(number, reason)
	}
	return p.err
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
	if err := formatVolume(t.Context(), p, volumeName, win.FormatOptions{}); err != win.ErrorServiceNotActive ||
		len(p.calls) != 1 {
		t.Errorf("error %v after %q; want ErrorServiceNotActive at once", err, p.calls)
	}
}

func TestFormatOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		options win.FormatOptions
		want    map[string]any
	}{
		"defaults": {win.FormatOptions{FileSystem: "NTFS"}, map[string]any{}},
		"NTFS": {
			win.FormatOptions{FileSystem: "NTFS", Label: "data", ClusterSize: 65536, NoShortNames: true},
			map[string]any{"AllocationUnitSize": uint32(65536), "ShortFileNameSupport": false},
		},
		"ReFS": {win.FormatOptions{FileSystem: "ReFS", IntegrityStreams: true}, map[string]any{"SetIntegrityStreams": true}},
	} {
		want := map[string]any{"FileSystem": tt.options.FileSystem, "FileSystemLabel": tt.options.Label, "Full": false,
			"Force": false}
		maps.Copy(want, tt.want)
		if diff := cmp.Diff(want, formatOptions(tt.options)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRepairVolume(t *testing.T) {
	for mode, parameter := range map[win.RepairMode]string{
		win.RepairScan: "Scan", win.RepairSpotFix: "SpotFix", win.RepairOffline: "OfflineScanAndFix",
	} {
		p := &provider{output: 3}
		got, err := repairVolume(t.Context(), p, volumeName, mode)
		want := []string{"find", "repair path of " + volumeName + " " + parameter}
		if err != nil || got != 3 || !slices.Equal(p.calls, want) {
			t.Errorf("mode %d: %d, %v after %q; want 3 after %q", mode, got, err, p.calls, want)
		}
	}
	for result, want := range map[uint32]win.Errno{
		43001: win.ErrorNotSupported, 43007: win.ErrorIODevice, 43008: win.ErrorIODevice, 43010: win.ErrorBusy,
		43013: win.ErrorAccessDenied, 43014: win.ErrorUnrecognizedVolume, 2: win.ErrorGenFailure,
	} {
		if _, err := repairVolume(t.Context(), &provider{result: result}, volumeName, win.RepairScan); !errors.Is(err, want) {
			t.Errorf("result %d gives %v; want %v", result, err, want)
		}
	}
	if _, err := repairVolume(t.Context(), &provider{updates: 1}, volumeName, win.RepairScan); !errors.Is(err,
		win.ErrorRetry) {
		t.Errorf("a volume that the provider doesn't know: %v", err)
	}
}

func TestOfflineReasons(t *testing.T) {
	got, err := offlineReasons(t.Context(), &provider{offline: map[uint32]uint32{1: 4, 7: 0}})
	want := map[disk.Number]win.OfflineReason{1: win.OfflineCollision, 7: win.OfflineUnknown}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := offlineReasons(t.Context(),
		&provider{err: win.ErrorServiceNotActive}); err != win.ErrorServiceNotActive || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}
