// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/host/doctor"
)

// The checks that ask Windows itself get answers of this one.
func TestDoctorAsksWindows(t *testing.T) {
	kubelet := t.TempDir()
	examine := func(path string) map[string]doctor.Finding {
		t.Helper()
		var out, errs strings.Builder
		if code := run(t.Context(), []string{"-o", "json", "doctor", "--kubelet-path", path}, strings.NewReader(""), &out,
			&errs); code > 1 {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		var findings []doctor.Finding
		must(t, json.Unmarshal([]byte(out.String()), &findings))
		byCheck := map[string]doctor.Finding{}
		for _, f := range findings {
			byCheck[f.Check] = f
			if f.Text == "" {
				t.Errorf("%s says nothing", f.Check)
			}
		}
		return byCheck
	}
	findings := examine(kubelet)
	// Not those of services: Wine's service manager confuses questions asked at the same time.
	for _, check := range []string{"san-policy", "bitlocker", "kubelet-directory", "pipe-owner"} {
		if f := findings[check]; f.Verdict == doctor.Unknown {
			t.Errorf("%+v", f)
		}
	}
	missing := filepath.Join(kubelet, "none")
	if f := examine(missing)["kubelet-directory"]; f.Verdict != doctor.Problem || !strings.Contains(f.Text, missing) {
		t.Errorf("%+v", f)
	}
}

func TestSupportBundleOfWindows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle.zip")
	ran(t, 0, "support-bundle", path)
	z, err := zip.OpenReader(path)
	must(t, err)
	defer z.Close()
	for _, name := range []string{"findings.json", "services.json"} {
		if !slices.ContainsFunc(z.File, func(f *zip.File) bool { return f.Name == name }) {
			t.Errorf("it lacks %s", name)
		}
	}
}
