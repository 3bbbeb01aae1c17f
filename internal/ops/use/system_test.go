// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use_test

import (
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/use"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestSystemDisks(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	name, number := simtest.Volume(t, sim)
	simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), `P:\`, name))
	simtest.Mount(t, sim, `C:\folder`, name)
	for _, file := range []string{`P:\pagefile.sys`, `P:\in\dump.sys`} {
		simtest.Must(t, sim.MkdirAll(`P:\in`))
		simtest.Must(t, sim.WriteFile(file, nil))
	}
	owner := use.Default(sim)
	ask := func() (ofDisk, ofVolume string) {
		t.Helper()
		all, err := owner.SystemDisks(t.Context())
		simtest.Must(t, err)
		ofVolume, err = use.SystemVolumes(sim)(t.Context(), strings.ToUpper(name))
		simtest.Must(t, err)
		d, err := owner.Disk(t.Context(), number)
		if err == nil {
			d.Release()
		}
		if (csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition) != (all[number] != "") {
			t.Errorf("Disk says %v where SystemDisks says %q", err, all[number])
		}
		return all[number], ofVolume
	}
	if ofDisk, ofVolume := ask(); ofDisk+ofVolume != "" {
		t.Errorf("a data disk is protected: %q, %q", ofDisk, ofVolume)
	}
	for _, c := range []struct{ key, value, path, want string }{
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\P:\pagefile.sys`, `page file P:\pagefile.sys`},
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\Device\HarddiskVolume3\pagefile.sys`, `page file \Device\HarddiskVolume3\pagefile.sys`},
		{win.RegistryCrashControl, win.RegistryDedicatedDumpFile, `p:\in\dump.sys`, `crash dump file p:\in\dump.sys`},
		{win.RegistryCrashControl, win.RegistryDedicatedDumpFile, `C:\folder\in\dump.sys`, `file C:\folder\in\dump.sys`},
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
	if all, err := owner.SystemDisks(t.Context()); err != nil || !strings.Contains(all[0], `C:\Windows`) {
		t.Errorf("disk 0: %q, %v", all[0], err)
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
	owner := use.Default(sim)
	_, err := owner.SystemDisks(t.Context())
	simtest.Must(t, err)
	for _, c := range []struct{ key, value, path string }{
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\UNC\server\pagefile.sys`},
		{win.RegistrySetup, win.RegistrySystemPartition, `X:\`},
		{win.RegistrySetup, win.RegistrySystemPartition, `\Device\HarddiskVolume77`},
	} {
		simtest.Must(t, sim.SetRegistryStrings(c.key, c.value, c.path))
		_, err := owner.SystemDisks(t.Context())
		simtest.WantError(t, err, csiproxy.ErrUnavailable)
		simtest.Must(t, sim.SetRegistryStrings(c.key, c.value))
	}
}

// A page or dump file that isn't there, such as after a machine has lost its temporary disk, protects
// nothing. Any other error of asking for it refuses.
func TestFileThatIsNotThere(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	name, number := simtest.Volume(t, sim)
	simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), `P:\`, name))
	owner := use.Default(sim)
	for _, key := range [][2]string{{win.RegistryCrashControl, win.RegistryDedicatedDumpFile},
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles}} {
		for _, path := range []string{`Z:\dd.sys`, `dd.sys`, `P:\dd.sys`, `P:\none\dd.sys`, `\Device\HarddiskVolume77\dd.sys`} {
			simtest.Must(t, sim.SetRegistryStrings(key[0], key[1], path))
			if all, err := owner.SystemDisks(t.Context()); all[number] != "" || err != nil {
				t.Errorf("%s: %q, %v", path, all[number], err)
			}
		}
		for _, call := range []string{win.CallFileAttributes, win.CallVolumeNameForMountPoint} {
			simtest.Must(t, sim.WriteFile(`P:\dd.sys`, nil))
			simtest.Must(t, sim.SetRegistryStrings(key[0], key[1], `P:\dd.sys`))
			simtest.Must(t, sim.Fail(winsim.Match{Call: call, Object: `P:\`}, win.ErrorSharingViolation))
			all, err := owner.SystemDisks(t.Context())
			if protected := all[number] != ""; !protected && csiproxy.KindOf(err) != csiproxy.ErrUnavailable {
				t.Errorf("with error 32 of %s: %q, %v", call, all[number], err)
			}
			sim.ResetRules()
		}
		simtest.Must(t, sim.Remove(`P:\dd.sys`))
		simtest.Must(t, sim.SetRegistryStrings(key[0], key[1]))
	}
}

func BenchmarkSystemDisks(b *testing.B) {
	sim := simtest.Open(b, winsim.Delays{})
	owner := use.Default(sim)
	for b.Loop() {
		_, err := owner.SystemDisks(b.Context())
		simtest.Must(b, err)
	}
}
