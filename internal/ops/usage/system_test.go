// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestSystemDisks(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	name, number := simtest.Volume(t, sim)
	simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), `P:\`, name))
	simtest.Mount(t, sim, `C:\folder`, name)
	simtest.Must(t, sim.MkdirAll(`C:\Windows`))
	simtest.Mount(t, sim, `C:\Windows\folder`, name)
	for _, file := range []string{`P:\pagefile.sys`, `P:\in\dump.sys`} {
		simtest.Must(t, sim.MkdirAll(`P:\in`))
		simtest.Must(t, sim.WriteFile(file, nil))
	}
	finder := usage.DefaultFinder(sim)
	ask := func() (ofDisk, ofVolume string) {
		t.Helper()
		all, err := finder.SystemDisks(t.Context())
		simtest.Must(t, err)
		ofVolume, _, err = usage.SystemVolumes(sim, sim)(t.Context(), strings.ToUpper(name))
		simtest.Must(t, err)
		err = finder.CheckSystemDisk(t.Context(), number)
		if (csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition) != (all[number] != "") {
			t.Errorf("CheckSystemDisk says %v where SystemDisks says %q", err, all[number])
		}
		return all[number], ofVolume
	}
	if ofDisk, ofVolume := ask(); ofDisk+ofVolume != "" {
		t.Errorf("a data disk is protected: %q, %q", ofDisk, ofVolume)
	}
	for _, c := range []struct{ key, value, path, want string }{
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\P:\pagefile.sys`, `page file P:\pagefile.sys`},
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\Device\HarddiskVolume3\pagefile.sys`, `page file \Device\HarddiskVolume3\pagefile.sys`},
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\??\` + name[len(`\\?\`):] + `pagefile.sys`, `page file ` + name + `pagefile.sys`},
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles, `\SystemRoot\folder\pagefile.sys`, `page file C:\Windows\folder\pagefile.sys`},
		{win.RegistryCrashControl, win.RegistryDedicatedDumpFile, `\\?\p:\in\dump.sys`, `crash dump file p:\in\dump.sys`},
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
	if all, err := finder.SystemDisks(t.Context()); err != nil || !strings.Contains(all[0], `C:\Windows`) {
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
	finder := usage.DefaultFinder(sim)
	_, err := finder.SystemDisks(t.Context())
	simtest.Must(t, err)
	for _, c := range []struct{ key, value, path string }{
		{win.RegistrySetup, win.RegistrySystemPartition, `X:\`},
		{win.RegistrySetup, win.RegistrySystemPartition, `\??\UNC\server`},
		{win.RegistrySetup, win.RegistrySystemPartition, `\Device\HarddiskVolume77`},
	} {
		simtest.Must(t, sim.SetRegistryStrings(c.key, c.value, c.path))
		_, err := finder.SystemDisks(t.Context())
		simtest.WantError(t, err, csiproxy.ErrUnavailable)
		simtest.Must(t, sim.SetRegistryStrings(c.key, c.value))
	}
}

// A page or dump file that isn't on a disk, such as after a machine has lost its temporary disk or its
// drive is a DVD's now, protects nothing and is logged once. Any other error of asking for it refuses.
// The disk of Windows' directory is protected all the same.
func TestFileThatIsNotThere(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	name, number := simtest.Volume(t, sim)
	simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), `P:\`, name))
	paths, err := pathpolicy.New(pathpolicy.Options{KubeletPath: pathpolicy.DefaultKubeletPath})
	simtest.Must(t, err)
	for _, key := range [][2]string{{win.RegistryCrashControl, win.RegistryDedicatedDumpFile},
		{win.RegistryMemoryManagement, win.RegistryExistingPageFiles}} {
		simtest.Must(t, sim.SetRegistryStrings(win.RegistryMemoryManagement, win.RegistryExistingPageFiles))
		set := func(path string) { simtest.Must(t, sim.SetRegistryStrings(key[0], key[1], path)) }
		logged := func(path string, times int) {
			t.Helper()
			var log strings.Builder
			finder := usage.NewFinder(usage.NewSharedFinder(sim, paths, nil, slog.New(slog.NewTextHandler(&log, nil))))
			for range 2 {
				all, err := finder.SystemDisks(t.Context())
				if all[number] != "" || !strings.Contains(all[0], `C:\Windows`) || err != nil {
					t.Errorf("%s: %q, %v", path, all, err)
				}
			}
			if strings.Count(log.String(), "no disk is protected for it") != times {
				t.Errorf("%s: the log has %q", path, log.String())
			}
		}
		for _, path := range []string{`Z:\dd.sys`, `dd.sys`, `P:\dd.sys`, `P:\none\dd.sys`, `\Device\HarddiskVolume77\dd.sys`,
			`\??\Volume{00000000-0000-0000-0000-000000000001}\pagefile.sys`, `\\?\Z:\dd.sys`,
			`\??\UNC\server\pagefile.sys`, `\\server\share\dd.sys`, `\dd.sys`, `Volume{1\dd.sys`} {
			set(path)
			logged(path, 1)
		}
		set(`\SystemRoot\temppf.sys`)
		logged("a missing file on the volume of Windows' directory, which isn't asked for", 0)
		simtest.Must(t, sim.WriteFile(`P:\dd.sys`, nil))
		set(`P:\dd.sys`)
		for call, numbers := range map[string][]winerr.Errno{
			win.CallFileAttributes:                       {winerr.ErrorInvalidFunction, winerr.ErrorNotReady},
			win.CallVolumeNameForMountPoint:              {winerr.ErrorInvalidFunction, winerr.ErrorNotReady},
			win.IoctlVolumeGetVolumeDiskExtents.String(): {winerr.ErrorInvalidFunction, winerr.ErrorNotReady},
		} {
			object := `P:\`
			if call == win.IoctlVolumeGetVolumeDiskExtents.String() {
				object = win.VolumePath(name)
			}
			for _, errno := range numbers {
				simtest.Must(t, sim.Fail(winsim.Match{Call: call, Object: object}, errno))
				logged(fmt.Sprint(call, " with ", errno), 1)
				sim.ResetRules()
			}
			simtest.Must(t, sim.Fail(winsim.Match{Call: call, Object: object}, winerr.ErrorSharingViolation))
			all, err := usage.DefaultFinder(sim).SystemDisks(t.Context())
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
	finder := usage.DefaultFinder(sim)
	for b.Loop() {
		_, err := finder.SystemDisks(b.Context())
		simtest.Must(b, err)
	}
}
