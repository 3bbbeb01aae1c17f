// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/text/place"
)

func TestParse(t *testing.T) {
	const azure = "Integrated : Bus 0 : Device 63667 : Function "
	for text, want := range map[string]struct {
		place       place.Place
		local, data bool
	}{
		// Texts of real disks: azuredisk-csi-driver #2661 and #3038, community.windows#622, ansible#51595.
		azure + "30746 : Adapter 0 : Port 0 : Target 0 : LUN 1": {place.Place{
			Adapter: "0", Bus: "0", Device: "63667", Function: "30746", Target: "0", LUN: "1"}, true, false},
		azure + "30747 : Adapter 1 : Port 0 : Target 0 : LUN 1": {place.Place{
			Adapter: "1", Bus: "0", Device: "63667", Function: "30747", Target: "0", LUN: "1"}, false, true},
		"PCI Slot 1 : Adapter 0 : Channel 1 : Device 0": {place.Place{Adapter: "0", Channel: "1", Device: "0"}, false, false},
		"PCI Slot 3 : Adapter 0 : Port 0 : Target 1 : LUN 0": {place.Place{Adapter: "0", Target: "1", LUN: "0"},
			false, false},
		"Integrated : Bus 12606208 : Device 0 : Function 0 : Adapter 0": {place.Place{
			Adapter: "0", Bus: "12606208", Device: "0", Function: "0"}, false, false},
		"SCSI0": {},
		"":      {},
		`C:\ProgramData\containerd\root\snapshots\136\sandbox.vhdx`: {},
		// None of real disks: without a port, the last controller of data disks, the one after it, and what is cut short.
		azure + "30746 : Adapter 0 : Target 0 : LUN 1": {place.Place{
			Adapter: "0", Bus: "0", Device: "63667", Function: "30746", Target: "0", LUN: "1"}, true, false},
		azure + "30749 : Adapter 4 : Port 0 : Target 0 : LUN 9": {place.Place{
			Adapter: "4", Bus: "0", Device: "63667", Function: "30749", Target: "0", LUN: "9"}, false, true},
		azure + "30750 : Adapter 4 : Port 0 : Target 0 : LUN 9": {place.Place{
			Adapter: "4", Bus: "0", Device: "63667", Function: "30750", Target: "0", LUN: "9"}, false, false},
		"Integrated : Device 63667 : Function 129203 : Adapter 1": {place.Place{
			Adapter: "1", Device: "63667", Function: "129203"}, false, false},
		"Adapter 1 : Target 0 : LUN 1":                            {place.Place{Adapter: "1", Target: "0"}, false, false},
		`D:\a : Adapter 1 : Port 0 : Target 0 : LUN 1`:            {},
		"Integrated : Bus 0 : Port 0 : Target 0 : LUN 1 : Slot 1": {},
	} {
		p := place.Parse(text)
		if p != want.place || p.IsAzureLocal() != want.local || p.IsAzureData() != want.data {
			t.Errorf("%q: %+v, local %v, data %v, want %+v", text, p, p.IsAzureLocal(), p.IsAzureData(), want)
		}
	}
}
