// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log/slog"
	"testing"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/simcontrol"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
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
				smb.Credentials{Username: "user", Password: secret.New("password")})
			if (err == nil) != succeeds {
				t.Errorf("the mapping gives %v", err)
			}
		})
	}
}
