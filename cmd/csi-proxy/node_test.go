// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/sim/simcontrol"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Only -require-privacy=false maps a share of a server that can't encrypt.
func TestRequirePrivacy(t *testing.T) {
	for arg, succeeds := range map[string]bool{"-require-privacy": false, "-require-privacy=false": true} {
		t.Run(arg, func(t *testing.T) {
			o, err := parseFlags([]string{"-node=simulated", arg}, io.Discard)
			must(t, err)
			defer resetKlog(o.logging)
			ctx := t.Context()
			n, err := openNode(ctx, o, slog.New(slog.DiscardHandler))
			must(t, err)
			defer n.close()
			sim := n.control[simv1.EndpointName].(*simcontrol.Service)
			must(t, sim.AddSmbShare(&simv1.SmbShare{Server: "plain", Name: "data"}))
			must(t, sim.SetSmbUser(&simv1.SmbUser{Server: "plain", User: "user", Password: "password"}))
			must(t, sim.SetSmbServer(&simv1.SmbServer{Name: "plain", NoEncryption: true}))
			err = n.operations.SMB.NewSMBGlobalMapping(ctx, `\\plain\data`, "",
				csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")})
			if (err == nil) != succeeds {
				t.Errorf("the mapping gives %v", err)
			}
		})
	}
}

// staysOpen is a simulated node that the test closes.
type staysOpen struct{ *winsim.System }

func (staysOpen) Close() error { return nil }

// What -protected-volume names and isn't there is told at the start; what Windows doesn't tell, too.
func TestMissingProtectedVolumes(t *testing.T) {
	const id = `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`
	fails := func(sim *winsim.System) {
		must(t, sim.Fail(winsim.Match{Call: win.CallVolumeNameForMountPoint, Object: `D:`}, winerr.ErrorIODevice))
	}
	for name, test := range map[string]struct {
		prepare func(*winsim.System)
		volumes []string
		missing map[string]float64 // by volume, of the metric
		logged  []string
	}{
		"none":    {nil, nil, map[string]float64{}, nil},
		"there":   {nil, []string{"D:"}, map[string]float64{"D:": 0}, nil},
		"unknown": {fails, []string{"D:"}, map[string]float64{}, []string{"Windows can't be asked"}},
		"missing": {nil, []string{"X:", id, "D:"}, map[string]float64{"X:": 1, id: 1, "D:": 0}, []string{
			"volume=" + id + ` lookedFor="a volume with this id`,
			`volume=X: lookedFor="a volume with this drive letter"`}},
	} {
		t.Run(name, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			_, _, letter := simtest.Lettered(t, sim, winsim.DiskSpec{})
			simtest.Want(t, "drive", letter, `D:\`)
			if test.prepare != nil {
				test.prepare(sim)
			}
			defer func(before func(options) (system, map[string]server.Service, error)) { openSimulated = before }(openSimulated)
			openSimulated = func(options) (system, map[string]server.Service, error) { return staysOpen{sim}, nil, nil }
			o := testOptions(t)
			o.ProtectedVolumes = test.volumes
			var log strings.Builder
			n, err := openNode(t.Context(), o, slog.New(slog.NewTextHandler(&log, nil)))
			must(t, err)
			registry := prometheus.NewRegistry()
			registry.MustRegister(n.collectors[0])
			families, err := registry.Gather()
			must(t, errors.Join(err, n.close()))
			missing := map[string]float64{}
			for _, family := range families {
				if family.GetName() == admin.MissingVolume {
					for _, m := range family.Metric {
						missing[m.Label[0].GetValue()] = m.GetGauge().GetValue()
					}
				}
			}
			if !maps.Equal(missing, test.missing) {
				t.Errorf("missing are %v, want %v", missing, test.missing)
			}
			if got := strings.Count(log.String(), "-protected-volume"); got != len(test.logged) {
				t.Errorf("the log has %d lines of them, want %d: %s", got, len(test.logged), log.String())
			}
			for _, want := range test.logged {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log has no %q: %s", want, log.String())
				}
			}
		})
	}
}
