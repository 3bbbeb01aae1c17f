// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// calls are all methods of the system, with arguments of which none is there.
func calls(s win.System, dir string) map[string]func(ctx context.Context) error {
	portal := win.ISCSIPortal{Address: "192.0.2.1", Port: 3260}
	none := dir + `\missing\`
	return map[string]func(ctx context.Context) error{
		"Devices.DeviceInterfaces": func(ctx context.Context) error {
			_, err := s.DeviceInterfaces(ctx, win.InterfaceClassDisk)
			return err
		},
		"Devices.OpenDevice": func(ctx context.Context) error {
			_, err := s.OpenDevice(ctx, noVolume, 0)
			return err
		},
		"Devices.ReenumerateDevice": func(ctx context.Context) error { return s.ReenumerateDevice(ctx, "") },
		"Notices.NotifyArrivals": func(ctx context.Context) error {
			_, _, err := s.NotifyArrivals(ctx, win.InterfaceClassDisk)
			return err
		},
		"Volumes.FindVolumes": func(ctx context.Context) error { _, err := s.FindVolumes(ctx); return err },
		"Volumes.VolumeNameForMountPoint": func(ctx context.Context) error {
			_, err := s.VolumeNameForMountPoint(ctx, `C:\`)
			return err
		},
		"Volumes.SetVolumeMountPoint": func(ctx context.Context) error {
			return s.SetVolumeMountPoint(ctx, none, noVolume)
		},
		"Volumes.DeleteVolumeMountPoint": func(ctx context.Context) error { return s.DeleteVolumeMountPoint(ctx, none) },
		"Volumes.VolumeInformation": func(ctx context.Context) error {
			_, err := s.VolumeInformation(ctx, `C:\`)
			return err
		},
		"Volumes.DiskFreeSpace": func(ctx context.Context) error {
			_, err := s.DiskFreeSpace(ctx, `C:\`)
			return err
		},
		"Volumes.VolumePathNames": func(ctx context.Context) error {
			_, err := s.VolumePathNames(ctx, noVolume)
			return err
		},
		"Volumes.RepairVolume": func(ctx context.Context) error {
			_, err := s.RepairVolume(ctx, noVolume, win.RepairScan)
			return err
		},
		"Devices.OfflineReasons":     func(ctx context.Context) error { _, err := s.OfflineReasons(ctx); return err },
		"Processes.ProcessImage":     func(ctx context.Context) error { _, err := s.ProcessImage(ctx, 4); return err },
		"SMBMappings.SMBConnections": func(ctx context.Context) error { _, err := s.SMBConnections(ctx); return err },
		"Volumes.FormatVolume": func(ctx context.Context) error {
			return s.FormatVolume(ctx, noVolume, win.FormatOptions{})
		},
		"Files.OpenFile": func(ctx context.Context) error {
			_, err := s.OpenFile(ctx, none, open(0))
			return err
		},
		"Files.FileAttributes": func(ctx context.Context) error {
			_, err := s.FileAttributes(ctx, none)
			return err
		},
		"SMBMappings.SMBGlobalMappings": func(ctx context.Context) error { _, err := s.SMBGlobalMappings(ctx); return err },
		"SMBMappings.CreateSMBGlobalMapping": func(ctx context.Context) error {
			return s.CreateSMBGlobalMapping(ctx, `\\localhost\csi-proxy-none`, win.SMBMappingOptions{Username: "user", Password: secret.New("password")})
		},
		"SMBMappings.RemoveSMBGlobalMapping": func(ctx context.Context) error {
			return s.RemoveSMBGlobalMapping(ctx, `\\localhost\csi-proxy-none`)
		},
		"ISCSIInitiator.AddISCSISendTargetPortal": func(ctx context.Context) error {
			return s.AddISCSISendTargetPortal(ctx, portal)
		},
		"ISCSIInitiator.RemoveISCSISendTargetPortal": func(ctx context.Context) error {
			return s.RemoveISCSISendTargetPortal(ctx, portal)
		},
		"ISCSIInitiator.RefreshISCSISendTargetPortal": func(ctx context.Context) error {
			return s.RefreshISCSISendTargetPortal(ctx, portal)
		},
		"ISCSIInitiator.ISCSISendTargetPortals": func(ctx context.Context) error {
			_, err := s.ISCSISendTargetPortals(ctx)
			return err
		},
		"ISCSIInitiator.ISCSITargets": func(ctx context.Context) error {
			_, err := s.ISCSITargets(ctx)
			return err
		},
		"ISCSIInitiator.ISCSIDiscoveryMechanisms": func(ctx context.Context) error {
			_, err := s.ISCSIDiscoveryMechanisms(ctx, "iqn")
			return err
		},
		"ISCSIInitiator.LoginISCSITarget": func(ctx context.Context) error {
			_, err := s.LoginISCSITarget(ctx, win.ISCSILogin{Target: "iqn", Portal: portal})
			return err
		},
		"ISCSIInitiator.LogoutISCSITarget": func(ctx context.Context) error {
			return s.LogoutISCSITarget(ctx, win.ISCSISessionID{})
		},
		"ISCSIInitiator.ISCSISessions": func(ctx context.Context) error { _, err := s.ISCSISessions(ctx); return err },
		"ISCSIInitiator.ISCSISessionDevices": func(ctx context.Context) error {
			_, err := s.ISCSISessionDevices(ctx, win.ISCSISessionID{})
			return err
		},
		"ISCSIInitiator.ISCSIPersistentLogins": func(ctx context.Context) error {
			_, err := s.ISCSIPersistentLogins(ctx)
			return err
		},
		"ISCSIInitiator.RemoveISCSIPersistentLogin": func(ctx context.Context) error {
			return s.RemoveISCSIPersistentLogin(ctx, win.ISCSIPersistentLogin{})
		},
		"ISCSIInitiator.SetISCSIInitiatorCHAPSecret": func(ctx context.Context) error {
			return s.SetISCSIInitiatorCHAPSecret(ctx, secret.New("twelve bytes"))
		},
		"Services.QueryService": func(ctx context.Context) error {
			_, err := s.QueryService(ctx, "csi-proxy-none")
			return err
		},
		"Services.StartService": func(ctx context.Context) error { return s.StartService(ctx, "csi-proxy-none") },
		"Services.StopService":  func(ctx context.Context) error { return s.StopService(ctx, "csi-proxy-none") },
		"Services.ActiveDependentServices": func(ctx context.Context) error {
			_, err := s.ActiveDependentServices(ctx, "csi-proxy-none")
			return err
		},
		"Firmware.FirmwareTable": func(ctx context.Context) error { _, err := s.FirmwareTable(ctx); return err },
		"Registry.RegistryStrings": func(ctx context.Context) error {
			_, err := s.RegistryStrings(ctx, "none", "none")
			return err
		},
		"Registry.RegistryNumber": func(ctx context.Context) error {
			_, err := s.RegistryNumber(ctx, "none", "none")
			return err
		},
		"Registry.SystemWindowsDirectory": func(ctx context.Context) error {
			_, err := s.SystemWindowsDirectory(ctx)
			return err
		},
	}
}

// fileCalls are all methods of an open directory but Close.
func fileCalls(h win.File) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"File.OpenAt": func(ctx context.Context) error {
			_, err := h.OpenAt(ctx, "new", creating(win.FileCreate, 0))
			return err
		},
		"File.Info":      func(ctx context.Context) error { _, err := h.Info(ctx); return err },
		"File.FinalPath": func(ctx context.Context) error { _, err := h.FinalPath(ctx); return err },
		"File.Volume":    func(ctx context.Context) error { _, err := h.Volume(ctx); return err },
		"File.ReadDir":   func(ctx context.Context) error { _, err := h.ReadDir(ctx, true); return err },
		"File.Control": func(ctx context.Context) error {
			_, err := h.Control(ctx, win.FsctlGetReparsePoint, nil, make([]byte, 64))
			return err
		},
		"File.CreationDenied": func(ctx context.Context) error { _, err := h.CreationDenied(ctx); return err },
		"File.DenyCreation":   func(ctx context.Context) error { return h.DenyCreation(ctx, false) },

		"File.ProcessIDs": func(ctx context.Context) error { _, err := h.ProcessIDs(ctx); return err },
		"File.Rename":     func(ctx context.Context) error { return h.Rename(ctx, h, "new") },
		"File.Delete":     func(ctx context.Context) error { return h.Delete(ctx) },
	}
}

// deviceCalls are all methods of an open disk or volume but Close.
func deviceCalls(d win.Device) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Device.Control": func(ctx context.Context) error {
			_, err := d.Control(ctx, win.IoctlStorageGetDeviceNumber, nil, make([]byte, 12))
			return err
		},
		"Device.ReadAt":     func(ctx context.Context) error { _, err := d.ReadAt(ctx, make([]byte, 512), 0); return err },
		"Device.Flush":      func(ctx context.Context) error { return d.Flush(ctx) },
		"Device.ProcessIDs": func(ctx context.Context) error { _, err := d.ProcessIDs(ctx); return err },
	}
}

var generalRows = []row{
	{
		method: "System", name: "ended context", needs: []need{aDirectory},
		promise: "A call whose ctx has ended isn't begun.",
		test: func(t *testing.T, f *Fixture) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			check := func(calls map[string]func(context.Context) error) {
				for name, call := range calls {
					if err := call(ctx); !errors.Is(err, context.Canceled) {
						t.Errorf("%s: error %v", name, err)
					}
				}
			}
			check(calls(f.System, f.Directory))
			h := f.openFile(t, f.Directory, open(win.FileListDirectory|win.Delete))
			check(fileCalls(h))
			check(deviceCalls(f.device(t, deviceOf(f.systemVolume(t)), win.AccessNone)))
			if left := list(t, h, true); len(left) > 0 {
				t.Errorf("a call was begun, and left %v", left)
			}
		},
	},
	{
		method: "System", name: "context that ends while a call reads", needs: []need{aBlocked},
		promise: "When ctx ends during a call that only reads, Windows is asked to give the call up, and it returns " +
			"ctx's error if Windows does so.",
		test: func(t *testing.T, f *Fixture) {
			call := f.Blocked(t)
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan error)
			go func() { returned <- call(ctx) }()
			cancel() // before or after the call has begun
			if err := <-returned; !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		},
	},
	{
		method: "System", name: "context that ends while a call changes something", needs: []need{aDirectory},
		promise: "A call that changes something always runs to its end, since nobody would know how far it got otherwise.",
		test: func(t *testing.T, f *Fixture) {
			dir := f.dir(t)
			for i := range 50 {
				name := fmt.Sprint("new", i)
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				h, err := dir.OpenAt(ctx, name, creating(win.FileCreate, win.FileDirectoryFile))
				there := at(t, dir, name, open(win.FileReadAttributes)) == nil
				if (err == nil) != there || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("error %v, and the directory is there: %t", err, there)
				}
				if err == nil {
					closing(t, h)
				}
				cancel()
			}
		},
	},
	{
		method: "System", name: "concurrent calls", needs: []need{aDirectory},
		promise: "They may be called concurrently.",
		test: func(t *testing.T, f *Fixture) {
			dir := f.dir(t)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					name := fmt.Sprint("dir", i)
					for range 10 {
						if err := at(t, dir, name, creating(win.FileCreate, win.FileDirectoryFile)); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if _, err := f.System.FileAttributes(t.Context(), f.Directory+`\`+name); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if err := deletion(t, dir, name); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
				})
			}
			wg.Wait()
			if left := list(t, dir, true); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		},
	},
	{
		method: "File.Close", name: "closed handle", needs: []need{aDirectory},
		promise: "Every call on a handle that was closed gives [ErrorInvalidHandle], a second Close too.",
		test: func(t *testing.T, f *Fixture) {
			h := f.openFile(t, f.Directory, open(win.FileListDirectory|win.Delete))
			closing(t, h)
			for name, call := range fileCalls(h) {
				wantErrno(t, name, call(t.Context()), win.ErrorInvalidHandle)
			}
			wantErrno(t, "Close", h.Close(), win.ErrorInvalidHandle)
		},
	},
	{
		method: "Device.Close", name: "closed handle",
		promise: "Every call on a handle that was closed gives [ErrorInvalidHandle], a second Close too.",
		test: func(t *testing.T, f *Fixture) {
			d := f.device(t, deviceOf(f.systemVolume(t)), win.AccessNone)
			closing(t, d)
			for name, call := range deviceCalls(d) {
				wantErrno(t, name, call(t.Context()), win.ErrorInvalidHandle)
			}
			wantErrno(t, "Close", d.Close(), win.ErrorInvalidHandle)
		},
	},
}
