// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// Every call reaches the system and the observer, under the name that the
// simulated node counts it by.
func TestEveryCallIsReported(t *testing.T) {
	sim, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	observed := make(map[string]int)
	sys := New(sim, Options{Observe: func(call string, _ time.Duration, _ error) { observed[call]++ }})
	ctx := t.Context()

	const volume = `\\?\Volume{00000000-0000-0000-0000-000000000000}\`
	sys.DeviceInterfaces(ctx, win.InterfaceClassDisk)
	sys.ReenumerateDevice(ctx, "")
	if _, stop, err := sys.NotifyArrivals(ctx, win.InterfaceClassDisk); err == nil {
		stop()
	}
	sys.FindVolumes(ctx)
	sys.VolumeInformation(ctx, volume)
	sys.DiskFreeSpace(ctx, `C:\`)
	sys.VolumeNameForMountPoint(ctx, `C:\`)
	sys.SetVolumeMountPoint(ctx, `C:\x\`, volume)
	sys.DeleteVolumeMountPoint(ctx, `C:\x\`)
	sys.FormatVolume(ctx, volume, win.FormatOptions{FileSystem: "NTFS"})
	sys.FileAttributes(ctx, `C:\Windows`)
	sys.SMBGlobalMappings(ctx)
	sys.CreateSMBGlobalMapping(ctx, `\\server\share`, win.SMBMappingOptions{})
	sys.RemoveSMBGlobalMapping(ctx, `\\server\share`)
	portal := win.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	sys.AddISCSISendTargetPortal(ctx, portal)
	sys.RemoveISCSISendTargetPortal(ctx, portal)
	sys.RefreshISCSISendTargetPortal(ctx, portal)
	sys.ISCSISendTargetPortals(ctx)
	sys.ISCSITargets(ctx)
	sys.ISCSIDiscoveryMechanisms(ctx, "iqn.2026-01.com.example:a")
	sys.LoginISCSITarget(ctx, win.ISCSILogin{})
	sys.LogoutISCSITarget(ctx, win.ISCSISessionID{})
	sys.ISCSISessions(ctx)
	sys.ISCSISessionDevices(ctx, win.ISCSISessionID{})
	sys.ISCSIPersistentLogins(ctx)
	sys.RemoveISCSIPersistentLogin(ctx, win.ISCSIPersistentLogin{})
	sys.SetISCSIInitiatorCHAPSecret(ctx, secret.Text{})
	sys.QueryService(ctx, "MSiSCSI")
	sys.StartService(ctx, "MSiSCSI")
	sys.StopService(ctx, "MSiSCSI")
	sys.ActiveDependentServices(ctx, "MSiSCSI")
	sys.FirmwareTable(ctx)
	sys.RegistryStrings(ctx, win.RegistrySetup, win.RegistrySystemPartition)
	sys.RegistryNumber(ctx, win.RegistryPartitionManager, win.RegistrySANPolicy)
	sys.SystemWindowsDirectory(ctx)
	device, err := sys.OpenDevice(ctx, `\\.\PhysicalDrive0`, win.GenericRead|win.GenericWrite)
	if err != nil {
		t.Fatal(err)
	}
	device.Control(ctx, win.IoctlStorageGetDeviceNumber, nil, make([]byte, 12))
	device.ReadAt(ctx, make([]byte, 512), 0)
	device.Flush(ctx)
	device.Close()
	directory, err := sys.OpenFile(ctx, `C:\`, win.OpenOptions{
		Access: win.FileListDirectory, Disposition: win.FileOpen, Options: win.FileDirectoryFile | win.FileOpenForBackup,
	})
	if err != nil {
		t.Fatal(err)
	}
	directory.ReadDir(ctx, true)
	child, err := directory.OpenAt(ctx, "new", win.OpenOptions{Access: win.Delete, Disposition: win.FileCreate, Options: win.FileDirectoryFile})
	if err != nil {
		t.Fatal(err)
	}
	child.Info(ctx)
	child.Volume(ctx)
	child.Control(ctx, win.FsctlGetReparsePoint, nil, make([]byte, 100))
	child.Delete(ctx)
	child.Close()
	directory.Close()

	if diff := cmp.Diff(sim.Calls(), observed); diff != "" {
		t.Errorf("-the node's count +observed:\n%s", diff)
	}
}

func TestNoCallWithAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sys := New(nil, Options{Observe: func(call string, _ time.Duration, _ error) { t.Errorf("%s was made", call) }})
	if _, err := sys.FindVolumes(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := sys.ReenumerateDevice(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEveryCallIsLoggedForDebugging(t *testing.T) {
	sim, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	for level, want := range map[slog.Level][]string{
		slog.LevelInfo: nil,
		slog.LevelDebug: {
			`level=DEBUG msg="Windows call" call=GetFileAttributesW object=C:\Windows duration=X`,
			`level=DEBUG msg="Windows call" call=GetFileAttributesW object=C:\nothing duration=X err="file not found (Windows error 2)"`,
		},
	} {
		var log bytes.Buffer
		sys := New(sim, Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))})
		sys.FileAttributes(t.Context(), `C:\Windows`)
		sys.FileAttributes(t.Context(), `C:\nothing`)
		var got []string
		for line := range strings.Lines(log.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ") // the time
			got = append(got, regexp.MustCompile(`duration=\S+`).ReplaceAllString(line, "duration=X"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the lines at level %v (-want +got):\n%s", level, diff)
		}
	}
}
