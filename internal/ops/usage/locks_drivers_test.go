// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// lockers returns the lockers of a process with two drivers, by the driver; "" is the node's.
func (n node) lockers() map[string]*usage.Locker {
	drivers := []string{"red", "blue"}
	shared := usage.NewSharedLocks(drivers)
	lockers := make(map[string]*usage.Locker)
	for _, driver := range append(drivers, "") {
		lockers[driver] = usage.NewLocker(n.sim, pathpolicy.Default(), usage.DefaultFinder(n.sim), usage.LockOptions{Shared: shared, Driver: driver})
	}
	return lockers
}

// A disk's number or a volume's name may change hands. So drivers don't exclude each other. The node and other processes
// exclude all of them, and are excluded by each.
func TestDriversExcludeNode(t *testing.T) {
	for _, r := range ways {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			lockers := n.lockers()
			lockers["another process"] = n.process()
			take := func(who string) (taken, error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return r.take(ctx, lockers[who], n)
			}
			for _, holders := range [][]string{{"red"}, {"red", "blue"}, {"blue", "red"}} {
				var held []taken
				for _, who := range holders {
					lock, err := take(who)
					simtest.Must(t, err)
					held = append(held, lock)
				}
				for len(held) > 0 {
					for _, who := range []string{"", holders[len(holders)-1], "another process"} {
						lock, err := take(who)
						if r.name == "server" && who == "another process" { // the locks of its shares exclude that
							simtest.Must(t, err)
							lock.Release()
							continue
						}
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%s: %v have it, and %q gets %v", r.name, holders, who, err)
						}
					}
					held[0].Release()
					held = held[1:]
				}
				for who := range lockers {
					lock, err := take(who)
					simtest.Must(t, err)
					lock.Release()
				}
				simtest.Want(t, "bytes that are locked", len(n.sim.LockedBytes(lockFile)), 0)
			}
		})
	}
}

// Who locks a disk excludes the calls of its owner. If the owner isn't known, the node excludes all drivers, and a driver the node.
func TestOwnerOfLockedDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		shared := usage.NewSharedLocks([]string{"red", "blue"})
		lock := func(driver, owner string, isKnown bool) (*usage.LockedDisk, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return usage.NewLocker(n.sim, pathpolicy.Default(), usage.DefaultFinder(n.sim), usage.LockOptions{Shared: shared, Driver: driver,
				OwnerOf: func(_ context.Context, disk *opendisk.Disk) (string, bool) {
					simtest.Want(t, "the disk", disk.Number, n.number)
					return owner, isKnown
				}}).LockDisk(ctx, n.number)
		}
		for _, test := range []struct {
			driver      string
			driverKnows bool
			owner       string // of the node's disk
			nodeKnows   bool
			excluded    bool
		}{
			{"red", true, "", true, false},
			{"red", true, "blue", true, false},
			{"red", true, "red", true, true},
			{"red", true, "", false, true},
			{"red", false, "", true, true},
		} {
			held, err := lock(test.driver, test.driver, test.driverKnows)
			simtest.Must(t, err)
			node, err := lock("", test.owner, test.nodeKnows)
			simtest.Want(t, fmt.Sprintf("%+v: excluded", test), errors.Is(err, context.DeadlineExceeded), test.excluded)
			if err == nil {
				simtest.Want(t, "bytes that are locked", len(n.sim.LockedBytes(lockFile)), 1)
				node.Release()
			}
			held.Release()
			simtest.Want(t, "bytes that are locked", len(n.sim.LockedBytes(lockFile)), 0)
		}
	})
}

// A driver whose lock comes right after another driver's doesn't take that for another process.
func TestDriversLockAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		lockers := n.lockers()
		var first *usage.LockedVolume
		n.sim.OnCall(func(c winsim.Call) {
			if c.Name == win.CallLockFile {
				n.sim.OnCall(nil)
				var err error
				first, err = lockers["blue"].LockVolumeOnly(t.Context(), n.id)
				simtest.Must(t, err)
			}
		})
		begun := time.Now()
		second, err := lockers["red"].LockVolumeOnly(t.Context(), n.id)
		simtest.Must(t, err)
		simtest.Want(t, "it took", time.Since(begun), 0)
		first.Release()
		simtest.Want(t, "bytes that are locked", len(n.sim.LockedBytes(lockFile)), 1)
		second.Release()
		simtest.Want(t, "bytes that are locked", len(n.sim.LockedBytes(lockFile)), 0)
	})
}

// A driver locks its own volumes. One that is missing may be another driver's: it can be released, but not changed.
func TestVolumeOfDriver(t *testing.T) {
	n := newNode(t)
	for _, test := range []struct {
		name         string
		isThere      bool
		err          error
		change, free error // of a change, and of an operation that only ends a use
	}{
		{"its own", true, nil, nil, nil},
		{"missing", false, nil, csiproxy.ErrNotFound, nil},
		{"another's", true, csiproxy.ErrNotFound, csiproxy.ErrNotFound, csiproxy.ErrNotFound},
		{"unknown", false, winerr.ErrorIODevice, winerr.ErrorIODevice, winerr.ErrorIODevice},
	} {
		l := usage.NewLocker(n.sim, pathpolicy.Default(), usage.DefaultFinder(n.sim), usage.LockOptions{Driver: "red",
			HasVolume: func(_ context.Context, id csiproxy.VolumeID) (bool, error) {
				simtest.Want(t, "the volume", id, n.id)
				return test.isThere, test.err
			}})
		for range 2 { // the first lock is released
			locked, err := l.LockVolumeOnly(t.Context(), n.id)
			simtest.WantErrorOf(t, test.name, err, test.free)
			if err == nil {
				locked.Release()
			}
			d, err := l.LockDisk(t.Context(), n.number)
			simtest.Must(t, err)
			locked, err = d.LockVolume(t.Context(), n.id)
			simtest.WantErrorOf(t, test.name+", for a change", err, test.change)
			if err == nil {
				locked.Release()
			}
			d.Release()
			simtest.Want(t, test.name+": bytes that are locked", len(n.sim.LockedBytes(lockFile)), 0)
		}
	}
}

// A missing volume may be that of anybody. So while a driver releases one, it excludes only its own calls, also those that come once
// the volume is there.
func TestMissingVolumeOfDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		isThere := false
		shared := usage.NewSharedLocks([]string{"red", "blue"})
		of := func(driver string) *usage.Locker {
			o := usage.LockOptions{Driver: driver, Shared: shared}
			if driver != "" {
				o.HasVolume = func(context.Context, csiproxy.VolumeID) (bool, error) { return isThere, nil }
			}
			return usage.NewLocker(n.sim, pathpolicy.Default(), usage.DefaultFinder(n.sim), o)
		}
		lock := func(l *usage.Locker) (*usage.LockedVolume, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return l.LockVolumeOnly(ctx, n.id)
		}
		missing, err := lock(of("red"))
		simtest.Must(t, err)
		for who, l := range map[string]*usage.Locker{"the node": of(""), "another process": n.process(), "another driver": of("blue")} {
			other, err := lock(l)
			if err != nil {
				t.Errorf("%s waits: %v", who, err)
				continue
			}
			other.Release()
		}
		for _, isThere = range []bool{false, true} {
			_, err = lock(of("red"))
			simtest.WantErrorOf(t, "the driver's next call", err, context.DeadlineExceeded)
		}
		missing.Release()
		again, err := lock(of("red"))
		simtest.Must(t, err)
		_, err = lock(of(""))
		simtest.WantErrorOf(t, "the node, once the volume is there", err, context.DeadlineExceeded)
		again.Release()
		node, err := lock(of(""))
		simtest.Must(t, err)
		node.Release()
	})
}

// A driver can't lock a server or share that isn't its own.
func TestShareOfDriver(t *testing.T) {
	n := newNode(t)
	for _, own := range []bool{true, false} {
		paths := pathpolicy.Default().Within(pathpolicy.DriverPaths{Driver: "red", Share: func(path string) bool {
			simtest.Want(t, "the share", path, share.Root())
			return own
		}})
		l := usage.NewLocker(n.sim, paths, usage.DefaultFinder(n.sim), usage.LockOptions{Driver: "red"})
		for _, r := range ways {
			if r.name != "server" && r.name != "share" {
				continue
			}
			lock, err := r.take(t.Context(), l, n)
			simtest.Want(t, "the "+r.name+" is refused", errors.Is(err, csiproxy.ErrPermissionDenied), !own)
			if err == nil {
				lock.Release()
			}
		}
	}
}
