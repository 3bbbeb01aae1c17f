// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package systemdisk_test

import (
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/systemdisk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

func TestPlaces(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	name, number := simtest.Volume(t, sim)
	simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), `P:\`, name))
	disks := systemdisk.New(sim)
	ask := func() (ofDisk, ofVolume string) {
		t.Helper()
		ofDisk, err := disks.Disk(t.Context(), number)
		simtest.Must(t, err)
		ofVolume, err = disks.Protected(t.Context(), strings.ToUpper(name))
		simtest.Must(t, err)
		if err := disks.Check(t.Context(),
			number); (csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition) != (ofDisk != "") {
			t.Errorf("Check says %v where Disk says %q", err, ofDisk)
		}
		return ofDisk, ofVolume
	}
	if ofDisk, ofVolume := ask(); ofDisk+ofVolume != "" {
		t.Errorf("a data disk is protected: %q, %q", ofDisk, ofVolume)
	}
	for _, c := range []struct{ key, value, path, want string }{
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\P:\pagefile.sys`, `page file P:\pagefile.sys`},
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\Device\HarddiskVolume3\pagefile.sys`, `page file \Device\HarddiskVolume3\pagefile.sys`},
		{win.RegistryCrashControl, win.RegistryDedicatedDumpFile, `p:\dump.sys`, `crash dump file p:\dump.sys`},
		{win.RegistrySetup, win.RegistrySystemPartition, `\Device\HarddiskVolume3`, `system partition \Device\HarddiskVolume3`},
	} {
		simtest.Must(t, sim.SetRegistryStrings(c.key, c.value, c.path))
		if ofDisk, ofVolume := ask(); !strings.Contains(ofDisk, c.want) || !strings.Contains(ofVolume, c.want) {
			t.Errorf("%s is %s: %q, %q", c.value, c.path, ofDisk, ofVolume)
		}
		simtest.Must(t, sim.SetRegistryStrings(c.key, c.value))
		if ofDisk, ofVolume := ask(); ofDisk+ofVolume != "" {
			t.Errorf("without %s: %q, %q", c.value, ofDisk, ofVolume)
		}
	}
	if reason, err := disks.Disk(t.Context(), 0); err != nil || !strings.Contains(reason, `C:\Windows`) {
		t.Errorf("disk 0: %q, %v", reason, err)
	}
}

// The EFI system partition alone makes a disk one that Windows runs from.
func TestSystemPartition(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	h, err := sim.OpenDevice(t.Context(), `\\?\GLOBALROOT\Device\HarddiskVolume1`, win.AccessNone)
	simtest.Must(t, err)
	defer h.Close()
	out := make([]byte, 64)
	n, err := h.Control(t.Context(), win.IoctlVolumeGetVolumeDiskExtents, nil, out)
	simtest.Must(t, err)
	extents, err := win.DecodeDiskExtents(out[:n])
	if err != nil || len(extents) != 1 || extents[0].DiskNumber != 0 || extents[0].StartingOffset != 1<<20 {
		t.Errorf("it lies at %+v, %v", extents, err)
	}
}

// What can't be found out is an error, whatever was known before.
func TestNotToBeFoundOut(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	disks := systemdisk.New(sim)
	_, err := disks.All(t.Context())
	simtest.Must(t, err)
	for _, c := range []struct{ key, value, path string }{
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\X:\pagefile.sys`},
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `pagefile.sys`},
		{win.RegistrySetup, win.RegistrySystemPartition, `\Device\HarddiskVolume77`},
	} {
		simtest.Must(t, sim.SetRegistryStrings(c.key, c.value, c.path))
		_, err := disks.Disk(t.Context(), 7)
		simtest.WantError(t, err, csiproxy.ErrUnavailable)
		simtest.Must(t, sim.SetRegistryStrings(c.key, c.value))
	}
	// Four calls are made for each question, and none of them to a disk.
	counted := simtest.Counted(sim, win.CallOpen, win.CallRegistryStrings, win.CallSystemWindowsDirectory)
	simtest.Must(t, disks.Check(t.Context(), 7))
	simtest.Must(t, disks.Check(t.Context(), 7))
	if got := counted(); got[0] > 1 || got[1] != 6 || got[2] != 2 {
		t.Errorf("the calls are %v", got)
	}
}

func BenchmarkCheck(b *testing.B) {
	sim := simtest.Open(b, winsim.Delays{})
	disks := systemdisk.New(sim)
	for b.Loop() {
		simtest.Must(b, disks.Check(b.Context(), 7))
	}
}
