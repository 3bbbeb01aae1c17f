// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"errors"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestParseAllocationUnit(t *testing.T) {
	for text, want := range map[string]uint32{
		"512": 512, "65536": 64 << 10, "64K": 64 << 10, "64k": 64 << 10, "64Ki": 64 << 10, "64KB": 64 << 10, "64KiB": 64 << 10,
		"2M": 2 << 20,
	} {
		if got, err := csiproxy.ParseAllocationUnit(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "K", "0", "64", "65K", "4M", "64G", "64 K", "64KK", "-512", "4194304K", "+512", "0x200"} {
		if got, err := csiproxy.ParseAllocationUnit(text); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestParseWriter(t *testing.T) {
	for text, want := range map[string]string{
		"Users": "S-1-5-32-545", "authenticated users": "S-1-5-11", "AuthenticatedUsers": "S-1-5-11", "EVERYONE": "S-1-1-0",
		"ContainerUser": "S-1-5-93-2-2", "s-1-5-93-2-2": "S-1-5-93-2-2", "S-1-5-21-1-2-3-1000": "S-1-5-21-1-2-3-1000",
	} {
		if got, err := csiproxy.ParseWriter(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "User", "Benutzer", "BUILTIN\\Users", "S-1-5", "S-1-5-x", "*S-1-5-11"} {
		_, err := csiproxy.ParseWriter(text)
		if !errors.Is(err, csiproxy.ErrInvalidArgument) || !strings.Contains(err.Error(), "AuthenticatedUsers, ContainerUser, Everyone, Users") {
			t.Errorf("%q: %v", text, err)
		}
		if err := (csiproxy.FormatOptions{Writers: []string{"Users", text}}).Validate(); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q as an option: %v", text, err)
		}
	}
	if err := (csiproxy.FormatOptions{Writers: make([]string, 17)}).Validate(); err == nil || !strings.Contains(err.Error(), "16") {
		t.Errorf("17 writers: %v", err)
	}
}
