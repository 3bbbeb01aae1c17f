// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/use"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/unc"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/volume"
)

// node is a simulated node with a disk that has a volume.
type node struct {
	sim    *winsim.System
	number disk.Number
	id     volume.ID
}

func newNode(t *testing.T) node {
	t.Helper()
	sim := simtest.Open(t, winsim.Delays{})
	n := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "moves"})
	simtest.Partition(t, sim, n, 1)
	sim.Settle()
	return node{sim, n, volume.ID(sim.VolumesOfDisk(n)[0])}
}

// process returns the owner of another process.
func (n node) process() *use.Owner { return use.Default(n.sim) }

// taken is a right.
type taken interface{ Release() }

// rights are the ways to get a right.
var rights = []struct {
	name string
	of   int // the object, by its kind
	take func(context.Context, *use.Owner, node, use.Purpose) (taken, error)
}{
	{"disk", 1, func(ctx context.Context, o *use.Owner, n node, purpose use.Purpose) (taken, error) {
		return o.LockDisk(ctx, n.number, purpose)
	}},
	{"disk of a volume", 1, func(ctx context.Context, o *use.Owner, n node, purpose use.Purpose) (taken, error) {
		r, _, err := o.LockDiskOf(ctx, n.id, purpose)
		return r, err
	}},
	{"volume", 2, func(ctx context.Context, o *use.Owner, n node, purpose use.Purpose) (taken, error) {
		return o.LockVolumeAlone(ctx, n.id, purpose)
	}},
	{"server", 3, func(ctx context.Context, o *use.Owner, n node, purpose use.Purpose) (taken, error) {
		return o.LockServer(ctx, share, purpose)
	}},
	{"share", 4, func(ctx context.Context, o *use.Owner, n node, purpose use.Purpose) (taken, error) {
		if purpose == use.ToChange {
			return o.LockShareAlone(ctx, share)
		}
		server, err := o.LockServer(ctx, share, purpose)
		if err != nil {
			return nil, err
		}
		defer server.Release()
		return server.LockShare(ctx, share)
	}},
}

var share = func() unc.Path {
	remote, err := unc.Parse(`\\server\share`)
	if err != nil {
		panic(err)
	}
	return remote
}()

// Who has the right to a disk can take that to its volume, and who has that to a server that to a share
// of it. Other operations that take the second one are excluded.
func TestSecondRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ctx := newNode(t), t.Context()
		owner := n.process()
		d, err := owner.LockDisk(ctx, n.number, use.ToChange)
		simtest.Must(t, err)
		v, err := d.LockVolume(ctx, n.id)
		simtest.Must(t, err)
		server, err := owner.LockServer(ctx, share, use.ToChange)
		simtest.Must(t, err)
		s, err := server.LockShare(ctx, share)
		simtest.Must(t, err)
		for _, r := range rights {
			soon, cancel := context.WithTimeout(ctx, time.Millisecond)
			if _, err := r.take(soon, owner, n, use.ToChange); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s while the right is held: %v", r.name, err)
			}
			cancel()
		}
		for _, held := range []taken{s, server, v, d} {
			held.Release()
		}
		simtest.Want(t, "bytes that are locked", len(n.sim.LockedBytes(lockFile)), 0)
	})
}

// A right excludes another one to the same object, in one process and between two, and no
// other.
func TestExclusion(t *testing.T) {
	for _, first := range rights {
		for _, second := range rights {
			for _, where := range []string{"one process", "two processes"} {
				synctest.Test(t, func(t *testing.T) {
					n := newNode(t)
					one := n.process()
					other := one
					if where == "two processes" {
						other = n.process()
					}
					held, err := first.take(t.Context(), one, n, use.ToChange)
					simtest.Must(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					got, err := second.take(ctx, other, n, use.ToChange)
					// The mappings of a server are excluded by the rights to their shares.
					excluded := first.of == second.of && (other == one || first.name != "server")
					if excluded != errors.Is(err, context.DeadlineExceeded) || excluded != (err != nil) {
						t.Errorf("%s: %s while the right to the %s is held: %v", where, second.name, first.name, err)
					}
					if err == nil {
						got.Release()
					}
					held.Release()
					got, err = second.take(t.Context(), other, n, use.ToChange)
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

// Windows' names of a volume may differ in case. The right is one.
func TestVolumeInOtherCase(t *testing.T) {
	n := newNode(t)
	held, err := n.process().LockVolumeAlone(t.Context(), n.id, use.ToChange)
	simtest.Must(t, err)
	defer held.Release()
	other := volume.ID(`\\?\Volume` + strings.ToUpper(string(n.id)[len(`\\?\Volume`):]))
	if other == n.id || !other.Equal(n.id) {
		t.Fatalf("%s is no other name of %s", other, n.id)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := n.process().LockVolumeAlone(ctx, other, use.ToChange); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the right to %s while that to %s is held: %v", other, n.id, err)
	}
}

// While a right is held, nobody writes to the lock file or deletes it, and everybody who may reads it.
func TestLockFileIsOpenedForReading(t *testing.T) {
	n := newNode(t)
	held, err := n.process().LockVolumeAlone(t.Context(), n.id, use.ToChange)
	simtest.Must(t, err)
	defer held.Release()
	for access, want := range map[win.Access]error{
		win.GenericRead: nil, win.GenericWrite: win.ErrorSharingViolation, win.Delete: win.ErrorSharingViolation,
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
		simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallLockFile, Count: 1}, win.ErrorLockViolation))
		held, err := n.process().LockVolumeAlone(t.Context(), n.id, use.ToChange)
		simtest.Must(t, err)
		begun := time.Now()
		_, err = n.process().LockVolumeAlone(t.Context(), n.id, use.ToChange)
		simtest.WantError(t, err, csiproxy.ErrUnavailable, "another process of CSI Proxy is changing the volume")
		if took := time.Since(begun); took < 10*time.Second {
			t.Errorf("after %v", took)
		}
		held.Release()
	})
}

// lockFile is the file whose bytes are locked.
const lockFile = `C:\Windows\csi-proxy.lock`

var purposes = []use.Purpose{use.ToChange, use.ToRelease}

// Nobody else makes the lock file before CSI Proxy does, and what isn't its own is refused.
func TestLockFileOfOthers(t *testing.T) {
	for name, plant := range map[string]func(*winsim.System) error{
		"a file that others can open": func(sim *winsim.System) error { return sim.WriteFile(lockFile, nil) },
		"a directory":                 func(sim *winsim.System) error { return sim.MkdirAll(lockFile) },
		"a link":                      func(sim *winsim.System) error { return sim.Symlink(lockFile, `C:\Windows`, false) },
	} {
		n := newNode(t)
		simtest.Must(t, plant(n.sim))
		if err := n.process().MakeLockFile(t.Context()); err == nil || !strings.Contains(err.Error(), lockFile) {
			t.Errorf("%s: %v", name, err)
		}
		for _, purpose := range purposes {
			_, err := n.process().LockVolumeAlone(t.Context(), n.id, purpose)
			if err == nil || !strings.Contains(err.Error(), lockFile) {
				t.Errorf("%s, purpose %d: %v", name, purpose, err)
			}
		}
	}
}

// A full disk keeps nobody from releasing, and a lock file that is there needs no room.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, errno := range []win.Errno{win.ErrorDiskFull, win.ErrorHandleDiskFull, win.ErrorWriteProtect} {
			n := newNode(t)
			full := func() { // the first open finds no file, or the one that is there
				n.sim.ResetRules()
				simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallOpen, Object: lockFile, Skip: 1}, errno))
			}
			for _, r := range rights {
				if r.name == "server" { // which other processes don't know
					continue
				}
				full()
				if _, err := r.take(t.Context(), n.process(), n, use.ToChange); !errors.Is(err, errno) {
					t.Errorf("%v, %s: %v", errno, r.name, err)
				}
				full()
				o := n.process()
				held, err := r.take(t.Context(), o, n, use.ToRelease)
				simtest.Must(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if _, err := r.take(ctx, o, n, use.ToRelease); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, %s twice in one process: %v", errno, r.name, err)
				}
				cancel()
				held.Release()
			}
			n.sim.ResetRules()
			simtest.Must(t, n.process().MakeLockFile(t.Context()))
			for _, purpose := range purposes {
				full()
				held, err := n.process().LockVolumeAlone(t.Context(), n.id, purpose)
				simtest.Must(t, err)
				simtest.Want(t, "bytes that are locked", len(n.sim.LockedBytes(lockFile)), 1)
				held.Release()
			}
		}
	})
}

// There is a right to what is gone, but none to a disk that Windows runs from.
func TestObjects(t *testing.T) {
	n := newNode(t)
	owner := n.process()
	if _, err := owner.LockDisk(t.Context(), 0, use.ToChange); csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition {
		t.Errorf("the disk that Windows runs from: %v", err)
	}
	simtest.Must(t, n.sim.DetachDisk(n.number))
	if _, err := owner.LockDisk(t.Context(), n.number, use.ToChange); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a disk that has left: %v", err)
	}
	if _, _, err := owner.LockDiskOf(t.Context(), n.id, use.ToChange); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the disk of a volume that has left: %v", err)
	}
	right, err := owner.LockVolumeAlone(t.Context(), n.id, use.ToChange)
	simtest.Must(t, err)
	right.Release()
	if _, err := owner.LockVolumeAlone(t.Context(), `C:\`, use.ToChange); csiproxy.KindOf(err) != csiproxy.ErrInvalidArgument {
		t.Errorf("no volume id: %v", err)
	}
	if _, _, err := owner.LockDiskOf(t.Context(), `C:\`, use.ToChange); csiproxy.KindOf(err) != csiproxy.ErrInvalidArgument {
		t.Errorf("the disk of no volume id: %v", err)
	}
}

// The disk of a volume gets another number at each call in turn: the right is to the disk that the
// volume lies on, or there is none. Nobody is told that the disk is missing.
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
			d, extent, err := n.process().LockDiskOf(t.Context(), n.id, use.ToChange)
			n.sim.OnCall(nil)
			if err == nil {
				if now := n.sim.VolumesOfDisk(d.Number); extent.DiskNumber != d.Number || len(now) == 0 {
					t.Errorf("at call %d: disk %d has the volumes %q", at, d.Number, now)
				}
				d.Release()
			} else if opening || !win.IsGone(err) {
				t.Errorf("at call %d: %v", at, err)
			}
		})
	}
}

// A disk takes the place of the volume's at each call in turn, with the same contents: the right
// is to the one that is there, or there is none.
func TestDiskIsSwapped(t *testing.T) {
	simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
		n := newNode(t)
		before(n.sim, func(winsim.Call) {
			simtest.Must(t, n.sim.SwapDisk(n.number, winsim.DiskSpec{Serial: "clone"}, true))
		})
		d, _, err := n.process().LockDiskOf(t.Context(), n.id, use.ToChange)
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
			held, err := one.LockVolumeAlone(t.Context(), n.id, use.ToChange)
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
			simtest.Must(t, n.sim.Fail(winsim.Match{Call: "CreateFileW", Count: 1}, win.ErrorIODevice))
			if _, err = other.TryLockVolume(ctx, n.id); !errors.Is(err, win.ErrorIODevice) {
				t.Errorf("%s: %v", where, err)
			}
			cancel()
			if _, err = other.TryLockVolume(ctx, n.id); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", where, err)
			}
		})
	}
}

// Another process changes where a path ends at each call in turn, with the right to what is
// there. The right that LockMountedAt gives is to where the path ends then.
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
					r, err := other.LockVolumeAlone(ctx, volume.ID(to), use.ToChange)
					return r, err
				}
				remote, err := unc.Parse(to)
				simtest.Must(t, err)
				r, err := other.LockShareAlone(ctx, remote)
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
					return // the right is given already
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
				t.Errorf("a %s is changed: there is no right to where the path ends", what)
				r.Release()
			}
		})
	}
}

// What is mounted at a path changes whenever the right to it is there.
func TestMountedAtKeepsChanging(t *testing.T) {
	n := newNode(t)
	number := simtest.Attach(t, n.sim, winsim.DiskSpec{})
	simtest.Partition(t, n.sim, number, 1)
	n.sim.Settle()
	volumes := []string{string(n.id), n.sim.VolumesOfDisk(number)[0]}
	simtest.Mount(t, n.sim, mountPath, volumes[0])
	rights := 0
	n.sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallLockFile {
			rights++
			simtest.Must(t, n.sim.DeleteVolumeMountPoint(t.Context(), mountPath+`\`))
			simtest.Must(t, n.sim.SetVolumeMountPoint(t.Context(), mountPath+`\`, volumes[rights%2]))
		}
	})
	_, _, err := n.process().LockMountedAt(t.Context(), parse(t, mountPath))
	simtest.WantError(t, err, csiproxy.ErrUnavailable)
	simtest.Want(t, "attempts", rights, 4)
}

// A link may lead to a volume by way of what isn't searched. What can't be found out is an error,
// and what the rules forbid, or a volume that is gone, is no use.
func TestLinksAmong(t *testing.T) {
	const (
		mount, other = simtest.Kubelet + `\mount`, simtest.Kubelet + `\other-mount`
		link         = simtest.Kubelet + `\link`
		unsearched   = simtest.Kubelet + `\kubernetes.io~empty-dir\way`
	)
	for name, c := range map[string]struct {
		target string
		errno  win.Errno // of opens in the volume
		times  int
		want   []string
		kind   error
	}{
		"into the volume":                      {target: mount + `\sub`, want: []string{link}},
		"into it when it is silent":            {target: mount + `\sub`, errno: win.ErrorNotReady, times: 100, want: []string{link}},
		"by way of another link":               {target: simtest.Kubelet + `\found\sub`, want: []string{link, simtest.Kubelet + `\found`}},
		"to a mount point behind another link": {target: simtest.Kubelet + `\aside\mount`, want: []string{link}},
		"elsewhere":                            {target: simtest.Kubelet + `\other`},
		"through a way outside":                {target: simtest.Kubelet + `\outside\sub`},
		"by a pod's link":                      {target: unsearched + `\sub`, want: []string{link}},
		"into a volume not ready":              {target: unsearched + `\sub`, errno: win.ErrorNotReady, times: 100, kind: csiproxy.ErrUnavailable},
		"refused by Windows":                   {target: unsearched + `\sub`, errno: win.ErrorAccessDenied, times: 100, kind: csiproxy.ErrUnavailable},
		"by way of what is gone":               {target: unsearched + `\sub`, errno: win.ErrorDeviceNotConnected, times: 100},
		"gone for a moment":                    {target: unsearched + `\sub`, errno: win.ErrorDeviceNotConnected, times: 1, want: []string{link}},
		// Its pods choose what is in it.
		"by a link in another volume": {target: other + `\planted`},
		"into another, silent volume": {target: other + `\sub`, errno: win.ErrorNotReady, times: 100},
	} {
		sim := simtest.Open(t, winsim.Delays{})
		id, _ := simtest.Volume(t, sim)
		simtest.Must(t, sim.MkdirAll(simtest.Kubelet+`\other`))
		simtest.Must(t, sim.MkdirAll(`C:\elsewhere\sub`))
		simtest.Must(t, sim.Symlink(simtest.Kubelet+`\outside`, `C:\elsewhere`, true))
		simtest.Mount(t, sim, mount, id)
		simtest.Must(t, sim.MkdirAll(mount+`\sub`))
		second, _ := simtest.Volume(t, sim)
		simtest.Mount(t, sim, other, second)
		simtest.Must(t, sim.MkdirAll(other+`\sub`))
		simtest.Must(t, sim.Symlink(other+`\planted`, mount, true))
		simtest.Must(t, sim.MkdirAll(strings.TrimSuffix(unsearched, `\way`)))
		simtest.Must(t, sim.Symlink(unsearched, mount, true))
		simtest.Must(t, sim.MkdirAll(simtest.Kubelet+`\plain\mount`))
		simtest.Mount(t, sim, simtest.Kubelet+`\plain\mount`, id)
		simtest.Must(t, sim.Symlink(simtest.Kubelet+`\aside`, simtest.Kubelet+`\plain`, true))
		if strings.Contains(c.target, `\found`) {
			simtest.Must(t, sim.Symlink(simtest.Kubelet+`\found`, mount, true))
		}
		simtest.Must(t, sim.Symlink(link, c.target, true))
		paths, err := pathpolicy.New(simtest.Kubelet)
		simtest.Must(t, err)
		found, incomplete, err := paths.Links(t.Context(), sim)
		simtest.Must(t, errors.Join(incomplete, err))
		all := use.NewLinks(found)
		if c.errno != 0 {
			simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: `sub`, Count: c.times}, c.errno))
		}
		links, err := use.Default(sim).LinksAmong(t.Context(), all, volume.ID(id))
		slices.Sort(links)
		slices.Sort(c.want)
		if !slices.Equal(links, c.want) || c.kind == nil && err != nil || !errors.Is(err, c.kind) {
			t.Errorf("%s: %q, %v", name, links, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = use.Default(sim).LinksAmong(ctx, all, volume.ID(id))
		if csiproxy.KindOf(err) == csiproxy.ErrUnavailable || !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v", name, err)
		}
	}
}
