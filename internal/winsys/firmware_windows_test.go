// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"testing"
)

func TestFirmwareTable(t *testing.T) {
	s := newSystem(t)
	table, err := s.FirmwareTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const header = 8 // bytes of RawSMBIOSData before the table
	if len(table) < header || int(le.Uint32(table[4:])) != len(table)-header {
		t.Errorf("%d bytes with the header % x", len(table), table[:min(header, len(table))])
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.FirmwareTable(ctx); err != context.Canceled {
		t.Errorf("with an ended context: error %v", err)
	}
}
