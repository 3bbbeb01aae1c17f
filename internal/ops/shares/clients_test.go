// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// democratic-csi tells an error that it can pass over by the published daemon's text.
//
// Source: https://github.com/democratic-csi/democratic-csi/blob/master/src/driver/index.js
// and https://github.com/democratic-csi/democratic-csi/blob/master/src/utils/csi_proxy_client.js
func TestTextsThatClientsLookFor(t *testing.T) {
	sys, m := newNode(t)
	n, err := nodeops.New(sys, nodeops.Options{})
	must(t, err)
	f := n.Filesystem
	_, relative := f.PathExists(t.Context(), `staging\path`)
	for _, test := range []struct {
		what string
		err  error
		kind error
		text string
	}{
		{
			"RemoveSmbGlobalMapping of what isn't mapped", m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`),
			csiproxy.ErrNotFound, "No MSFT_SmbGlobalMapping objects found",
		},
		{"Rmdir of what isn't there", f.Rmdir(t.Context(), kubelet+`\none`, false), csiproxy.ErrNotFound, "The system cannot find the file specified"},
		{"PathExists of a relative path", relative, csiproxy.ErrInvalidArgument, "not an absolute Windows path"},
	} {
		want(t, test.err, test.kind)
		if test.err != nil && !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: the error %q has no %q", test.what, test.err, test.text)
		}
	}
}

// Trident names the share that it unmaps with one backslash.
//
// Source: https://github.com/NetApp/trident/blob/master/utils/filesystem/filesystem_windows.go
func TestUnmapWithOneBackslash(t *testing.T) {
	sys, m := newMapped(t)
	must(t, m.RemoveSMBGlobalMapping(t.Context(), `\server\data`))
	simtest.Want(t, "mapped", mapped(t, sys), "")
	for _, path := range []string{`\server`, `server\data`, `\\\server\data`, `\?\UNC\server`, `\.\pipe\x`} {
		want(t, m.RemoveSMBGlobalMapping(t.Context(), path), csiproxy.ErrInvalidArgument)
	}
	want(t, m.NewSMBGlobalMapping(t.Context(), `\server\data`, "", alice), csiproxy.ErrInvalidArgument)
}
