// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// A volume that somebody uses stays mounted, or is mounted again if Windows can't unmount it while it is
// locked; and it is said who uses it.
func TestUnmountUnused(t *testing.T) {
	const image = `C:\app.exe`
	use := func(s volumeSubject) {
		id, err := s.sim.StartProcess(image, strings.TrimSuffix(string(s.id), `\`))
		s.do(err)
		s.t.Cleanup(func() { s.do(s.sim.EndProcess(id)) })
	}
	locked := func(s volumeSubject) {
		s.do(s.sim.SetSettings(winsim.Settings{LockedMountPoint: winerr.ErrorAccessDenied}))
	}
	// before has f run before the nth of some calls from now on.
	before := func(s volumeSubject, call string, nth int, f func()) {
		s.sim.OnCall(func(c winsim.Call) {
			if c.Name == call {
				if nth--; nth == 0 {
					f()
				}
			}
		})
	}
	fail := func(s volumeSubject, call string, skip int, errno winerr.Errno) {
		s.do(s.sim.Fail(winsim.Match{Call: call, Skip: skip}, errno))
	}
	for name, c := range map[string]struct {
		prepare func(volumeSubject)
		force   bool
		kind    error
		inUse   bool
		says    []string
		mounted bool
	}{
		"nobody uses it":         {prepare: func(volumeSubject) {}},
		"a process uses it":      {prepare: use, kind: csiproxy.ErrPermissionDenied, inUse: true, mounted: true},
		"by force":               {prepare: use, force: true},
		"not while it is locked": {prepare: locked},
		"it can't be written out": {prepare: func(s volumeSubject) { fail(s, "FlushFileBuffers", 0, winerr.ErrorIODevice) },
			kind: csiproxy.ErrUnavailable, mounted: true},
		"it can't be unmounted": {prepare: func(s volumeSubject) { fail(s, win.CallDeleteVolumeMountPoint, 0, winerr.ErrorIODevice) },
			kind: csiproxy.ErrUnavailable, mounted: true},
		"it can't be unmounted unlocked either": {prepare: func(s volumeSubject) {
			locked(s)
			fail(s, win.CallDeleteVolumeMountPoint, 1, winerr.ErrorIODevice)
		}, kind: csiproxy.ErrUnavailable, mounted: true},
		"it comes into use meanwhile": {prepare: func(s volumeSubject) {
			locked(s)
			before(s, win.FsctlLockVolume.String(), 2, func() { use(s) })
		}, kind: csiproxy.ErrFailedPrecondition, mounted: true,
			says: []string{"it stays mounted, since something opened it during the unmount by process 2000", image}},
		"whether it is used can't be found out": {prepare: func(s volumeSubject) {
			locked(s)
			fail(s, win.FsctlLockVolume.String(), 1, winerr.ErrorIODevice)
		}, kind: csiproxy.ErrFailedPrecondition, mounted: true, says: []string{"it stays mounted, since Windows doesn't say whether"}},
		"it can't be mounted again": {prepare: func(s volumeSubject) {
			locked(s)
			before(s, win.FsctlLockVolume.String(), 2, func() { use(s) })
			fail(s, win.CallSetVolumeMountPoint, 0, winerr.ErrorIODevice)
		}, kind: csiproxy.ErrFailedPrecondition, says: []string{"it is unmounted and must be staged again", "1117"}},
		"whether it is mounted again can't be found out": {prepare: func(s volumeSubject) {
			locked(s)
			before(s, win.FsctlLockVolume.String(), 2, func() {
				use(s)
				s.sim.OnCall(func(c winsim.Call) {
					if c.Name == win.CallSetVolumeMountPoint {
						s.sim.OnCall(nil)
						fail(s, win.FsctlGetReparsePoint.String(), 0, winerr.ErrorIODevice)
					}
				})
			})
		}, kind: csiproxy.ErrFailedPrecondition, mounted: true,
			says: []string{"it is unmounted and must be staged again", "1117"}},
		"the open says so": {prepare: func(s volumeSubject) {
			use(s)
			s.do(s.sim.Fail(winsim.Match{Call: win.CallOpen, Object: strings.TrimSuffix(string(s.id), `\`), Count: 1},
				winerr.ErrorSharingViolation))
		}, kind: csiproxy.ErrUnavailable, inUse: true, mounted: true},
		"its disk leaves meanwhile": {prepare: func(s volumeSubject) {
			locked(s)
			before(s, win.FsctlLockVolume.String(), 2, func() { s.do(s.sim.DetachDisk(s.number)) })
		}, kind: csiproxy.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			s := mounted(newVolumeNode(t))
			c.prepare(s)
			err := s.unmountUnused(t.Context(), c.force)
			s.sim.OnCall(nil)
			s.sim.ResetRules()
			simtest.WantError(t, err, c.kind)
			for _, text := range c.says {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("the error is %v, want %q in it", err, text)
				}
			}
			if got := nodeops.IsInUse(err); got != c.inUse {
				t.Errorf("in use: %v, want %v: %v", got, c.inUse, err)
			}
			simtest.Want(t, "mounted", s.mountedAt(volumeStaging) != "", c.mounted)
			if c.inUse {
				err = s.volumes.ExplainInUse(t.Context(), err)
				for range 11 {
					use(s)
				}
				simtest.WantError(t, err, csiproxy.ErrFailedPrecondition,
					"it is in use by process 2000 ("+image+"); end the process, or the pod that it belongs to, or force "+
						"the unmount")
				simtest.WantError(t, s.volumes.ExplainInUse(t.Context(), err), csiproxy.ErrFailedPrecondition,
					"process 2036 ("+image+"), 2 more; end the process, or the pod that it belongs to, or force")
			}
		})
	}
}

// failingClose is a node on which files can't be closed while fails is true.
type failingClose struct {
	win.System
	fails *bool
}

func (s failingClose) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := s.System.OpenFile(ctx, path, o)
	return failingCloseFile{f, s.fails}, err
}

type failingCloseFile struct {
	win.File
	fails *bool
}

func (f failingCloseFile) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	child, err := f.File.OpenAt(ctx, name, o)
	return failingCloseFile{child, f.fails}, err
}

func (f failingCloseFile) Close() error {
	if err := f.File.Close(); err != nil || !*f.fails {
		return err
	}
	return winerr.ErrorIODevice
}

// If the directory can't be closed after an unmount without Windows' lock, the volume's second lock is
// released with the first.
func TestUnstageVolumeClosesTheSecondLock(t *testing.T) {
	sim := simtest.Open(t, winsim.Delays{})
	fails, locks := false, 0
	n, err := nodeops.New(failingClose{sim, &fails}, nodeops.Options{})
	simtest.Must(t, err)
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	staged := stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	simtest.Must(t, sim.SetSettings(winsim.Settings{LockedMountPoint: winerr.ErrorAccessDenied}))
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.FsctlLockVolume.String() {
			locks++
			fails = locks == 2
		}
	})
	_, err = n.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	sim.OnCall(nil)
	fails = false
	simtest.WantErrorOf(t, "a directory that can't be closed", err, csiproxy.ErrUnavailable, "1117")
	h, err := win.OpenDevice(t.Context(), sim, win.VolumePath(string(staged.VolumeID)), win.GenericRead)
	simtest.Must(t, err)
	simtest.Must(t, h.LockVolume(t.Context()))
	simtest.Must(t, h.Close())
}

// The error of a volume in use says what to do about each kind of program that has it open, once.
func TestInUseSaysWhatToDo(t *testing.T) {
	for image, want := range map[string]string{
		`C:\ProgramData\Microsoft\Windows Defender\Platform\4.18\MsMpEng.exe`: "exclude kubelet's directory",
		`C:\Windows\System32\fsdmhost.exe`:                                    "Stop-DedupJob",
		`C:\Windows\System32\svchost.exe`:                                     "File Server Resource Manager",
		`C:\Windows\System32\vmcompute.exe`:                                   "end the pod or container",
		`C:\Windows\System32\vmwp.exe`:                                        "end the pod or container",
		`C:\containerd\containerd-shim-runhcs-v1.exe`:                         "end the pod or container",
		`app.exe`: "end the process, or the pod",
	} {
		s := mounted(newVolumeNode(t))
		for range 2 {
			id, err := s.sim.StartProcess(image, strings.TrimSuffix(string(s.id), `\`))
			s.do(err)
			defer s.sim.EndProcess(id)
		}
		text := s.volumes.ExplainInUse(t.Context(), s.unmountUnused(t.Context(), false)).Error()
		if strings.Count(text, want) != 1 || !strings.Contains(text, "or force the unmount") {
			t.Errorf("%s: %s, want %q", image, text, want)
		}
	}
	s := mounted(newVolumeNode(t))
	id, err := s.sim.StartProcess(`C:\app.exe`, strings.TrimSuffix(string(s.id), `\`))
	s.do(err)
	defer s.sim.EndProcess(id)
	s.do(s.sim.SetSettings(winsim.Settings{NoProcessIDs: true}))
	simtest.WantError(t, s.volumes.ExplainInUse(t.Context(), s.unmountUnused(t.Context(), false)), csiproxy.ErrFailedPrecondition,
		"Windows names no process: end the pods and containers")
}
