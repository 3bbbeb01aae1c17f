// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const iqn = "iqn.2026-01.com.example:vol1"

var (
	portal1 = win.ISCSIPortal{Address: "10.61.169.28", Port: 3260}
	portal2 = win.ISCSIPortal{Address: "fd00::28", Port: 3261}

	chapSecret   = csiproxy.NewSecret("target secret")
	mutualSecret = csiproxy.NewSecret("mutual secret")
)

// newTarget puts a target with LUNs of 1 GiB on the network of a node.
func newTarget(t *testing.T, s *System, target iscsitarget.Target, luns ...DiskSpec) {
	t.Helper()
	if target.IQN == "" {
		target.IQN = iqn
	}
	if target.Portals == nil {
		target.Portals = []win.ISCSIPortal{portal1, portal2}
	}
	for i := range luns {
		if luns[i].SizeBytes == 0 {
			luns[i].SizeBytes = gib
		}
	}
	must(t, s.ISCSI().AddTarget(target, luns...))
}

// startInitiator starts the service and lets it know portal1.
func startInitiator(t *testing.T, s *System) {
	t.Helper()
	must(t, s.StartService(t.Context(), services.ISCSIInitiator))
	must(t, s.AddISCSISendTargetPortal(t.Context(), portal1))
}

// connect logs in to a target without CHAP and waits for its disks.
func connect(t *testing.T, s *System, target string) win.ISCSISessionID {
	t.Helper()
	id, err := s.LoginISCSITarget(t.Context(), win.ISCSILogin{Target: target, Portal: portal1})
	must(t, err)
	s.Settle()
	return id
}

func devices(t *testing.T, s *System, id win.ISCSISessionID) []csiproxy.DiskNumber {
	t.Helper()
	list, err := s.ISCSISessionDevices(t.Context(), id)
	must(t, err)
	var numbers []csiproxy.DiskNumber
	for _, d := range list {
		numbers = append(numbers, d.Device.DeviceNumber)
	}
	return numbers
}

func wantNumbers(t *testing.T, what string, got []csiproxy.DiskNumber, want ...csiproxy.DiskNumber) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: disk numbers (-want +got):\n%s", what, diff)
	}
}

func TestISCSIServiceNotRunning(t *testing.T) {
	for name, call := range seamtest.Calls[win.ISCSIInitiator](newNode(t, Delays{}), iqn, nil) {
		wantErr(t, name, call(t.Context()), winerr.ISDSCServiceNotRunning)
	}
}

// TestISCSIArrival: the disks of a session come after the login, or after a rescan. Without a delay,
// they may come before anybody can look.
func TestISCSIArrival(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) { lunsArrive(t, Delays{DiskArrival: delay}) })
	}
	s := newNode(t, Delays{})
	newTarget(t, s, iscsitarget.Target{}, DiskSpec{})
	startInitiator(t, s)
	arrived, stop, err := s.NotifyArrivals(t.Context(), win.InterfaceClassDisk)
	must(t, err)
	defer stop()
	id := connect(t, s, iqn)
	<-arrived
	wantNumbers(t, "without a delay", devices(t, s, id), 1)
}

func lunsArrive(t *testing.T, delays Delays) {
	s := newNode(t, delays)
	ctx := t.Context()
	newTarget(t, s, iscsitarget.Target{}, DiskSpec{Serial: "lun0"}, DiskSpec{NeedsRescan: true},
		DiskSpec{MultipathMember: true})
	startInitiator(t, s)
	id, err := s.LoginISCSITarget(ctx, win.ISCSILogin{Target: iqn, Portal: portal1})
	must(t, err)
	if delays.DiskArrival > 0 {
		wantNumbers(t, "at the login", devices(t, s, id), win.NoNumber, win.NoNumber)
	}
	s.Settle()
	wantNumbers(t, "after the arrival", devices(t, s, id), 1, win.NoNumber)
	must(t, s.ReenumerateDevice(ctx, ""))
	s.Settle()
	wantNumbers(t, "after a rescan", devices(t, s, id), 1, 2)

	list, err := s.ISCSISessionDevices(ctx, id)
	must(t, err)
	want := win.ISCSIDevice{
		SCSIAddress: win.SCSIAddress{PortNumber: 255, LUN: 1},
		Device:      win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: 2},
	}
	if diff := cmp.Diff(want, list[1]); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	if d := s.Disks()[1]; d.Spec.BusType != win.BusTypeISCSI || d.Spec.Serial != "lun0" {
		t.Errorf("LUN 0 is the disk %+v", d.Spec)
	}

	must(t, s.ISCSI().AddLUN(iqn, DiskSpec{SizeBytes: gib}))
	if delays.DiskArrival > 0 {
		wantNumbers(t, "before another LUN has arrived", devices(t, s, id), 1, 2, win.NoNumber)
	}
	s.Settle()
	wantNumbers(t, "after another LUN", devices(t, s, id), 1, 2, 3)
}

// TestISCSILogout: a session ends only when nothing of it is in use, and the next
// one has the same disks with their data.
func TestISCSILogout(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	newTarget(t, s, iscsitarget.Target{}, DiskSpec{Offline: true}, DiskSpec{})
	startInitiator(t, s)
	id := connect(t, s, iqn)
	must(t, s.SetDiskAttributes(1, win.SetDiskAttributes{Mask: win.DiskOffline, Persist: true}))
	createGPT(t, s, 1)
	must(t, setLayout(s, t, 1, data(16*mib, 500*mib)))
	s.Settle()
	name := s.VolumesOfDisk(1)[0]
	must(t, s.FormatVolume(ctx, name, win.FormatOptions{FileSystem: "NTFS"}))
	must(t, s.MkdirAll(stage))
	must(t, s.SetVolumeMountPoint(ctx, stage+`\`, name))
	must(t, s.WriteFile(stage+`\file`, []byte("content")))

	file, err := s.Hold(stage+`\file`, existing(win.GenericRead, 0))
	must(t, err)
	for what, handle := range map[string]interface{ Close() error }{
		"volume":      openDevice(t, s, device1(name), win.AccessNone),
		"disk":        openDevice(t, s, drivePath(1), win.AccessNone),
		"second disk": openDevice(t, s, drivePath(2), win.AccessNone),
		"file":        file,
	} {
		wantErr(t, "log out with an open "+what, s.LogoutISCSITarget(ctx, id), winerr.ISDSCDeviceBusyOnSession)
		closeHandle(t, handle)
	}
	must(t, s.LogoutISCSITarget(ctx, id))
	wantErr(t, "log out again", s.LogoutISCSITarget(ctx, id), winerr.ISDSCInvalidSessionID)
	if paths, err := s.DeviceInterfaces(ctx, win.InterfaceClassDisk); err != nil || len(paths) != 1 {
		t.Errorf("disks after the logout: %q, %v", paths, err)
	}
	if _, err := s.ReadFile(name + "file"); err == nil {
		t.Error("the volume is still there")
	}

	again := connect(t, s, strings.ToUpper(iqn)) // names are the same in any case
	if again == id {
		t.Error("two sessions have one id")
	}
	must(t, s.PowerLoss()) // what was written was flushed at the logout
	must(t, s.StartService(ctx, services.ISCSIInitiator))
	connect(t, s, iqn)
	wantText(t, s, stage+`\file`, "content")
}

// TestISCSIRestart: a restart ends sessions, but for those that are persistent.
func TestISCSIRestart(t *testing.T) {
	for name, restart := range map[string]func(*System) error{"reboot": (*System).Reboot,
		"power loss": (*System).PowerLoss} {
		t.Run(name, func(t *testing.T) {
			s := newNode(t, Delays{})
			ctx := t.Context()
			newTarget(t, s, iscsitarget.Target{CHAPUser: "user", CHAPSecret: chapSecret, MutualSecret: mutualSecret}, DiskSpec{})
			newTarget(t, s, iscsitarget.Target{IQN: "iqn.other"}, DiskSpec{})
			startInitiator(t, s)
			must(t, s.SetISCSIInitiatorCHAPSecret(ctx, mutualSecret))
			connect(t, s, "iqn.other")
			must(t, restart(s))
			wantService(t, s, services.ISCSIInitiator, win.ServiceStopped)
			if paths, err := s.DeviceInterfaces(ctx, win.InterfaceClassDisk); err != nil || len(paths) != 1 {
				t.Errorf("disks: %q, %v", paths, err)
			}

			must(t, s.ISCSI().SetPortal(portal1, false))
			must(t, s.StartService(ctx, services.ISCSIInitiator))
			if targets, err := s.ISCSITargets(ctx); err != nil || len(targets) != 0 {
				t.Errorf("targets before a discovery: %q, %v", targets, err)
			}
			must(t, s.ISCSI().SetPortal(portal1, true))
			login := win.ISCSILogin{Target: iqn, Portal: portal1, AuthType: win.ISCSIMutualCHAP, Username: "user",
				Secret: chapSecret}
			must(t, s.ISCSI().SetPersistentLogin(login))
			must(t, s.ISCSI().SetPersistentLogin(login)) // it is one
			refused := login
			refused.Portal, refused.Secret = portal2, mutualSecret
			must(t, s.ISCSI().SetPersistentLogin(refused))
			must(t, restart(s))
			s.Settle()
			wantService(t, s, services.ISCSIInitiator, win.ServiceRunning)
			targets, err := s.ISCSITargets(ctx)
			if err != nil || !cmp.Equal(targets, []string{iqn, "iqn.other"}) {
				t.Errorf("targets that portal1 has told of: %q, %v", targets, err)
			}
			sessions, err := s.ISCSISessions(ctx)
			if err != nil || len(sessions) != 1 || sessions[0].Target != iqn {
				t.Fatalf("sessions %v, %v", sessions, err)
			}
			wantNumbers(t, "after the restart", devices(t, s, sessions[0].ID), 1)

			logins, err := s.ISCSIPersistentLogins(ctx)
			want := win.ISCSIPersistentLogin{Target: iqn, Initiator: `Root\ISCSIPRT\0000_0`, InitiatorPort: 0xFFFFFFFF, Portal: portal1}
			if err != nil || len(logins) != 2 || logins[0] != want {
				t.Fatalf("persistent logins %v, %v", logins, err)
			}
			must(t, s.RemoveISCSIPersistentLogin(ctx, want))
			wantErr(t, "remove it again", s.RemoveISCSIPersistentLogin(ctx, want), winerr.ErrorNotFound)
			must(t, restart(s))
			if sessions, err := s.ISCSISessions(ctx); err != nil || len(sessions) != 0 {
				t.Errorf("sessions %v, %v", sessions, err)
			}
		})
	}
}
