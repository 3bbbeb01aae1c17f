// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Nobody logs out of a target while another disk of it is being staged, which isn't online yet.
func TestLogOutDuringStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		portal := csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
		simtest.Must(t, sim.ISCSI().AddTarget(iscsitarget.Target{
			IQN: "iqn.2026-01.com.example:vol-1", Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)},
		}, winsim.DiskSpec{SizeBytes: 1 << 30, Serial: "lun-0"}, winsim.DiskSpec{SizeBytes: 2 << 30, Serial: "lun-1"}))
		request := func(lun uint32, path string) csiproxy.StageVolumeRequest {
			return csiproxy.StageVolumeRequest{
				Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: portal, IQN: "iqn.2026-01.com.example:vol-1",
					LUN: lun}},
				StagingPath: path,
			}
		}
		stageVolume(t, n, request(0, otherPath))
		stageVolume(t, n, request(1, stagingPath))
		unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}) // it is offline
		var other csiproxy.UnstagedVolume
		sim.OnCall(func(c winsim.Call) {
			if c.Name == win.CallDeviceInterfaces { // the node is connected, and the disk is looked for
				sim.OnCall(nil)
				other = unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: otherPath})
			}
		})
		stageVolume(t, n, request(1, stagingPath))
		if !other.DiskOffline || other.LoggedOut {
			t.Errorf("the other disk: %+v", other)
		}
	})
}

// A disk that was found, and then seems to be gone, may be there: the call doesn't succeed without it.
func TestUnstageVolumeOfADiskThatSeemsGone(t *testing.T) {
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	var opens atomic.Int64 // disks are asked at the same time
	sim.OnCall(func(c winsim.Call) {
		if c.Name != win.CallOpen || !strings.HasPrefix(c.Object, win.PhysicalDrive(number)) {
			return
		}
		if opens.Add(1) == 2 { // the first one has found it
			simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(number), Count: 1},
				winerr.ErrorFileNotFound))
		}
	})
	r := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: serial("vol-1")}
	_, err := n.Storage.UnstageVolume(t.Context(), r)
	sim.OnCall(nil)
	simtest.WantErrorOf(t, "a disk that seems to be gone", err, csiproxy.ErrUnavailable, "try again")
	if done := unstageVolume(t, n, r); !done.DiskOffline {
		t.Errorf("then %+v", done)
	}
}

// A volume that comes while it is looked for is unmounted like any other, with its disk.
func TestUnstageVolumeThatArrives(t *testing.T) {
	sim, n, number := newStaged(t)
	name := strings.TrimSuffix(sim.VolumesOfDisk(number)[0], `\`)
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: name, Count: 1},
		winerr.ErrorFileNotFound))
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); !done.Unmounted || !done.DiskOffline {
		t.Errorf("it is unstaged so: %+v", done)
	}
}

// A volume that somebody uses isn't taken from them, unless that is asked for.
func TestUnstageVolumeInUse(t *testing.T) { synctest.Test(t, testUnstageVolumeInUse) }

func testUnstageVolumeInUse(t *testing.T) {
	sim, n, _ := newStaged(t)
	simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
	process, err := sim.StartProcess(`C:\app\server.exe`, stagingPath+file)
	simtest.Must(t, err)
	_, err = n.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	simtest.WantErrorOf(t, "in use", err, csiproxy.ErrFailedPrecondition, fmt.Sprintf("in use by process %d", process), `server.exe`)
	simtest.Must(t, sim.SetSettings(winsim.Settings{NoProcessIDs: true}))
	_, err = n.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	simtest.WantErrorOf(t, "in use by somebody", err, csiproxy.ErrFailedPrecondition, "it is in use; ")
	if data, err := sim.ReadFile(stagingPath + file); string(data) != "precious" || err != nil {
		t.Errorf("the file is %q, %v", data, err)
	}
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Force: true}); !done.Unmounted ||
		!done.DiskOffline {
		t.Errorf("%+v", done)
	}
	simtest.Must(t, sim.EndProcess(process))
}

// Another volume of the disk that is mounted isn't locked: who uses it keeps nobody from unstaging the
// first, and the disk stays online.
func TestUnstageVolumeBesideAMountedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
		simtest.Partition(t, sim, number, 2)
		sim.Settle()
		ids := sim.VolumesOfDisk(number)
		for i, path := range []string{stagingPath, otherPath} {
			simtest.Must(t, n.Volume.FormatVolume(t.Context(), csiproxy.VolumeID(ids[i])))
			simtest.Must(t, n.Volume.MountVolume(t.Context(), csiproxy.VolumeID(ids[i]), path))
		}
		simtest.Must(t, sim.WriteFile(otherPath+file, nil))
		process, err := sim.StartProcess(`C:\app.exe`, otherPath+file)
		simtest.Must(t, err)
		begin := time.Now()
		done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
		online, err := n.Disk.GetDiskState(t.Context(), number)
		if !done.Unmounted || done.DiskOffline || !online || err != nil || time.Since(begin) > 0 {
			t.Errorf("%+v after %v; the disk is online: %v, %v", done, time.Since(begin), online, err)
		}
		simtest.Must(t, sim.EndProcess(process))
	})
}

// A volume that is in use for a moment is waited for, and nobody else waits meanwhile.
func TestUnstageVolumeWaits(t *testing.T) {
	request := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}
	for name, test := range map[string]struct {
		used     time.Duration // how long a scanner has a file open
		deadline time.Duration
		other    func(ctx context.Context, n *nodeops.Node) error // what comes meanwhile
		want     error
		within   time.Duration
	}{
		"a scanner": {used: 10 * time.Second, within: 13 * time.Second},
		"somebody":  {used: time.Minute, want: csiproxy.ErrFailedPrecondition, within: 15 * time.Second},
		"somebody, and a short deadline": {
			used: time.Minute, deadline: 4 * time.Second, want: csiproxy.ErrFailedPrecondition, within: 2 * time.Second,
		},
		"other calls": {
			used: 10 * time.Second, within: 13 * time.Second, other: func(ctx context.Context, n *nodeops.Node) error {
				v, err := n.Storage.GetVolume(ctx, stagingPath)
				if err == nil {
					_, err = n.Volume.GetVolumeStats(ctx, v.VolumeID)
				}
				if err == nil {
					err = n.Disk.SetDiskState(ctx, 1, true)
				}
				if err == nil {
					_, err = n.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: stagingPath})
				}
				return err
			},
		},
		"the volume is unmounted meanwhile": {
			used: time.Minute, within: 7 * time.Second, other: func(ctx context.Context, n *nodeops.Node) error {
				id, err := n.Volume.GetVolumeIDFromTargetPath(ctx, stagingPath)
				if err == nil {
					err = n.Volume.UnmountVolume(ctx, id, stagingPath)
				}
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, _, _ := newStaged(t)
				var log bytes.Buffer
				n, err := nodeops.New(sim, nodeops.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				simtest.Must(t, err)
				simtest.Must(t, sim.WriteFile(stagingPath+file, nil))
				process, err := sim.StartProcess(`C:\scanner.exe`, stagingPath+file)
				simtest.Must(t, err)
				go func() {
					time.Sleep(5 * time.Second)
					if test.other != nil {
						begin := time.Now()
						if err := test.other(t.Context(), n); err != nil || time.Since(begin) > 0 {
							t.Errorf("the other call has taken %v: %v", time.Since(begin), err)
						}
					}
					time.Sleep(test.used - 5*time.Second)
					simtest.Must(t, sim.EndProcess(process))
				}()
				ctx, cancel := t.Context(), func() {}
				if test.deadline != 0 {
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
				}
				defer cancel()
				begin := time.Now()
				_, err = n.Storage.UnstageVolume(ctx, request)
				if took := time.Since(begin); csiproxy.KindOf(err) != test.want || took > test.within {
					t.Errorf("after %v: %v, want %v within %v", took, err, test.want, test.within)
				}
				inUse := fmt.Sprintf("in use by process %d", process)
				if test.want != nil {
					simtest.WantErrorOf(t, "refused", err, test.want, inUse)
				} else if n := strings.Count(log.String(), inUse); n != 1 {
					t.Errorf("the log names who had it open %d times, want once:\n%s", n, &log)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// A volume is written out before it is locked, and what fails then fails the call.
func TestUnstageVolumeFlushes(t *testing.T) {
	sim, n := newStagingNode(t)
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	r := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	request := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}
	stageVolume(t, n, r)
	for _, errno := range []winerr.Errno{winerr.ErrorIODevice, winerr.ErrorAccessDenied} {
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallFlush, Count: 1}, errno))
		if done, err := n.Storage.UnstageVolume(t.Context(), request); !errors.Is(err, errno) || done.Unmounted {
			t.Errorf("error %d of the flush: %+v, %v", errno, done, err)
		}
		simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
	}
}

// A volume that is raw, or whose file system is damaged, may not know the request to flush it. It is
// unmounted all the same. One that a broken disk can't write out is unmounted by force only.
func TestUnstageVolumeThatCannotBeFlushed(t *testing.T) {
	for errno, ends := range map[winerr.Errno]map[bool]bool{ // by force
		winerr.ErrorInvalidFunction: {false: true, true: true},
		winerr.ErrorNotSupported:    {false: true, true: true},
		winerr.ErrorIODevice:        {false: false, true: true},
		winerr.ErrorCRC:             {false: false, true: true},
	} {
		for force, want := range ends {
			sim, n, _ := newStaged(t)
			simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallFlush}, errno))
			done, err := n.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Force: force})
			if (err == nil) != want || done.Unmounted != want || done.DiskOffline != want {
				t.Errorf("error %d, force %t: %+v, %v", errno, force, done, err)
			}
		}
	}
}

// Windows may refuse to take a disk offline under the locks of its volumes. Then they are given up, and
// only then: see TestUnstageVolumeStaysLocked.
func TestUnstageVolumeWhereALockRefusesOffline(t *testing.T) {
	sim, n, number := newStaged(t)
	simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
	simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineRefusesLocked: true}))
	asked := simtest.Counted(sim, win.IoctlDiskSetDiskAttributes.String())
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); !done.Unmounted || !done.DiskOffline {
		t.Errorf("unstaged: %+v", done)
	}
	simtest.Want(t, "calls to take the disk offline", asked()[0], 2)
	simtest.Must(t, n.Disk.SetDiskState(t.Context(), number, true))
	// Nothing is staged, and the other volumes of the disk are locked.
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: serial("vol-1")}); !done.DiskOffline {
		t.Errorf("by its disk: %+v", done)
	}
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	if data, err := sim.ReadFile(stagingPath + file); string(data) != "precious" || err != nil {
		t.Errorf("the file is %q, %v", data, err)
	}
}

// Windows may refuse to open a read-only volume for writing, which a flush needs and a lock doesn't.
func TestUnstageVolumeOfReadOnlyMedia(t *testing.T) {
	sim, n, number := newStaged(t)
	simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
	request := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}
	unstageVolume(t, n, request)
	simtest.Must(t, sim.SetSettings(winsim.Settings{WriteProtectedOpen: true}))
	for name, force := range map[string]bool{"locked": false, "forced": true} {
		stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, ReadOnly: true})
		request.Force = force
		locks := simtest.Counted(sim, win.FsctlLockVolume.String())
		done, err := n.Storage.UnstageVolume(t.Context(), request)
		if err != nil || !done.Unmounted || !done.DiskOffline {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		simtest.Want(t, name+": locks", locks()[0], map[bool]int{false: 1}[force])
	}
	simtest.Want(t, "the disk's attributes", attributesOf(sim, number), win.DiskOffline)
}

// If Windows doesn't take a disk offline and make it writable in one call, it does so in two.
func TestUnstageVolumeInTwoSteps(t *testing.T) {
	sim, n, number := newStaged(t)
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, ReadOnly: true})
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.IoctlDiskSetDiskAttributes.String(), Count: 1}, winerr.ErrorInvalidParameter))
	done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Force: true}) // in one attempt
	if attributes := attributesOf(sim, number); attributes != win.DiskOffline || !done.DiskOffline {
		t.Errorf("%+v, the disk's attributes are %v", done, attributes)
	}
}

// Nobody opens a volume after it is unmounted and before its disk is offline, unless Windows refuses to
// take it offline. A disk that stays online can be used again, and taken offline later.
func TestUnstageVolumeStaysLocked(t *testing.T) {
	offline := win.IoctlDiskSetDiskAttributes.String()
	for name, test := range map[string]struct {
		settings winsim.Settings
		fails    string // the call that fails
		stays    bool   // the disk stays online
	}{
		"unmounted while locked":       {},
		"locked after it is unmounted": {settings: winsim.Settings{LockedMountPoint: winerr.ErrorAccessDenied}},
		"it can't be dismounted":       {fails: win.FsctlDismountVolume.String()},
		"the disk stays online":        {fails: offline, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			sim, _, _ := newStaged(t)
			var log bytes.Buffer
			n, err := nodeops.New(sim, nodeops.Options{
				Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			simtest.Must(t, err)
			v, err := n.Storage.GetVolume(t.Context(), stagingPath)
			simtest.Must(t, err)
			simtest.Must(t, sim.SetSettings(test.settings))
			if test.fails != "" {
				count := map[bool]int{true: 2, false: 1}[test.stays] // under the locks, and without them
				simtest.Must(t, sim.Fail(winsim.Match{Call: test.fails, Count: count}, winerr.ErrorIODevice))
			}
			open := func() error {
				process, err := sim.StartProcess(`C:\scanner.exe`, strings.TrimSuffix(string(v.VolumeID), `\`))
				if err == nil {
					err = sim.EndProcess(process)
				}
				return err
			}
			var calls []string
			sim.OnCall(func(c winsim.Call) {
				switch c.Name {
				case win.CallVolumePathNames, win.FsctlDismountVolume.String(), offline:
					again := len(calls) > 0 && calls[len(calls)-1] == c.Name
					calls = append(calls, c.Name)
					if err := open(); again != (err == nil) || err != nil && !errors.Is(err, winerr.ErrorAccessDenied) {
						t.Errorf("at %s, somebody opens the volume: %v", c.Name, err)
					}
				}
			})
			done, err := n.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
			sim.OnCall(nil)
			if (err != nil) != test.stays || !done.Unmounted || done.DiskOffline == test.stays {
				t.Errorf("%+v, %v", done, err)
			}
			want := []string{win.FsctlDismountVolume.String(), offline}
			if test.stays {
				want = append(want, offline)
			}
			if len(calls) < len(want) || !slices.Equal(calls[len(calls)-len(want):], want) {
				t.Errorf("the calls are %q", calls)
			}
			if (log.Len() > 0) != (test.fails != "") {
				t.Errorf("warnings: %s", &log)
			}
			if open := sim.OpenHandles(); len(open) > 0 {
				t.Errorf("open afterwards: %q", open)
			}
			if !test.stays {
				return
			}
			simtest.Must(t, open())
			if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: serial("vol-1")}); !done.DiskOffline {
				t.Errorf("then %+v", done)
			}
		})
	}
}

// A volume that is staged twice can be used where it stays, once the other place is unstaged.
func TestUnstageVolumeOfTwoPlaces(t *testing.T) {
	sim, n, _ := newStaged(t)
	v, err := n.Storage.GetVolume(t.Context(), stagingPath)
	simtest.Must(t, err)
	simtest.Must(t, n.Volume.MountVolume(t.Context(), v.VolumeID, otherPath))
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.FsctlDismountVolume.String() {
			t.Error("a volume that is mounted elsewhere is dismounted")
		}
	})
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); !done.Unmounted || done.DiskOffline {
		t.Errorf("%+v", done)
	}
	simtest.Must(t, sim.WriteFile(otherPath+file, []byte("precious")))
}

// If Windows doesn't take away the mount point of a locked volume, it is unmounted without the
// lock. If somebody has come to use it then, it is mounted again.
func TestUnstageVolumeWithoutLock(t *testing.T) {
	request := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}
	for _, errno := range []winerr.Errno{winerr.ErrorAccessDenied, winerr.ErrorNotReady} {
		for _, restored := range []bool{true, false} {
			sim, n := newStagingNode(t)
			simtest.Must(t, sim.SetSettings(winsim.Settings{LockedMountPoint: errno}))
			simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
			r := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
			stageVolume(t, n, r)
			simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
			var process win.ProcessID
			sim.OnCall(func(c winsim.Call) {
				if c.Name != win.CallDeleteVolumeMountPoint {
					return
				}
				id, err := sim.StartProcess(`C:\app\server.exe`, stagingPath+file)
				if err == nil { // not while the volume is locked
					sim.OnCall(nil)
					process = id
					if !restored {
						simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallSetVolumeMountPoint}, winerr.ErrorIODevice))
					}
				}
			})
			done, err := n.Storage.UnstageVolume(t.Context(), request)
			simtest.WantErrorOf(t, "somebody has come", err, csiproxy.ErrFailedPrecondition)
			if _, readErr := sim.ReadFile(stagingPath + file); done.Unmounted || (readErr == nil) != restored ||
				restored && !strings.Contains(fmt.Sprint(err), fmt.Sprintf("process %d", process)) {
				t.Errorf("error %d: %+v, %v; then %v", errno, done, err, readErr)
			}
			simtest.Must(t, sim.EndProcess(process))
			sim.ResetRules()
			stageVolume(t, n, r)
			if data, err := sim.ReadFile(stagingPath + file); string(data) != "precious" || err != nil {
				t.Errorf("the file is %q, %v", data, err)
			}
			if done := unstageVolume(t, n, request); !done.Unmounted || !done.DiskOffline {
				t.Errorf("error %d, nobody has come: %+v", errno, done)
			}
			// Its caller gives up in the midst of that, which is brought to its end.
			stageVolume(t, n, r)
			ctx, cancel := context.WithCancel(t.Context())
			var unmounts atomic.Int64
			sim.OnCall(func(c winsim.Call) {
				if c.Name == win.CallDeleteVolumeMountPoint {
					unmounts.Add(1)
				} else if unmounts.Load() == 2 {
					cancel()
				}
			})
			_, err = n.Storage.UnstageVolume(ctx, request)
			sim.OnCall(nil)
			if csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition || !errors.Is(err, context.Canceled) {
				t.Errorf("error %d, cancelled: %v", errno, err)
			}
		}
	}
}

// The disk leaves once its volume is unmounted without the lock. Windows isn't asked to mount that
// again, and a repeated call finds nothing to do.
func TestUnstageVolumeThatLeaves(t *testing.T) {
	sim, n := newStagingNode(t)
	simtest.Must(t, sim.SetSettings(winsim.Settings{LockedMountPoint: winerr.ErrorAccessDenied}))
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	mounts := simtest.Counted(sim, win.CallSetVolumeMountPoint)
	var unmounting, left atomic.Bool // disks are asked at the same time
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallDeleteVolumeMountPoint {
			unmounting.Store(true)
		} else if unmounting.Load() && c.Name == win.CallOpen && strings.HasPrefix(c.Object, `\\?\Volume`) &&
			!left.Swap(true) {
			simtest.Must(t, sim.DetachDisk(number)) // right before it is locked again
		}
	})
	request := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}
	_, err := n.Storage.UnstageVolume(t.Context(), request)
	sim.OnCall(nil)
	simtest.WantErrorOf(t, "it leaves", err, csiproxy.ErrUnavailable)
	if got := mounts()[0]; got != 0 {
		t.Errorf("Windows is asked %d times to mount it again: %v", got, err)
	}
	if done := unstageVolume(t, n, request); done.Unmounted {
		t.Errorf("the repeated call: %+v", done)
	}
}

// A disk that leaves right after its volume was unmounted is no disk that was never there.
func TestUnstageVolumeWhoseDiskLeaves(t *testing.T) {
	sim, n, number := newStaged(t)
	var unmounted, left atomic.Bool // disks are asked at the same time
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallDeleteVolumeMountPoint {
			unmounted.Store(true)
		} else if unmounted.Load() && c.Name == win.IoctlDiskGetDiskAttributes.String() && !left.Swap(true) {
			simtest.Must(t, sim.DetachDisk(number))
		}
	})
	request := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}
	_, err := n.Storage.UnstageVolume(t.Context(), request)
	simtest.WantErrorOf(t, "its disk leaves", err, csiproxy.ErrUnavailable, "has left the node")
	if done := unstageVolume(t, n, request); done.Unmounted {
		t.Errorf("the repeated call: %+v", done)
	}
}

// The disk stays online while another of its volumes is mounted.
func TestUnstageVolumeOfTwo(t *testing.T) {
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.Partition(t, sim, number, 2)
	sim.Settle()
	request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	_, err := n.Storage.StageVolume(t.Context(), request)
	simtest.WantErrorOf(t, "two partitions", err, csiproxy.ErrFailedPrecondition, "2 data partitions")
	request.Partition = 1
	stageVolume(t, n, request)
	request.Partition, request.StagingPath = 2, otherPath
	stageVolume(t, n, request)
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); !done.Unmounted || done.DiskOffline {
		t.Errorf("the first: %+v", done)
	}
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: otherPath}); !done.DiskOffline {
		t.Errorf("the last: %+v", done)
	}
}

// The disk stays online, and the volume staged, while somebody uses another of its volumes, such as one
// with a drive letter. Otherwise both are locked and dismounted when the disk goes offline. So it is
// when an earlier call has died after it unmounted the volume.
func TestUnstageVolumeBesideOneInUse(t *testing.T) {
	for _, force := range []bool{false, true} {
		for _, unmounted := range []bool{false, true} {
			t.Run(fmt.Sprintf("force %t, unmounted %t", force, unmounted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testUnstageVolumeBesideOneInUse(t, force, unmounted) })
			})
		}
	}
}

func testUnstageVolumeBesideOneInUse(t *testing.T, force, unmounted bool) {
	offline, dismount := win.IoctlDiskSetDiskAttributes.String(), win.FsctlDismountVolume.String()
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.Partition(t, sim, number, 2)
	sim.Settle()
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), Partition: 1, StagingPath: stagingPath})
	v, err := n.Storage.GetVolume(t.Context(), stagingPath)
	simtest.Must(t, err)
	all := sim.VolumesOfDisk(number)
	other := all[slices.IndexFunc(all, func(name string) bool { return !v.VolumeID.Equal(csiproxy.VolumeID(name)) })]
	open := func(name string) (win.ProcessID, error) {
		return sim.StartProcess(`C:\editor.exe`, strings.TrimSuffix(name, `\`))
	}
	process, err := open(other)
	simtest.Must(t, err)
	request := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Force: force}
	if unmounted {
		request.Disk = serial("vol-1")
		simtest.Must(t, n.Volume.UnmountVolume(t.Context(), v.VolumeID, stagingPath))
	}
	want := []string{offline}
	if !force {
		want = []string{dismount, dismount, offline}
		mounts := sim.MountPoints()
		_, err := n.Storage.UnstageVolume(t.Context(), request)
		simtest.WantErrorOf(t, "the other volume is in use", err, csiproxy.ErrFailedPrecondition, other+": it is in use by process")
		if now := sim.MountPoints(); !slices.Equal(now, mounts) {
			t.Errorf("the mount points are %q, were %q", now, mounts)
		}
		if online, err := n.Disk.GetDiskState(t.Context(), number); !online || err != nil {
			t.Errorf("the disk is online: %v, %v", online, err)
		}
		simtest.Must(t, sim.EndProcess(process))
	}
	var calls []string
	sim.OnCall(func(c winsim.Call) {
		if c.Name != offline && c.Name != dismount {
			return
		}
		calls = append(calls, c.Name)
		for _, name := range all {
			if force {
				continue
			}
			if _, err := open(name); !errors.Is(err, winerr.ErrorAccessDenied) {
				t.Errorf("at %s, somebody opens %s: %v", c.Name, name, err)
			}
		}
	})
	done := unstageVolume(t, n, request)
	sim.OnCall(nil)
	if done.Unmounted == unmounted || !done.DiskOffline || !slices.Equal(calls, want) {
		t.Errorf("%+v, by %q", done, calls)
	}
	if force {
		simtest.Must(t, sim.EndProcess(process))
	}
	if open := sim.OpenHandles(); len(open) > 0 {
		t.Errorf("open afterwards: %q", open)
	}
}

// A driver that undoes a staging which was refused, since another volume is mounted at the
// path, doesn't take that volume from its pods.
func TestUnstageVolumeOfAnotherDisk(t *testing.T) {
	sim, n := newStagingNode(t)
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
	staged := stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	_, err := n.Storage.StageVolume(t.Context(),
		csiproxy.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: stagingPath})
	simtest.WantErrorOf(t, "another volume at the path", err, csiproxy.ErrFailedPrecondition)
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{Disk: serial("vol-2"),
		StagingPath: stagingPath}); done.Unmounted || !done.DiskOffline {
		t.Errorf("undoing it: %+v", done)
	}
	if id, err := n.Volume.GetVolumeIDFromTargetPath(t.Context(), stagingPath); id != staged.VolumeID {
		t.Errorf("at the path is %q, %v", id, err)
	}
	// A sick disk that doesn't tell which one it is may be meant, unless another disk is.
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.IoctlStorageQueryProperty.String(),
		Object: win.PhysicalDrive(staged.Disk)}, winerr.ErrorInvalidFunction))
	n, err = nodeops.New(sim, nodeops.Options{}) // which remembers nothing of it
	simtest.Must(t, err)
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{Disk: serial("vol-2"),
		StagingPath: stagingPath}); done.Unmounted {
		t.Errorf("unstaging another disk: %+v", done)
	}
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{Disk: serial("vol-1"),
		StagingPath: stagingPath}); !done.Unmounted || !done.DiskOffline {
		t.Errorf("unstaging it: %+v", done)
	}
}
