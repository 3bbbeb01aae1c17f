// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "testing"

func versionIn(text []byte) (string, error) {
	metrics, err := ParseMetrics(text)
	if err != nil {
		return "", err
	}
	return metrics.Version()
}

func TestVersionIn(t *testing.T) {
	for _, metrics := range []string{"", "csi_proxy_build_info 1\n", "csi_proxy_build_info{version=\"\"} 1\n", "<html>"} {
		if v, err := versionIn([]byte(metrics)); err == nil {
			t.Errorf("%q: version %q", metrics, v)
		}
	}
}

func FuzzVersionIn(f *testing.F) {
	f.Add([]byte("csi_proxy_build_info{version=\"v1\"} 1\n"))
	f.Fuzz(func(t *testing.T, metrics []byte) {
		if v, err := versionIn(metrics); err == nil && v == "" {
			t.Error("an empty version")
		}
	})
}
