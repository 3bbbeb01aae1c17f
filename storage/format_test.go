// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/storage"
)

func TestParseAllocationUnit(t *testing.T) {
	for text, want := range map[string]uint32{
		"512": 512, "65536": 64 << 10, "64K": 64 << 10, "64k": 64 << 10, "64Ki": 64 << 10, "64KB": 64 << 10, "64KiB": 64 << 10,
		"2M": 2 << 20,
	} {
		if got, err := storage.ParseAllocationUnit(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "K", "0", "64", "65K", "4M", "64G", "64 K", "64KK", "-512", "4194304K", "+512", "0x200"} {
		if got, err := storage.ParseAllocationUnit(text); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}
