// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const volumeName = `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`

// volumes are what the provider knows of volumes.
var volumes = []properties{
	{"Path": `\\?\Volume{other}\`, "__PATH": "other"},
	{"Path": `\\?\VOLUME{01234567-89ab-cdef-0123-456789abcdef}\`, "__PATH": "the volume"},
}

const updateCache = "MSFT_StorageSetting MSFT_StorageSetting.UpdateHostStorageCache map[]"

// The caller has just looked at the volume: it isn't waited for here.
func TestFormatVolumeDoesNotWait(t *testing.T) {
	p := &provider{objects: volumes[:1], late: volumes[1:]}
	o := win.FormatOptions{FileSystem: "NTFS", ClusterSize: 8192}
	if err := formatVolume(t.Context(), p, volumeName, o); !errors.Is(err, winerr.ErrorRetry) || len(p.calls) != 0 {
		t.Errorf("a volume that the provider doesn't know: %v after %q", err, p.calls)
	}
	o.UpdateList = true
	if err := formatVolume(t.Context(), p, volumeName, o); err != nil {
		t.Error(err)
	}
	want := []string{updateCache, fmt.Sprintf("the volume MSFT_Volume.Format %v", formatOptions(o))}
	if !slices.Equal(p.calls, want) {
		t.Errorf("calls %q; want %q", p.calls, want)
	}
}

func TestFormatVolumeFails(t *testing.T) {
	tests := map[uint32]winerr.Errno{
		1: winerr.ErrorNotSupported, 40001: winerr.ErrorAccessDenied, 42010: winerr.ErrorAccessDenied,
		43006: winerr.ErrorWriteProtect, 4: winerr.ErrorGenFailure, 99999: winerr.ErrorGenFailure,
	}
	for result, want := range tests {
		err := formatVolume(t.Context(), &provider{objects: volumes, result: result}, volumeName, win.FormatOptions{})
		if !errors.Is(err, want) {
			t.Errorf("result %d gives %v; want %v", result, err, want)
		}
	}
	for _, failing := range []string{"SELECT * FROM MSFT_Volume", "UpdateHostStorageCache"} {
		p := &provider{failing: map[string]error{failing: winerr.ErrorServiceNotActive}}
		err := formatVolume(t.Context(), p, volumeName, win.FormatOptions{UpdateList: true})
		if err != winerr.ErrorServiceNotActive || len(p.calls) != 1 {
			t.Errorf("error %v of %s after %q; want ErrorServiceNotActive at once", err, failing, p.calls)
		}
	}
	for _, missing := range []string{"Path", "__PATH"} {
		o := maps.Clone(volumes[1])
		delete(o, missing)
		p := &provider{objects: []properties{o}}
		if err := formatVolume(t.Context(), p, volumeName, win.FormatOptions{}); err != winerr.ErrorNotFound || p.calls != nil {
			t.Errorf("a volume without %s: %v after %q", missing, err, p.calls)
		}
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
		p := &provider{objects: volumes, output: 3}
		got, err := repairVolume(t.Context(), p, volumeName, mode)
		want := []string{"the volume MSFT_Volume.Repair map[" + parameter + ":true]"}
		if err != nil || got != 3 || !slices.Equal(p.calls, want) {
			t.Errorf("mode %d: %d, %v after %q; want 3 after %q", mode, got, err, p.calls, want)
		}
	}
	for result, want := range map[uint32]winerr.Errno{
		43001: winerr.ErrorNotSupported, 43007: winerr.ErrorIODevice, 43008: winerr.ErrorIODevice, 43010: winerr.ErrorBusy,
		43013: winerr.ErrorAccessDenied, 43014: winerr.ErrorUnrecognizedVolume, 2: winerr.ErrorGenFailure,
	} {
		p := &provider{objects: volumes, result: result, output: 3}
		if got, err := repairVolume(t.Context(), p, volumeName, win.RepairScan); !errors.Is(err, want) || got != 0 {
			t.Errorf("result %d gives %d, %v; want %v", result, got, err, want)
		}
	}
	for _, failing := range []string{"SELECT * FROM MSFT_Volume", "Repair"} {
		p := &provider{objects: volumes, failing: map[string]error{failing: winerr.ErrorServiceNotActive}}
		if _, err := repairVolume(t.Context(), p, volumeName, win.RepairScan); err != winerr.ErrorServiceNotActive {
			t.Errorf("%s fails, and the error is %v", failing, err)
		}
	}
	if _, err := repairVolume(t.Context(), &provider{}, volumeName, win.RepairScan); !errors.Is(err, winerr.ErrorRetry) {
		t.Errorf("a volume that the provider doesn't know: %v", err)
	}
}
