// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// machineRows are about what the node has but disks and files.
var machineRows = []row{
	{
		method: "SMBMappings.SMBGlobalMappings", name: "are listed",
		promise: "SMBGlobalMappings returns all mappings.",
		test: func(t *testing.T, f *Fixture) {
			mappings, err := f.System.SMBGlobalMappings(t.Context())
			must(t, err)
			const none = `\\localhost\csi-proxy-no-such-share`
			if slices.ContainsFunc(mappings, func(m win.SMBMapping) bool { return strings.EqualFold(m.RemotePath, none) }) {
				t.Errorf("%s is mapped", none)
			}
		},
	},
	{
		method: "Firmware.FirmwareTable", name: "header",
		promise: "a RawSMBIOSData header with the SMBIOS table",
		test: func(t *testing.T, f *Fixture) {
			table, err := f.System.FirmwareTable(t.Context())
			must(t, err)
			const header = 8 // bytes of RawSMBIOSData before the table
			if len(table) < header || int(binary.LittleEndian.Uint32(table[4:])) != len(table)-header {
				t.Errorf("%d bytes with the header % x", len(table), table[:min(header, len(table))])
			}
		},
	},
	{
		method: "Registry.SystemWindowsDirectory", name: "is there",
		promise: "the directory that Windows runs from",
		test: func(t *testing.T, f *Fixture) {
			dir, err := f.System.SystemWindowsDirectory(t.Context())
			must(t, err)
			if a, err := f.System.FileAttributes(t.Context(), dir); err != nil || a&win.AttributeDirectory == 0 {
				t.Errorf("%s: attributes %#x, %v", dir, a, err)
			}
		},
	},
}
