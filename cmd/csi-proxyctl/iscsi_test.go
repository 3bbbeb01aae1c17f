// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestParsePortal(t *testing.T) {
	for in, want := range map[string]csiproxy.ISCSIPortal{
		"10.0.0.1":          {Address: "10.0.0.1", Port: 3260},
		"10.0.0.1:860":      {Address: "10.0.0.1", Port: 860},
		"storage.example":   {Address: "storage.example", Port: 3260},
		"storage:65535":     {Address: "storage", Port: 65535},
		"fe80::1":           {Address: "fe80::1", Port: 3260},
		"[fe80::1]":         {Address: "fe80::1", Port: 3260},
		"[fe80::1]:860":     {Address: "fe80::1", Port: 860},
		"fe80::1%7":         {Address: "fe80::1%7", Port: 3260},
		"[fe80::1%7]:860":   {Address: "fe80::1%7", Port: 860},
		"":                  {Port: 3260}, // which the daemon refuses
		"not an address at": {Address: "not an address at", Port: 3260},
	} {
		if got, err := parsePortal(in); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"a:", "a:0", "a:65536", "a:-1", "a:iscsi", "a:1:2", "[fe80::1", "[fe80::1]:", "[a]b:1",
		"[[::1]]"} {
		if got, err := parsePortal(in); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q: %v, %v; want an error", in, got, err)
		}
	}
}
