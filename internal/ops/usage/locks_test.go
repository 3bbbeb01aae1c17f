// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// process returns the locker of another process.
func (n node) process() *usage.Locker { return usage.DefaultLocker(n.sim) }

// taken is a lock.
type taken interface{ Release() }

// ways are the ways to get a lock.
var ways = []struct {
	name string
	of   int // the object, by its kind
	take func(context.Context, *usage.Locker, node) (taken, error)
}{
	{"disk", 1, func(ctx context.Context, l *usage.Locker, n node) (taken, error) {
		return l.LockDisk(ctx, n.number)
	}},
	{"disk of a volume", 1, func(ctx context.Context, l *usage.Locker, n node) (taken, error) {
		r, _, err := l.LockDiskOf(ctx, n.id)
		return r, err
	}},
	{"volume", 2, func(ctx context.Context, l *usage.Locker, n node) (taken, error) {
		return l.LockVolumeOnly(ctx, n.id)
	}},
	{"server", 3, func(ctx context.Context, l *usage.Locker, n node) (taken, error) {
		return l.LockServer(ctx, share)
	}},
	{"share", 4, func(ctx context.Context, l *usage.Locker, n node) (taken, error) {
		return l.LockShareOnly(ctx, share)
	}},
}

var share = func() win.UNCPath {
	remote, err := win.ParseUNC(`\\server\share`)
	if err != nil {
		panic(err)
	}
	return remote
}()

// Who has a disk locked can lock its volume, and who has a server locked a share of it. Other operations
// that lock the second one are excluded.
func TestSecondLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ctx := newNode(t), t.Context()
		locker := n.process()
		d, err := locker.LockDisk(ctx, n.number)
		simtest.Must(t, err)
		v, err := d.LockVolume(ctx, n.id)
		simtest.Must(t, err)
		server, err := locker.LockServer(ctx, share)
		simtest.Must(t, err)
		s, err := server.LockShare(ctx, share)
		simtest.Must(t, err)
		for _, r := range ways {
			soon, cancel := context.WithTimeout(ctx, time.Millisecond)
			if _, err := r.take(soon, locker, n); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s while it is locked: %v", r.name, err)
			}
			cancel()
		}
		for _, held := range []taken{s, server, v, d} {
			held.Release()
		}
		simtest.Want(t, "bytes that are locked", len(n.sim.LockedBytes(lockFile)), 0)
	})
}

// A lock excludes another one of the same object, in one process and between two, and no
// other.
func TestExclusion(t *testing.T) {
	for _, first := range ways {
		for _, second := range ways {
			for _, where := range []string{"one process", "two processes"} {
				synctest.Test(t, func(t *testing.T) {
					n := newNode(t)
					one := n.process()
					other := one
					if where == "two processes" {
						other = n.process()
					}
					held, err := first.take(t.Context(), one, n)
					simtest.Must(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					got, err := second.take(ctx, other, n)
					// The mappings of a server are excluded by the locks of their shares.
					excluded := first.of == second.of && (other == one || first.name != "server")
					if excluded != errors.Is(err, context.DeadlineExceeded) || excluded != (err != nil) {
						t.Errorf("%s: %s while the %s is locked: %v", where, second.name, first.name, err)
					}
					if err == nil {
						got.Release()
					}
					held.Release()
					got, err = second.take(t.Context(), other, n)
					simtest.Must(t, err)
					got.Release()
					if locked := n.sim.LockedBytes(lockFile); len(locked) > 0 {
						t.Errorf("the bytes %d are left locked", locked)
					}
				})
			}
		}
	}
}

// Windows' names of a volume may differ in case. The lock is one.
func TestVolumeInOtherCase(t *testing.T) {
	n := newNode(t)
	held, err := n.process().LockVolumeOnly(t.Context(), n.id)
	simtest.Must(t, err)
	defer held.Release()
	other := csiproxy.VolumeID(`\\?\Volume` + strings.ToUpper(string(n.id)[len(`\\?\Volume`):]))
	if other == n.id || !other.Equal(n.id) {
		t.Fatalf("%s is no other name of %s", other, n.id)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := n.process().LockVolumeOnly(ctx, other); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s can be locked while %s is: %v", other, n.id, err)
	}
}

// While something is locked, nobody writes to the lock file or deletes it, and everybody who may reads it.
func TestLockFileIsOpenedForReading(t *testing.T) {
	n := newNode(t)
	held, err := n.process().LockVolumeOnly(t.Context(), n.id)
	simtest.Must(t, err)
	defer held.Release()
	for access, want := range map[win.Access]error{
		win.GenericRead: nil, win.GenericWrite: winerr.ErrorSharingViolation, win.Delete: winerr.ErrorSharingViolation,
	} {
		f, err := n.sim.OpenFile(t.Context(), lockFile, win.OpenOptions{Access: access, Share: win.ShareRead,
			Disposition: win.FileOpen})
		if !errors.Is(err, want) {
			t.Errorf("access %x: %v, want %v", access, err, want)
		}
		if err == nil {
			simtest.Must(t, f.Close())
		}
	}
}

// Another process is waited for, and then named.
func TestAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		// Its byte may be locked for a moment after the file is closed.
		simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallLockFile, Count: 1}, winerr.ErrorLockViolation))
		held, err := n.process().LockVolumeOnly(t.Context(), n.id)
		simtest.Must(t, err)
		begun := time.Now()
		_, err = n.process().LockVolumeOnly(t.Context(), n.id)
		simtest.WantError(t, err, csiproxy.ErrUnavailable, "another process of CSI Proxy is changing the volume")
		if took := time.Since(begun); took < 10*time.Second {
			t.Errorf("after %v", took)
		}
		held.Release()
	})
}

// lockFile is the file whose bytes are locked.
const lockFile = `C:\Windows\csi-proxy.lock`

// Nobody else makes the lock file before CSI Proxy does, and what isn't its own is refused.
func TestLockFileOfOthers(t *testing.T) {
	for name, plant := range map[string]func(*winsim.System) error{
		"a file that others can open": func(sim *winsim.System) error { return sim.WriteFile(lockFile, nil) },
		"a directory":                 func(sim *winsim.System) error { return sim.MkdirAll(lockFile) },
		"a link":                      func(sim *winsim.System) error { return sim.Symlink(lockFile, `C:\Windows`, false) },
	} {
		n := newNode(t)
		simtest.Must(t, plant(n.sim))
		if _, err := n.process().KeepLockFile(t.Context()); err == nil || !strings.Contains(err.Error(), lockFile) {
			t.Errorf("%s: %v", name, err)
		}
		_, err := n.process().LockVolumeOnly(t.Context(), n.id)
		if err == nil || !strings.Contains(err.Error(), lockFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The lock file that a process keeps can't be deleted, and locks need no room then.
func TestFullDisk(t *testing.T) {
	for _, errno := range []winerr.Errno{winerr.ErrorDiskFull, winerr.ErrorHandleDiskFull, winerr.ErrorWriteProtect} {
		n := newNode(t)
		full := func(fires winsim.Fires) { // the first open finds no file, or the one that is there
			n.sim.ResetRules()
			simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallOpen, Object: lockFile, Skip: 1, Count: 1, Fires: fires}, errno))
		}
		full(winsim.MustFire)
		_, err := n.process().LockVolumeOnly(t.Context(), n.id)
		simtest.WantErrorOf(t, "without a lock file", err, errno, lockFile)
		n.sim.ResetRules()
		keeper := n.process()
		kept, err := keeper.KeepLockFile(t.Context())
		simtest.Must(t, err)
		if err := n.sim.Remove(lockFile); err == nil {
			t.Error("the lock file was deleted while a process keeps it")
		}
		full(winsim.MustNotFire)
		held, err := n.process().LockVolumeOnly(t.Context(), n.id) // another process, as with the library
		simtest.Must(t, err)
		held.Release()
		n.sim.ResetRules()
		calls := simtest.Counted(n.sim, win.CallOpen, win.CallQuerySecurity, "GetSystemWindowsDirectoryW")
		held, err = keeper.LockVolumeOnly(t.Context(), n.id)
		simtest.Must(t, err)
		simtest.Want(t, "calls for a lock of the process that keeps it", calls(), []int{1, 0, 0})
		held.Release()
		n.sim.ResetRules()
		simtest.Must(t, kept.Close())
	}
}

// What is gone can be locked, and a disk that Windows runs from can't.
func TestObjects(t *testing.T) {
	n := newNode(t)
	locker := n.process()
	if _, err := locker.LockDisk(t.Context(), 0); csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition {
		t.Errorf("the disk that Windows runs from: %v", err)
	}
	simtest.Must(t, n.sim.DetachDisk(n.number))
	if _, err := locker.LockDisk(t.Context(), n.number); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a disk that has left: %v", err)
	}
	if _, _, err := locker.LockDiskOf(t.Context(), n.id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the disk of a volume that has left: %v", err)
	}
	held, err := locker.LockVolumeOnly(t.Context(), n.id)
	simtest.Must(t, err)
	held.Release()
	if _, err := locker.LockVolumeOnly(t.Context(), `C:\`); csiproxy.KindOf(err) != csiproxy.ErrInvalidArgument {
		t.Errorf("no volume id: %v", err)
	}
	if _, _, err := locker.LockDiskOf(t.Context(), `C:\`); csiproxy.KindOf(err) != csiproxy.ErrInvalidArgument {
		t.Errorf("the disk of no volume id: %v", err)
	}
}

// The disk of a volume gets another number at each call in turn: the disk is locked that the
// volume lies on, or none is. Nobody is told that the disk is missing.
func TestDiskGetsAnotherNumber(t *testing.T) {
	for at, more := 0, true; more || at%2 == 1; at++ { // each call twice
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			more = false
			opening := false
			simtest.BeforeCalls(n.sim, func(i int, c winsim.Call) {
				if i != at/2 {
					return
				}
				more, opening = true, c.Name == "CreateFileW" && strings.Contains(c.Object, "PhysicalDrive1")
				simtest.Must(t, n.sim.DetachDisk(n.number))
				other := simtest.Attach(t, n.sim, winsim.DiskSpec{Serial: "other"})
				simtest.Attach(t, n.sim, winsim.DiskSpec{Serial: "moves"})
				if at%2 == 0 { // else that has the number now
					simtest.Must(t, n.sim.DetachDisk(other))
				}
				n.sim.Settle()
			})
			d, extent, err := n.process().LockDiskOf(t.Context(), n.id)
			n.sim.OnCall(nil)
			if err == nil {
				if now := n.sim.VolumesOfDisk(d.Number); extent.DiskNumber != d.Number || len(now) == 0 {
					t.Errorf("at call %d: disk %d has the volumes %q", at, d.Number, now)
				}
				d.Release()
			} else if opening || !winerr.IsGone(err) {
				t.Errorf("at call %d: %v", at, err)
			}
		})
	}
}

// A disk takes the place of the volume's at each call in turn, with the same contents: the one
// that is there is locked, or none is.
func TestDiskIsSwapped(t *testing.T) {
	simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
		n := newNode(t)
		before(n.sim, func(winsim.Call) {
			simtest.Must(t, n.sim.SwapDisk(n.number, winsim.DiskSpec{Serial: "clone"}, true))
		})
		d, _, err := n.process().LockDiskOf(t.Context(), n.id)
		n.sim.OnCall(nil)
		if err == nil {
			simtest.WantError(t, d.Verify(t.Context()), nil)
			d.Release()
		}
	})
}

// Who holds directories open waits for a moment only.
func TestTryLockVolume(t *testing.T) {
	for _, where := range []string{"one process", "two processes"} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			one := n.process()
			other := one
			if where == "two processes" {
				other = n.process()
			}
			held, err := one.LockVolumeOnly(t.Context(), n.id)
			simtest.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err = other.TryLockVolume(ctx, n.id)
			simtest.WantError(t, err, csiproxy.ErrUnavailable)
			if ctx.Err() != nil {
				t.Errorf("%s: it waits on: %v", where, err)
			}
			held.Release()
			got, err := other.TryLockVolume(ctx, n.id)
			simtest.Must(t, err)
			got.Release()
			// Another reason than that isn't taken for it.
			simtest.Must(t, n.sim.Fail(winsim.Match{Call: "CreateFileW", Count: 1}, winerr.ErrorIODevice))
			if _, err = other.TryLockVolume(ctx, n.id); !errors.Is(err, winerr.ErrorIODevice) {
				t.Errorf("%s: %v", where, err)
			}
			cancel()
			if _, err = other.TryLockVolume(ctx, n.id); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", where, err)
			}
		})
	}
}

// Another process changes where a path ends at each call in turn, and locks what is there for
// that. LockMountedAt locks where the path ends then.
func TestMountedAt(t *testing.T) {
	const path = simtest.Kubelet + `\path`
	parsed := parse(t, path)
	for what, kind := range map[string]pathpolicy.Kind{
		"volume": pathpolicy.MountedVolume, "share": pathpolicy.SharedDirectory,
	} {
		simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
			n := newNode(t)
			number := simtest.Attach(t, n.sim, winsim.DiskSpec{})
			simtest.Partition(t, n.sim, number, 1)
			n.sim.Settle()
			ends := map[pathpolicy.Kind][]string{
				pathpolicy.MountedVolume:   {string(n.id), n.sim.VolumesOfDisk(number)[0]},
				pathpolicy.SharedDirectory: {`\\server\share`, `\\server\other`},
			}[kind]
			lead := func(to string) error {
				if kind == pathpolicy.SharedDirectory {
					return n.sim.Symlink(path, to, true)
				}
				return n.sim.SetVolumeMountPoint(t.Context(), path+`\`, to)
			}
			other := n.process()
			take := func(to string) (taken, error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if kind == pathpolicy.MountedVolume {
					r, err := other.LockVolumeOnly(ctx, csiproxy.VolumeID(to))
					return r, err
				}
				remote, err := win.ParseUNC(to)
				simtest.Must(t, err)
				r, err := other.LockShareOnly(ctx, remote)
				return r, err
			}
			simtest.Must(t, n.sim.MkdirAll(simtest.Kubelet))
			if kind == pathpolicy.MountedVolume {
				simtest.Must(t, n.sim.MkdirAll(path))
			}
			simtest.Must(t, lead(ends[0]))
			ended := 0
			before(n.sim, func(winsim.Call) {
				r, err := take(ends[0])
				if err != nil {
					return // it is locked already
				}
				defer r.Release()
				if kind == pathpolicy.MountedVolume {
					err = n.sim.DeleteVolumeMountPoint(t.Context(), path+`\`)
				} else {
					err = n.sim.Remove(path)
				}
				if err == nil {
					simtest.Must(t, lead(ends[1]))
					ended = 1
				}
			})
			to, release, err := n.process().LockMountedAt(t.Context(), parsed)
			n.sim.OnCall(nil)
			simtest.Must(t, err)
			defer release()
			if to.Kind != kind || strings.TrimSuffix(to.Target, `\`) != strings.TrimSuffix(ends[ended], `\`) {
				t.Errorf("a %s is changed: the path ends at %q, not at %q", what, to.Target, ends[ended])
			}
			if r, err := take(ends[ended]); err == nil {
				t.Errorf("a %s is changed: where the path ends isn't locked", what)
				r.Release()
			}
		})
	}
}

// What is mounted at a path changes whenever it has been locked.
func TestMountedAtKeepsChanging(t *testing.T) {
	n := newNode(t)
	number := simtest.Attach(t, n.sim, winsim.DiskSpec{})
	simtest.Partition(t, n.sim, number, 1)
	n.sim.Settle()
	volumes := []string{string(n.id), n.sim.VolumesOfDisk(number)[0]}
	simtest.Mount(t, n.sim, mountPath, volumes[0])
	locked := 0
	n.sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallLockFile {
			locked++
			simtest.Must(t, n.sim.DeleteVolumeMountPoint(t.Context(), mountPath+`\`))
			simtest.Must(t, n.sim.SetVolumeMountPoint(t.Context(), mountPath+`\`, volumes[locked%2]))
		}
	})
	_, _, err := n.process().LockMountedAt(t.Context(), parse(t, mountPath))
	simtest.WantError(t, err, csiproxy.ErrUnavailable)
	simtest.Want(t, "attempts", locked, 4)
}
