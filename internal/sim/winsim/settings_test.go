// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Each switch turns an answer into another one, those that decide between facts in TestOracles.
func TestSettings(t *testing.T) {
	offline := win.SetDiskAttributes{Mask: win.DiskOffline, Attributes: win.DiskOffline}
	online := win.SetDiskAttributes{Mask: win.DiskOffline}
	seen := func(t *testing.T, s *System, n csiproxy.DiskNumber) int64 {
		t.Helper()
		g, err := win.DecodeDiskGeometryEx(mustControl(t, s, drivePath(n), win.IoctlDiskGetDriveGeometryEx, nil))
		must(t, err)
		return g.DiskSize
	}
	style := func(t *testing.T, s *System, n csiproxy.DiskNumber) win.PartitionStyle {
		return layoutOf(t, s, n).Style
	}
	for name, test := range map[string]struct {
		set   Settings
		check func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool)
	}{
		"OfflineLayout=1": {Settings{OfflineLayout: settings.OfflineBlank},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
				must(t, s.SetDiskAttributes(n, offline))
				if got := style(t, s, n); (got != win.StyleGPT) != on {
					t.Errorf("while it is offline, the style is %v", got)
				}
				must(t, s.SetDiskAttributes(n, online))
				if got := style(t, s, n); got != win.StyleGPT {
					t.Errorf("when it is online again, the style is %v", got)
				}
			}},
		"OfflineLayout=2": {Settings{OfflineLayout: settings.OfflineNotReady},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
				must(t, s.SetDiskAttributes(n, offline))
				_, err := control(t, s, drivePath(n), win.IoctlDiskGetDriveLayoutEx, nil)
				if errors.Is(err, winerr.ErrorNotReady) != on {
					t.Errorf("the layout of an offline disk: %v", err)
				}
			}},
		"BlankDisk=1": {Settings{BlankDisk: settings.BlankRAW},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				if l := layoutOf(t, s, attach(t, s, DiskSpec{})); (l.Style == win.StyleRAW) != on || len(l.Partitions) != 0 {
					t.Errorf("a blank disk has the layout %+v", l)
				}
			}},
		"BlankDisk=2": {Settings{BlankDisk: settings.BlankRefused},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
				_, err := control(t, s, drivePath(attach(t, s, DiskSpec{})), win.IoctlDiskGetDriveLayoutEx, nil)
				if errors.Is(err, winerr.ErrorInvalidFunction) != on {
					t.Errorf("the layout of a blank disk: %v", err)
				}
				if got := style(t, s, n); got != win.StyleGPT {
					t.Errorf("the style of another disk is %v", got)
				}
			}},
		"OfflineAfterArrival": {Settings{OfflineAfterArrival: true},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				n := attach(t, s, DiskSpec{Offline: true})
				for i, want := range []bool{on, false} { // once
					mustControl(t, s, drivePath(n), win.IoctlDiskSetDiskAttributes, online.Encode())
					synctest.Wait()
					is := false
					for _, d := range s.Disks() {
						is = is || d.Number == n && d.Attributes&win.DiskOffline != 0
					}
					if is != want {
						t.Errorf("brought online %d times: offline %t", i+1, is)
					}
				}
			}},
		"GrownAtOnce": {Settings{GrownAtOnce: true}, func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
			must(t, s.GrowDisk(n, 20*gib))
			if got := seen(t, s, n); (got == 20*gib) != on {
				t.Errorf("it shows %d bytes", got)
			}
		}},
		"GrownUnseen": {Settings{GrownUnseen: true}, func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
			must(t, s.GrowDisk(n, 20*gib))
			must(t, s.ReenumerateDevice(t.Context(), ""))
			if got := seen(t, s, n); (got == 20*gib) == on {
				t.Errorf("after a re-enumeration it shows %d bytes", got)
			}
			mustControl(t, s, drivePath(n), win.IoctlDiskUpdateDriveSize, nil)
			if got := seen(t, s, n); got != 20*gib {
				t.Errorf("in the end it shows %d bytes", got)
			}
		}},
		"FreshNumbers": {Settings{FreshNumbers: true}, func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
			must(t, s.DetachDisk(n))
			if got := attach(t, s, DiskSpec{}); (got == n) == on {
				t.Errorf("after disk %d has left, the next one is disk %d", n, got)
			}
		}},
		"AttributesOfInstance": {Settings{AttributesOfInstance: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
				attributes := func(n csiproxy.DiskNumber) (a win.DiskAttributes) {
					for _, d := range s.Disks() {
						if d.Number == n {
							a = d.Attributes
						}
					}
					return a
				}
				both := win.DiskOffline | win.DiskReadOnly
				must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: both, Attributes: both, Persist: true}))
				before := s.Disks()[1].Spec
				must(t, s.DetachDisk(n))
				again := attach(t, s, DiskSpec{SCSI: before.SCSI})
				if got := attributes(again); (got == both) != on || (got == 0) == on {
					t.Errorf("another disk in its place has the attributes %d", got)
				}
				other := attach(t, s, DiskSpec{ReadOnly: true})
				if got := attributes(other); got != win.DiskReadOnly {
					t.Errorf("a disk in another place has the attributes %d", got)
				}
				must(t, s.DetachDisk(again))
				if on {
					must(t, s.Reboot())
				}
				another := attach(t, s, DiskSpec{SCSI: before.SCSI, ProductID: "Other"})
				if got := attributes(another); got != 0 {
					t.Errorf("another product in its place has the attributes %d", got)
				}
				moved := attach(t, s, DiskSpec{Serial: before.Serial})
				if got := attributes(moved); (got == 0) != on {
					t.Errorf("the disk in another place has the attributes %d", got)
				}
			}},
		"GoneDisk": {Settings{GoneDisk: winerr.ErrorNoSuchDevice},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				want := map[bool]winerr.Errno{true: winerr.ErrorNoSuchDevice, false: winerr.ErrorDeviceNotConnected}[on]
				for _, path := range []string{drivePath(n), strings.TrimSuffix(volume, `\`)} {
					d := openDevice(t, s, path, readWrite)
					defer closeHandle(t, d)
					defer func() { wantErr(t, path, d.Flush(t.Context()), want) }()
				}
				must(t, s.DetachDisk(n))
			}},
		"FreshHandleToExtend": {Settings{FreshHandleToExtend: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				v := openDevice(t, s, device1(volume), readWrite)
				defer closeHandle(t, v)
				mustControl(t, s, drivePath(n), win.IoctlDiskGrowPartition,
					win.GrowPartition{PartitionNumber: 1, BytesToGrow: 2 * gib}.Encode())
				_, err := v.Control(t.Context(), win.FsctlExtendVolume, win.EncodeInt64(5*gib/512), nil)
				wantSwitched(t, "through the old handle", err, on, winerr.ErrorInvalidParameter)
				mustControl(t, s, device1(volume), win.FsctlExtendVolume, win.EncodeInt64(6*gib/512))
			}},
		"NoPartitionDevices": {Settings{NoPartitionDevices: true},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				_, err := s.VolumeNameForMountPoint(t.Context(), `\\?\GLOBALROOT\Device\Harddisk1\Partition1\`)
				wantSwitched(t, "asked by its partition", err, on, winerr.ErrorPathNotFound)
			}},
		"PartitionsNamedByDevice": {Settings{PartitionsNamedByDevice: true},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, volume string, on bool) {
				name, err := s.VolumeNameForMountPoint(t.Context(), `\\?\GLOBALROOT\Device\Harddisk1\Partition1\`)
				if err != nil || (name == volume) == on {
					t.Errorf("asked by its partition: %q, %v", name, err)
				}
			}},
		"NoNotices": {Settings{NoNotices: true}, func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
			arrived, stop, err := s.NotifyArrivals(t.Context(), win.InterfaceClassVolume)
			must(t, err)
			defer stop()
			must(t, s.DetachDisk(n))
			if got := len(arrived) == 0; got != on {
				t.Errorf("no notice: %t", got)
			}
		}},
		"FormatInUse": {Settings{FormatInUse: winerr.ErrorSemTimeout},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, volume string, on bool) {
				v := openDevice(t, s, device1(volume), readWrite)
				defer closeHandle(t, v)
				err := s.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: "NTFS"})
				wantErr(t, "format", err, map[bool]winerr.Errno{true: winerr.ErrorSemTimeout, false: winerr.ErrorGenFailure}[on])
			}},
		"GoneMountPoint": {Settings{GoneMountPoint: winerr.ErrorPathNotFound},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				must(t, s.MkdirAll(stage))
				must(t, s.SetVolumeMountPoint(t.Context(), stage+`\`, volume))
				must(t, s.DetachDisk(n))
				wantSwitched(t, "unmount", s.DeleteVolumeMountPoint(t.Context(), stage+`\`), on, winerr.ErrorPathNotFound)
				_, err := s.ReadLink(stage)
				wantErr(t, "read what is there", err, map[bool]winerr.Errno{false: winerr.ErrorNotAReparsePoint}[on])
			}},
		"NamedBeforeOnline": {Settings{NamedBeforeOnline: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				must(t, s.SetDiskAttributes(n, offline))
				must(t, s.SetDiskAttributes(n, online))
				synctest.Wait()
				for _, late := range []bool{on, false} {
					_, err := s.VolumeInformation(t.Context(), volume)
					wantSwitched(t, "information", err, late, winerr.ErrorNotReady)
					time.Sleep(time.Second)
				}
			}},
		"LateStorageManagement": {Settings{LateStorageManagement: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				must(t, s.SetDiskAttributes(n, offline))
				must(t, s.SetDiskAttributes(n, online))
				synctest.Wait()
				for _, late := range []bool{on, false} {
					repairErr := errorOf(s.RepairVolume(t.Context(), volume, win.RepairScan))
					wantSwitched(t, "repair", repairErr, late, winerr.ErrorRetry)
					formatErr := s.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: "NTFS"})
					wantSwitched(t, "format", formatErr, late, winerr.ErrorRetry)
					time.Sleep(3 * time.Second)
				}
			}},
		"RefusedAtFirst": {Settings{RefusedAtFirst: winerr.ErrorWriteProtect},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				n, volume := newVolume(t, s, false)
				must(t, s.SetDiskAttributes(n, offline))
				must(t, s.SetDiskAttributes(n, online))
				synctest.Wait() // its volume comes anew
				n = attach(t, s, DiskSpec{})
				must(t, s.MkdirAll(stage))
				for _, refused := range slices.Compact([]bool{on, false}) {
					_, err := control(t, s, drivePath(n), win.IoctlDiskSetDiskAttributes, online.Encode())
					wantSwitched(t, "go online", err, refused, winerr.ErrorWriteProtect)
					wantSwitched(t, "format", s.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: "NTFS"}), refused, winerr.ErrorWriteProtect)
					wantSwitched(t, "mount", s.SetVolumeMountPoint(t.Context(), stage+`\`, volume), refused, winerr.ErrorWriteProtect)
					time.Sleep(2 * settings.RefusedFor)
				}
			}},
		"ClonesStayOffline": {Settings{ClonesStayOffline: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, _ string, on bool) {
				for _, spec := range []DiskSpec{{Serial: "writable", Offline: true}, {Serial: "read-only", ReadOnly: true}} {
					copied, err := s.CloneDisk(n, spec)
					must(t, err)
					must(t, s.SetDiskAttributes(copied, online))
					s.Settle()
					stays := on || spec.ReadOnly
					if same := layoutOf(t, s, copied).DiskID == layoutOf(t, s, n).DiskID; same != stays ||
						(reasons(t, s)[copied] == win.OfflineCollision) != stays {
						t.Errorf("the %s clone has its old ids: %t; offline are %v", spec.Serial, same, reasons(t, s))
					}
				}
			}},
		"BindFilterInvalid": {Settings{BindFilterInvalid: true},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				must(t, s.MkdirAll(kubelet+`\in`))
				dir, err := s.OpenFile(t.Context(), kubelet, existing(win.FileTraverse, 0))
				must(t, err)
				defer closeHandle(t, dir)
				invalid := 0
				for range 10 {
					h, err := dir.OpenAt(t.Context(), "in",
						existing(win.FileReadAttributes, 0))
					if err == winerr.ErrorInvalidParameter {
						invalid++
					} else {
						must(t, err)
						closeHandle(t, h)
					}
				}
				if want := map[bool]int{true: 2}[on]; invalid != want {
					t.Errorf("%d of 10 opens give 87; want %d", invalid, want)
				}
			}},
		"ReadOnlyMounts": {Settings{ReadOnlyMounts: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				change := func(attributes, mask win.DiskAttributes) {
					must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Attributes: attributes, Mask: mask}))
				}
				change(win.DiskReadOnly, win.DiskReadOnly)
				change(0, win.DiskReadOnly)
				wantSwitched(t, "write", s.WriteFile(volume+"file", nil), on, winerr.ErrorWriteProtect)
				must(t, errorOf(control(t, s, device1(volume), win.IoctlDiskIsWritable, nil)))
				change(win.DiskOffline, win.DiskOffline)
				change(0, win.DiskOffline)
				s.Settle()
				must(t, s.WriteFile(volume+"file", nil))
			}},
		"OfflineRefusesLocked": {Settings{OfflineRefusesLocked: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				d := openDevice(t, s, device1(volume), readWrite)
				for _, code := range []win.IoctlCode{win.FsctlLockVolume, win.FsctlDismountVolume} {
					must(t, errorOf(d.Control(t.Context(), code, nil, nil)))
				}
				setOffline := func() error {
					return errorOf(control(t, s, drivePath(n), win.IoctlDiskSetDiskAttributes, offline.Encode()))
				}
				wantSwitched(t, "offline under a lock", setOffline(), on, winerr.ErrorAccessDenied)
				closeHandle(t, d)
				must(t, setOffline())
			}},
		"WriteProtectedOpen": {Settings{WriteProtectedOpen: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly}))
				d, err := s.OpenDevice(t.Context(), device1(volume), readWrite)
				wantSwitched(t, "open to write", err, on, winerr.ErrorWriteProtect)
				if err == nil {
					wantErr(t, "flush", d.Flush(t.Context()), winerr.ErrorWriteProtect)
					closeHandle(t, d)
				}
				d = openDevice(t, s, device1(volume), win.GenericRead)
				defer closeHandle(t, d)
				for _, code := range []win.IoctlCode{win.FsctlLockVolume, win.FsctlDismountVolume} {
					must(t, errorOf(d.Control(t.Context(), code, nil, nil)))
				}
			}},
		"LockedMountPoint": {Settings{LockedMountPoint: winerr.ErrorNotReady},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, volume string, on bool) {
				must(t, s.MkdirAll(stage))
				must(t, s.SetVolumeMountPoint(t.Context(), stage+`\`, volume))
				d := openDevice(t, s, device1(volume), readWrite)
				_, err := d.Control(t.Context(), win.FsctlLockVolume, nil, nil)
				must(t, err)
				wantSwitched(t, "unmount the locked volume", s.DeleteVolumeMountPoint(t.Context(), stage+`\`), on,
					winerr.ErrorNotReady)
				closeHandle(t, d)
				if on {
					must(t, s.DeleteVolumeMountPoint(t.Context(), stage+`\`))
				}
			}},
		"GoneMountPointHalf": {Settings{GoneMountPointHalf: true},
			func(t *testing.T, s *System, n csiproxy.DiskNumber, volume string, on bool) {
				must(t, s.MkdirAll(stage))
				must(t, s.SetVolumeMountPoint(t.Context(), stage+`\`, volume))
				must(t, s.DetachDisk(n))
				wantSwitched(t, "unmount", s.DeleteVolumeMountPoint(t.Context(), stage+`\`), on, winerr.ErrorFileNotFound)
				wantErr(t, "read what is there", errorOf(s.ReadLink(stage)), winerr.ErrorNotAReparsePoint)
			}},
		"DriveIsLink": {Settings{DriveIsLink: true},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				must(t, s.MkdirAll(kubelet))
				_, err := s.AttributesWithoutLinks(t.Context(), kubelet)
				if isRefused := err == winerr.ErrorReparsePointEncountered; isRefused != on || !on && err != nil {
					t.Errorf("the attributes of a path with a drive letter: %v", err)
				}
			}},
		"DeniedMountPoints": {Settings{DeniedMountPoints: true},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, volume string, on bool) {
				must(t, s.MkdirAll(stage))
				must(t, denyCreation(t.Context(), s, stage, true))
				wantSwitched(t, "mount", s.SetVolumeMountPoint(t.Context(), stage+`\`, volume), on, winerr.ErrorAccessDenied)
				must(t, denyCreation(t.Context(), s, stage, false))
				if on {
					must(t, s.SetVolumeMountPoint(t.Context(), stage+`\`, volume))
				}
				must(t, denyCreation(t.Context(), s, stage, true))
				control := func(code win.IoctlCode, in []byte) error {
					f, err := s.OpenFile(t.Context(), stage, existing(win.FileWriteAttributes, paths.OpenLink))
					must(t, err)
					defer closeHandle(t, f)
					_, err = f.Control(t.Context(), code, in, nil)
					return err
				}
				point := win.NewMountPoint(volume).Encode()
				wantSwitched(t, "set the reparse point", control(win.FsctlSetReparsePoint, point), on, winerr.ErrorAccessDenied)
				wantSwitched(t, "unmount", s.DeleteVolumeMountPoint(t.Context(), stage+`\`), on, winerr.ErrorAccessDenied)
				if on {
					header := append(point[:4:4], 0, 0, 0, 0)
					wantErr(t, "delete the reparse point", control(win.FsctlDeleteReparsePoint, header), winerr.ErrorAccessDenied)
					must(t, denyCreation(t.Context(), s, stage, false))
					must(t, s.DeleteVolumeMountPoint(t.Context(), stage+`\`))
				}
			}},
		"UnencryptedServer": {Settings{UnencryptedServer: winerr.ErrorNotSupported},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				must(t, s.SMB().AddShare(smbserver.Share{Server: "plain", Name: "data"}))
				must(t, s.SMB().SetUser("plain", "user", csiproxy.NewSecret("password")))
				must(t, s.SMB().SetState("plain", smbserver.State{NoEncryption: true}))
				err := s.CreateSMBGlobalMapping(t.Context(), `\\plain\data`, win.SMBMappingOptions{
					Username: "user", Password: csiproxy.NewSecret("password"), RequirePrivacy: true,
				})
				wantErr(t, "map", err, map[bool]winerr.Errno{true: winerr.ErrorNotSupported, false: winerr.ErrorAccessDenied}[on])
			}},
		"OverlapRefused": {Settings{OverlapRefused: true},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				newMapping(t, s)
				refused := winerr.ErrorSessionCredentialConflict
				wantSwitched(t, "map a directory", s.CreateSMBGlobalMapping(t.Context(), share+`\dir`, credentials), on, refused)
				must(t, s.RemoveSMBGlobalMapping(t.Context(), share))
				if on {
					must(t, s.CreateSMBGlobalMapping(t.Context(), share+`\dir`, credentials))
				}
				wantSwitched(t, "map the share", s.CreateSMBGlobalMapping(t.Context(), share, credentials), on, refused)
				if on {
					must(t, s.CreateSMBGlobalMapping(t.Context(), share+`\dir2`, credentials))
				}
			}},
		"NoServer": {Settings{NoServer: winerr.ErrorBadNetName},
			func(t *testing.T, s *System, _ csiproxy.DiskNumber, _ string, on bool) {
				newMapping(t, s)
				must(t, s.SMB().SetState("server", smbserver.State{Unreachable: true}))
				want := map[bool]winerr.Errno{true: winerr.ErrorBadNetName, false: winerr.ErrorBadNetPath}[on]
				for _, path := range []string{share, `\\nobody\share`} {
					wantErr(t, path, errorOf(s.FileAttributes(t.Context(), path)), want)
				}
				err := s.CreateSMBGlobalMapping(t.Context(), `\\nobody\share`, win.SMBMappingOptions{Username: "user"})
				wantErr(t, "map", err, winerr.ErrorBadNetPath)
			}},
	} {
		for state, set := range map[bool]Settings{false: {}, true: test.set} {
			t.Run(fmt.Sprintf("%s=%t", name, state), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newNode(t, Delays{})
					n, volume := newVolume(t, s, true)
					must(t, s.SetSettings(set))
					test.check(t, s, n, volume, state)
				})
			})
		}
	}
}

// wantSwitched wants an error if a switch is on, and none if it is off.
func wantSwitched(t *testing.T, what string, err error, on bool, want winerr.Errno) {
	t.Helper()
	if !on {
		want = 0
	}
	wantErr(t, what, err, want)
}
