// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winread

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// TestVolumes looks at the volume of C:, which Windows always has.
func TestVolumes(t *testing.T) {
	var w Windows
	names, err := w.FindVolumes(t.Context())
	if err != nil || len(names) == 0 {
		t.Fatalf("volumes %q, %v", names, err)
	}
	root, err := w.VolumeOf(t.Context(), t.TempDir())
	if err != nil || !strings.HasSuffix(root, `\`) {
		t.Errorf("root %q, %v", root, err)
	}
	for _, volume := range []string{`C:`, root} {
		if info, err := w.VolumeInformation(t.Context(), volume); err != nil || info.FileSystem == "" {
			t.Errorf("%s: %+v, %v", volume, info, err)
		}
	}
	if info, err := w.VolumeInformation(t.Context(), `\\?\Volume{00000000-0000-0000-0000-000000000000}\`); err == nil {
		t.Errorf("a volume that doesn't exist: %+v", info)
	}
}

func TestQueryService(t *testing.T) {
	var w Windows
	if s, err := w.QueryService(t.Context(), "RpcSs"); err != nil || s.State == 0 || s.StartType == win.ServiceDisabled {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := w.QueryService(t.Context(), "csi-proxy-none"); !errors.Is(err, winerr.ErrorServiceDoesNotExist) {
		t.Errorf("a service that doesn't exist: %+v, %v", s, err)
	}
}

func TestFileAttributes(t *testing.T) {
	var w Windows
	directory := t.TempDir()
	if a, err := w.FileAttributes(t.Context(), directory); err != nil || a&win.AttributeDirectory == 0 {
		t.Errorf("attributes %#x, %v", a, err)
	}
	if _, err := w.FileAttributes(t.Context(), directory+`\none`); !errors.Is(err, winerr.ErrorFileNotFound) {
		t.Errorf("a file that doesn't exist: %v", err)
	}
}

func TestRegistry(t *testing.T) {
	var w Windows
	const key = `SOFTWARE\Microsoft\Windows NT\CurrentVersion`
	if texts, err := w.RegistryStrings(t.Context(), key, "CurrentBuildNumber"); err != nil || len(texts) != 1 {
		t.Errorf("the build is %q, %v", texts, err)
	}
	if _, err := w.RegistryNumber(t.Context(), key, "CurrentMajorVersionNumber"); err != nil {
		t.Error(err)
	}
	for _, missing := range []string{key, key + `\None`} {
		if n, err := w.RegistryNumber(t.Context(), missing, "None"); !errors.Is(err, winerr.ErrorFileNotFound) {
			t.Errorf("%s has %d, %v", missing, n, err)
		}
		if s, err := w.RegistryStrings(t.Context(), missing, "None"); !errors.Is(err, winerr.ErrorFileNotFound) {
			t.Errorf("%s has %q, %v", missing, s, err)
		}
	}
}
