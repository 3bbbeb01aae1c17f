// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestMatch(t *testing.T) {
	disk := Call{"IOCTL_DISK_CREATE_DISK", `\\.\PhysicalDrive10 \\?\scsi#disk&ven_msft#5&0000000a&1&000007#{guid}`}
	for _, tc := range []struct {
		match Match
		want  bool
	}{
		{Match{Call: disk.Name}, true},
		{Match{Call: "IOCTL_DISK_CREATE"}, false},
		{Match{Call: disk.Name, Object: "physicaldrive10"}, true},
		{Match{Call: disk.Name, Object: "PhysicalDrive1"}, false},
		{Match{Call: disk.Name, Object: "PhysicalDrive"}, true},
		{Match{Call: disk.Name, Object: "000007"}, true},
		{Match{Call: disk.Name, Object: "0"}, true}, // 0 of 10
		{Match{Call: disk.Name, Object: disk.Object}, true},
		{Match{Call: disk.Name, Object: "x" + disk.Object}, false},
	} {
		if got := tc.match.matches(disk); got != tc.want {
			t.Errorf("%+v: %v", tc.match, got)
		}
	}
}

func TestFail(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	find := func() error {
		_, err := s.FindVolumes(ctx)
		return err
	}
	must(t, s.Fail(Match{Call: "findfirstvolumew", Skip: 1, Count: 2}, winerr.ErrorNotReady))
	for i, want := range []winerr.Errno{0, winerr.ErrorNotReady, winerr.ErrorNotReady, 0} {
		wantErr(t, strings.Repeat("again ", i)+"find", find(), want)
	}
	must(t, s.Fail(Match{Call: "FindFirstVolumeW"}, winerr.ErrorIODevice))
	for range 3 {
		wantErr(t, "find", find(), winerr.ErrorIODevice)
	}
	s.ResetRules()
	wantErr(t, "after the reset", find(), 0)
	if n := s.Calls()["FindFirstVolumeW"]; n != 8 {
		t.Errorf("%d calls were counted, want 8", n)
	}

	must(t, s.Fail(Match{Call: EachCall, Object: "nowhere", Fires: MustNotFire}, winerr.ErrorIODevice))
	must(t, s.Fail(Match{Call: EachCall, Skip: 1, Count: 1}, winerr.ErrorIODevice))
	_, err := s.FindVolumes(t.Context())
	must(t, err)
	_, err = s.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
	wantErr(t, "the second call", err, winerr.ErrorIODevice)
	if err := s.Fail(Match{Call: "SetVolumeMountPoint"}, winerr.ErrorIODevice); csiproxy.KindOf(err) != csiproxy.ErrNotFound ||
		!strings.HasSuffix(err.Error(), "; did you mean SetVolumeMountPointW?") {
		t.Errorf("the error doesn't end with the nearest call: %v", err)
	}
	wantErr(t, "no error", s.Fail(Match{Call: "FindFirstVolumeW"}, 0), winerr.ErrorInvalidParameter)
	wantErr(t, "negative count", s.Fail(Match{Call: "FindFirstVolumeW", Count: -1}, winerr.ErrorIODevice),
		winerr.ErrorInvalidParameter)
	wantErr(t, "negative skip", s.Fail(Match{Call: "FindFirstVolumeW", Skip: -1}, winerr.ErrorIODevice),
		winerr.ErrorInvalidParameter)
	wantErr(t, "no delay", s.Delay(Match{Call: "FindFirstVolumeW"}, 0), winerr.ErrorInvalidParameter)
}

// TestFailedCallDoesNothing also stages a disk that vanishes between list and open.
func TestFailedCallDoesNothing(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	n, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", nil))
	must(t, s.Fail(Match{Call: win.CallFormatVolume, Object: name, Count: 1}, winerr.ErrorGenFailure))
	wantErr(t, "format", s.FormatVolume(ctx, name, win.FormatOptions{FileSystem: "NTFS"}), winerr.ErrorGenFailure)
	if _, err := s.ReadFile(name + "file"); err != nil {
		t.Errorf("the failed format did harm: %v", err)
	}
	other := attach(t, s, DiskSpec{})
	must(t, s.Fail(Match{Call: win.CallOpen, Object: drivePath(n)}, winerr.ErrorFileNotFound))
	paths, err := s.DeviceInterfaces(ctx, win.InterfaceClassDisk)
	must(t, err)
	for _, path := range []string{drivePath(n), paths[1]} {
		wantErr(t, "open "+path, errorOf(s.OpenDevice(ctx, path, win.AccessNone)), winerr.ErrorFileNotFound)
	}
	closeHandle(t, openDevice(t, s, drivePath(other), win.AccessNone))
}

// TestCallNames: each call of the seam has a name that rules know, and each name is
// some call's.
func TestCallNames(t *testing.T) {
	s := openNode(t, Config{})
	ctx := t.Context()
	n, volume := newVolume(t, s, true)
	d, v := openDevice(t, s, drivePath(n), readWrite), openDevice(t, s, device1(volume), readWrite)
	f, err := s.OpenFile(ctx, kubelet, existing(win.FileListDirectory, 0))
	must(t, err)
	used := map[string]bool{}
	s.OnCall(func(c Call) { used[c.Name] = true })
	// Whether these succeed is no matter here.
	for _, calls := range []map[string]func(context.Context) error{
		seamtest.Calls[win.System](s, kubelet+`\missing\`, f), seamtest.Calls(f, "missing", f), seamtest.Calls(d, "", f),
	} {
		for _, call := range calls {
			_ = call(ctx)
		}
	}
	for _, code := range win.IoctlCodes() {
		_, _ = d.Control(ctx, code, nil, nil)
		_, _ = v.Control(ctx, code, nil, nil)
		_, _ = f.Control(ctx, code, nil, nil)
	}
	must(t, s.Close())
	if diff := cmp.Diff(win.CallNames(), slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("call names (-known +used):\n%s", diff)
	}
}

func TestUnknownDelay(t *testing.T) {
	_, err := Open(Config{Delays: Delays{Calls: map[string]time.Duration{"FindFirstVolume": 1}}})
	if csiproxy.KindOf(err) != csiproxy.ErrNotFound {
		t.Errorf("a delay for no call: %v", err)
	}
}

// TestHook changes the node under the feet of a call.
func TestHook(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	must(t, s.MkdirAll(kubelet+`\pods\a`))
	s.OnCall(func(c Call) {
		if c == (Call{win.CallFileAttributes, kubelet + `\pods\a`}) {
			must(t, s.Remove(kubelet+`\pods\a`))
			must(t, s.Junction(kubelet+`\pods\a`, `C:\Windows`))
		}
	})
	a, err := s.FileAttributes(ctx, kubelet+`\pods\a`)
	if err != nil || a&win.AttributeReparsePoint == 0 {
		t.Errorf("attributes %#x, %v", a, err)
	}
	s.OnCall(nil)
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openNode(t, Config{Delays: RealisticDelays()})
		took := func(want time.Duration, f func()) {
			t.Helper()
			start := time.Now()
			f()
			if d := time.Since(start); d != want {
				t.Errorf("it took %v, want %v", d, want)
			}
		}
		find := func() {
			_, err := s.FindVolumes(t.Context())
			must(t, err)
		}
		must(t, s.Delay(Match{Call: win.CallFindVolumes, Count: 1}, time.Minute))
		took(time.Minute+time.Millisecond, find)
		took(time.Millisecond, find)

		must(t, s.Delay(Match{Call: win.CallReenumerateDevice}, time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took(time.Second, func() {
			if err := s.ReenumerateDevice(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a call beyond its deadline: %v", err)
			}
		})
		calls := s.Calls()[win.CallReenumerateDevice]
		if err := s.ReenumerateDevice(ctx, ""); !errors.Is(err, context.DeadlineExceeded) ||
			s.Calls()[win.CallReenumerateDevice] != calls {
			t.Errorf("a call after its deadline: %v", err)
		}

		// Another call is not held up by one that takes its time.
		go func() { _ = s.ReenumerateDevice(t.Context(), "") }()
		synctest.Wait()
		took(time.Millisecond, find)
		time.Sleep(time.Hour)
		must(t, s.Close())
	})
}

// TestDelayUncancellable: a call that nothing interrupts keeps its caller until it is
// over, and does its work, whatever has become of the caller's context.
func TestDelayUncancellable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openNode(t, Config{})
		_, name := newVolume(t, s, true)
		must(t, s.MkdirAll(stage))
		must(t, s.DelayUncancellable(Match{Call: win.CallSetVolumeMountPoint, Count: 1}, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		must(t, s.SetVolumeMountPoint(ctx, stage+`\`, name))
		if took := time.Since(start); took != time.Minute || ctx.Err() == nil {
			t.Errorf("it took %v, and the context's error is %v", took, ctx.Err())
		}
		if points := s.MountPoints(); len(points) != 1 {
			t.Errorf("mount points %v", points)
		}

		// A delay that can be cancelled comes first. Then nothing has happened.
		must(t, s.Delay(Match{Call: win.CallDeleteVolumeMountPoint, Count: 1}, time.Minute))
		must(t, s.DelayUncancellable(Match{Call: win.CallDeleteVolumeMountPoint, Count: 1}, time.Minute))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.DeleteVolumeMountPoint(ctx, stage+`\`); !errors.Is(err, context.DeadlineExceeded) || len(s.MountPoints()) != 1 {
			t.Errorf("an interrupted call: %v, mount points %v", err, s.MountPoints())
		}

		// The end of the rules, or of the node, ends it.
		hang := func() <-chan error {
			must(t, s.DelayUncancellable(Match{Call: win.CallFindVolumes}, time.Hour))
			done := make(chan error, 1)
			go func() {
				_, err := s.FindVolumes(t.Context())
				done <- err
			}()
			synctest.Wait()
			start = time.Now()
			return done
		}
		done := hang()
		s.ResetRules()
		wantErr(t, "a call that was under way when the rules ended", <-done, 0)
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v after the end of the rules", took)
		}
		done = hang()
		must(t, s.Close())
		if err := <-done; !errors.Is(err, errClosed) || time.Since(start) != 0 {
			t.Errorf("a call that was under way when the node was closed: %v after %v", err, time.Since(start))
		}
	})
}

// Calls of all parts from many sides at once, for the race detector, leave a node that can be told
// from its state file, which newNode compares.
func TestConcurrentCalls(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	_, name := newVolume(t, s, true)
	must(t, s.MkdirAll(stage))
	newTarget(t, s, iscsitarget.Target{}, DiskSpec{}, DiskSpec{})
	startInitiator(t, s)
	newShare(t, s)
	all := []func() error{func() error {
		n, err := s.AttachDisk(DiskSpec{SizeBytes: gib})
		return errors.Join(err, s.DetachDisk(n))
	}, func() error {
		return errors.Join(errorOf(s.FindVolumes(ctx)), s.WriteFile(name+"file", []byte("x")))
	}, func() error {
		return errors.Join(s.SetVolumeMountPoint(ctx, stage+`\`, name), s.DeleteVolumeMountPoint(ctx, stage+`\`))
	}, func() error {
		defer s.ResetRules()
		s.OnCall(func(Call) {})
		return s.Fail(Match{Call: win.CallFlush, Fires: MayFire}, winerr.ErrorIODevice)
	}, func() error {
		id, err := s.LoginISCSITarget(ctx, win.ISCSILogin{Target: iqn, Portal: portal1})
		return errors.Join(err, s.LogoutISCSITarget(ctx, id))
	}, func() error {
		return errors.Join(errorOf(s.ISCSISessions(ctx)), s.ReenumerateDevice(ctx, ""),
			s.RefreshISCSISendTargetPortal(ctx, portal1))
	}, func() error {
		s.ISCSI().Targets()
		return errors.Join(errorOf(s.FirmwareTable(ctx)), s.ISCSI().SetPortal(portal2, false),
			s.ISCSI().SetPortal(portal2, true))
	}, func() error {
		s.Services().List()
		return errors.Join(s.StopService(ctx, "kubelet"), s.StartService(ctx, "kubelet"))
	}}
	for i := range 4 {
		all = append(all, func() error {
			// Whether these succeed is for the others to decide.
			_ = s.CreateSMBGlobalMapping(ctx, share, credentials)
			_ = s.WriteFile(fmt.Sprint(share, `\`, i), []byte("content"))
			_, _ = s.FileAttributes(ctx, share)
			_ = s.SMB().SetState("server", smbserver.State{Unreachable: i == 0})
			_, _ = s.SMBGlobalMappings(ctx)
			_ = s.SMB().SetUser("server", "user", password)
			_ = s.SMB().Servers()
			_ = s.RemoveSMBGlobalMapping(ctx, share)
			return nil
		})
	}
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(func() {
			for range 30 {
				if err := f(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	must(t, s.SMB().SetState("server", smbserver.State{}))
	wantErr(t, "map the share at last", s.CreateSMBGlobalMapping(ctx, share, credentials), 0)
}
