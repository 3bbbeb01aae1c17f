// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The simulated node keeps the contract.
func TestContract(t *testing.T) { seamtest.Run(t, seamtest.Config{New: newFixture}) }

// The simulated node is what is guessed about Windows.
func TestGuessContract(t *testing.T) { seamtest.RunGuesses(t, seamtest.Config{New: newFixture}) }

func newFixture(t *testing.T) *seamtest.Fixture {
	t.Helper()
	sys := simtest.Open(t, winsim.Delays{})
	const directory = simtest.Kubelet + `\contract`
	simtest.Must(t, sys.MkdirAll(directory))
	simtest.Must(t, sys.SetRegistryNumber(win.RegistryPartitionManager, win.RegistrySANPolicy,
		uint32(win.SANOfflineShared)))
	sys.Settle()
	return &seamtest.Fixture{
		System: sys, Directory: directory, Settle: sys.Settle,
		SetReadOnly: func(t *testing.T, path string, readOnly bool) {
			t.Helper()
			var a win.FileAttributes
			if readOnly {
				a = win.AttributeReadOnly
			}
			if _, err := sys.FileAttributes(t.Context(), path); err == nil || readOnly { // unless it is gone
				simtest.Must(t, sys.SetFileAttributes(path, a))
			}
		},
		WriteFile: func(t *testing.T, path, contents string) {
			t.Helper()
			simtest.Must(t, sys.WriteFile(path, []byte(contents)))
		},
		NewDisk: func(t *testing.T) seamtest.Disk {
			t.Helper()
			n := simtest.Attach(t, sys, winsim.DiskSpec{SizeBytes: 1 << 30})
			sys.Settle()
			return seamtest.Disk{
				Number: n, Detach: func() { simtest.Must(t, sys.DetachDisk(n)) },
				Grow: func(_ testing.TB, size uint64) (csiproxy.DiskNumber, error) { return n, sys.GrowDisk(n, int64(size)) },
			}
		},
		Blocked: func(t *testing.T) (call func(context.Context) error, begun <-chan struct{}) {
			t.Helper()
			waits := make(chan struct{})
			sys.OnCall(func(c winsim.Call) {
				if c.Name == win.CallRead {
					close(waits)
				}
			})
			simtest.Must(t, sys.Delay(winsim.Match{Call: win.CallRead}, 24*time.Hour))
			d, err := sys.OpenDevice(t.Context(), `\\.\PhysicalDrive0`, win.GenericRead)
			simtest.Must(t, err)
			t.Cleanup(func() { _ = d.Close() })
			return func(ctx context.Context) error {
				_, err := d.ReadAt(ctx, make([]byte, 512), 0)
				return err
			}, waits
		},
		NewServices: func(t *testing.T) seamtest.Services {
			t.Helper()
			s := seamtest.Services{Plain: "plain", Disabled: "disabled", Chain: []string{"top", "middle", "base"}}
			for _, spec := range []services.Spec{
				{Name: s.Plain, StartType: win.ServiceDemandStart},
				{Name: s.Disabled, StartType: win.ServiceDisabled},
				{Name: s.Chain[2], StartType: win.ServiceDemandStart},
				{Name: s.Chain[1], StartType: win.ServiceDemandStart, DependsOn: s.Chain[2:]},
				{Name: s.Chain[0], StartType: win.ServiceDemandStart, DependsOn: s.Chain[1:]},
			} {
				simtest.Must(t, sys.Services().Add(spec))
			}
			return s
		},
		StringsValue: [2]string{win.RegistryMemoryManagement, win.RegistryExistingPageFiles},
		NumberValue:  [2]string{win.RegistryPartitionManager, win.RegistrySANPolicy},
	}
}

// The node does what others have found out about Windows. Where they disagree, a switch turns its
// answer into the other one.
func TestOracles(t *testing.T) {
	for _, set := range []winsim.Settings{{}, {
		DeletePendingDenied: true, FileAsDirectory: winerr.ErrorInvalidName, DeleteOnCloseDenied: true,
		GrowTooFar: winerr.ErrorGenFailure, NoServer: winerr.ErrorBadNetName,
	}} {
		simtest.OnWindows(t, set, map[string]func(*testing.T){"": func(t *testing.T) {
			seamtest.RunOracles(t, seamtest.Config{New: newFixture, Which: answerOf(set)})
		}})
	}
}

// answerOf says which error a node gives where a fact allows two: a switch decides.
func answerOf(set winsim.Settings) func(*testing.T, []winerr.Errno) winerr.Errno {
	second := map[[2]winerr.Errno]bool{
		{winerr.ErrorDeletePending, winerr.ErrorAccessDenied}:  set.DeletePendingDenied,
		{winerr.ErrorDirectory, winerr.ErrorInvalidName}:       set.FileAsDirectory != 0,
		{winerr.ErrorWriteProtect, winerr.ErrorAccessDenied}:   set.DeleteOnCloseDenied,
		{winerr.ErrorInvalidParameter, winerr.ErrorGenFailure}: set.GrowTooFar != 0,
		{winerr.ErrorBadNetPath, winerr.ErrorBadNetName}:       set.NoServer != 0,
	}
	return func(t *testing.T, allowed []winerr.Errno) winerr.Errno {
		t.Helper()
		on, ok := second[[2]winerr.Errno(allowed)]
		switch {
		case !ok || len(allowed) > 2:
			t.Fatalf("no switch decides between %v", allowed)
		case on:
			return allowed[1]
		}
		return allowed[0]
	}
}

// What the contract promises holds however the switches of the node's Windows are set, so that
// nobody has to find out on Windows that a row is red for what nobody has promised. So do the
// facts: a switch is for what nobody knows.
func TestContractWithEachSetting(t *testing.T) {
	config := seamtest.Config{New: newFixture, Around: synctest.Test, Skip: map[string]string{}}
	simtest.EachSwitch(t, func(t *testing.T, settings winsim.Settings) {
		clear(config.Skip)
		switch {
		case settings.NoAutomount:
			t.Skip("csi-proxy-wintest refuses such a Windows")
		case settings.BindFilter, settings.BindFilterInvalid:
			t.Skip("the filter is in containers only")
		case settings.RefusedAtFirst != 0:
			t.Skip("a caller has to wait")
		case settings.DriveIsLink:
			config.Skip["Files.AttributesWithoutLinks/with a drive letter"] = "the switch says otherwise"
			config.Skip["Files.AttributesWithoutLinks/of a link itself"] = "the switch says otherwise"
		case settings.DeniedMountPoints:
			config.Skip["File.DenyCreation/and a link in its place"] = "the switch says otherwise"
		}
		seamtest.Run(t, config)
		facts := seamtest.Config{New: newFixture, Around: synctest.Test, Which: answerOf(settings)}
		if settings.WriteProtectedOpen {
			facts.Skip = map[string]string{"fsa-flush/requirement 883": "the volume can't be opened for a flush"}
		}
		seamtest.RunOracles(t, facts)
	})
}
