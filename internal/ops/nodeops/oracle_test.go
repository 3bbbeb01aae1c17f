// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// What belongs to another driver and what doesn't exist look alike: each call that names one has the same result, code,
// Windows' number and text, and takes as long on a node whose calls take their time. Of published paths, it may be seen that something is there.
func TestAnothersIsLikeNothing(t *testing.T) {
	var different []string
	const onlyFound = " when that has only found it"
	all := attempts()
	for _, a := range all {
		if strings.HasPrefix(a.name, "ConnectTarget ") {
			a.name += onlyFound
			all = append(all, a)
		}
	}
	for _, a := range all {
		if a.pods || strings.Contains(a.name, "the directory of a pod") {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			w := newSlowTenants(t, winsim.RealisticDelays())
			for _, d := range w.own {
				w.begin(d)
			}
			d, other := w.own[blue], w.own[red]
			if strings.HasSuffix(a.name, onlyFound) {
				w.must(other.ISCSI.DisconnectTarget(t.Context(), other.portal, other.iqn))
			}
			nobody := &tenant{name: "green.csi.example.com", vendor: "GREEN", number: 4711, raw: 4712, serial: "green-1",
				page83: strings.ReplaceAll(other.page83, "a", "b"), volume: `\\?\Volume{00000000-0000-0000-0000-000000000002}\`,
				staging: strings.ReplaceAll(other.staging, red, "green.csi.example.com"), target: strings.ReplaceAll(other.target, `\red\`, `\green\`),
				share: `\\green\data`, shareStaging: strings.ReplaceAll(other.shareStaging, red, "green.csi.example.com"),
				portal: csiproxy.ISCSIPortal{Address: "10.0.0.9", Port: 3260}, iqn: "iqn.2026-01.com.example:vol-9", service: "green"}
			outcome := func(named *tenant) string {
				begun := time.Now()
				seen, err := a.call(t.Context(), d, named)
				code, _ := csiproxy.WindowsErrorOf(err)
				color, _, _ := strings.Cut(named.name, ".")
				return strings.NewReplacer("disk "+named.number.String(), "disk N", "disk "+named.raw.String(), "disk N", named.name, "NAME",
					named.serial, "SERIAL", named.page83, "PAGE83", string(named.volume), "VOLUME", named.share, "SHARE",
					strings.ToUpper(named.share), "SHARE", named.portal.Address, "PORTAL", string(named.iqn), "IQN",
					"the number "+named.number.String(), "the number N", "the number "+named.raw.String(), "the number N", "service "+named.service, "service NAME", `\pods\`+color, `\pods\POD`, quote.Text(named.vendor), "VENDOR",
				).Replace(fmt.Sprint(seen, err, csiproxy.KindOf(err), code, time.Since(begun)))
			}
			if got, want := outcome(other), outcome(nobody); got != want {
				different = append(different, fmt.Sprintf("%s: of another driver's:\n%s\nof nobody's:\n%s", a.name, got, want))
			}
		})
	}
	for _, text := range different {
		t.Error(text)
	}
}
