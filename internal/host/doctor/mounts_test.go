// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// A volume that can be used, and is nearly full, is a warning. What makes a volume read-only has its own advice.
func TestMountedVolumes(t *testing.T) {
	conditions := func(reasons ...csiproxy.Reason) (all csiproxy.Conditions) {
		for _, reason := range reasons {
			all = append(all, csiproxy.Condition{Reason: reason})
		}
		return all
	}
	for name, c := range map[string]struct {
		volume  csiproxy.Volume
		verdict Verdict
		advice  string
	}{
		"nearly full":         {csiproxy.Volume{SizeBytes: 1000, FreeBytes: 49}, Warning, "grow its claim"},
		"a twentieth is free": {csiproxy.Volume{SizeBytes: 1000, FreeBytes: 50}, "", ""},
		"no size is known":    {csiproxy.Volume{}, "", ""},
		"a full share":        {csiproxy.Volume{SizeBytes: 1000, Share: `\\files\data`}, "", ""},
		"read-only":           {csiproxy.Volume{Conditions: conditions(csiproxy.ReasonReadOnly)}, Problem, "#read-only-disks"},
		"dirty":               {csiproxy.Volume{Conditions: conditions(csiproxy.ReasonDirty)}, Problem, "#by-number"},
		"no disk, full": {csiproxy.Volume{SizeBytes: 1000, Conditions: conditions(csiproxy.ReasonReadOnly, csiproxy.ReasonDiskMissing)},
			Problem, "disk online"},
	} {
		got := faultOfVolume(csiproxy.Mount{Path: `C:\k\pv`, Volume: c.volume})
		if got.Verdict != c.verdict || !strings.Contains(got.Advice, c.advice) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Each condition of a share has its own advice, also beside others.
func TestShareAdvice(t *testing.T) {
	for reason, want := range map[csiproxy.Reason]string{
		csiproxy.ReasonShareRefused:     "#stale-smb-credentials",
		csiproxy.ReasonShareUnreachable: "-Port 445",
		csiproxy.ReasonShareNotMapped:   "end the pods",
		csiproxy.ReasonShareUnknown:     "#getvolume",
	} {
		if got := shareAdvice([]csiproxy.Condition{{Reason: csiproxy.ReasonReadOnly}, {Reason: reason}}); !strings.Contains(got, want) {
			t.Errorf("%s: %s", reason, got)
		}
	}
}
