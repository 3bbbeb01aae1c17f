// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package didyoumean

import "testing"

func TestHint(t *testing.T) {
	names := []string{"disk", "volume", "fs", "grace-period", "kubelet-path", "v"}
	for typed, want := range map[string]string{
		"dsik": "disk", "dis": "disk", "disks": "disk", "Volume": "volume", "graceperiod": "grace-period",
		"kubelet_path": "kubelet-path", "sf": "fs", "nothing": "", "diskette": "disk", "vol": "volume", "x": "v", "": "v",
	} {
		if want != "" {
			want = "; did you mean --" + want + "?"
		}
		if got := Hint("--", typed, names); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
