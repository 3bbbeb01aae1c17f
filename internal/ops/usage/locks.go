// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// LockOptions change what a Locker locks. The zero value is the default.
type LockOptions struct {
	// Logger gets what an operation passes over without failing. Default: none.
	Logger *slog.Logger
	// Shared is what the lockers of a node and of its drivers have in common. Default: it is the locker's alone.
	Shared *SharedLocks
	// Driver is the name of the driver whose locker it is. Default: it is the node's.
	Driver string
	// OwnerOf returns the driver that has an open disk for as long as the disk is there; "" if none has. If the owner may change, or
	// is only presumed, isKnown is false. Default: the disks of a driver's locker are the driver's, and the owners of others aren't known.
	OwnerOf func(ctx context.Context, disk *opendisk.Disk) (driver string, isKnown bool)
	// HasVolume reports whether a volume is there: to a driver, another's volume isn't. Default: all volumes may be
	// locked.
	HasVolume func(ctx context.Context, id csiproxy.VolumeID) (isThere bool, _ error)
}

// SharedLocks is what the lockers of a node and of its drivers have in common: the locks that are held in this process, by the bytes
// that stand for objects, and these bytes.
type SharedLocks struct {
	held  *operation.DriverLocks
	bytes lockedBytes
	kept  atomic.Pointer[string] // the path of the lock file once this process keeps it
}

// NewSharedLocks returns what the lockers of a node share with those of its drivers.
func NewSharedLocks(drivers []string) *SharedLocks {
	return &SharedLocks{held: operation.NewDriverLocks(drivers), bytes: lockedBytes{held: make(map[int64]*lockedByte)}}
}

// Locker locks objects of a node, or those of one driver. All groups of operations on the node or of the driver use the
// same Locker, so that they exclude each other within the process. All methods may be called concurrently.
type Locker struct {
	sys     System
	paths   *pathpolicy.Policy
	users   *Finder
	options LockOptions
}

// NewLocker returns the locker of the node sys, or of a driver. It locks what can be opened with sys, volumes and shares mounted
// at paths that paths allows, and shares of the servers that paths allows. The disks that Windows runs from, which only
// users knows, can't be locked.
func NewLocker(sys System, paths *pathpolicy.Policy, users *Finder, o LockOptions) *Locker {
	o.Logger, o.Shared = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.Shared, NewSharedLocks(nil))
	if o.OwnerOf == nil {
		o.OwnerOf = func(context.Context, *opendisk.Disk) (string, bool) { return o.Driver, o.Driver != "" }
	}
	return &Locker{sys, paths, users, o}
}

// DefaultLocker returns the locker of a node whose only allowed directory is kubelet's.
func DefaultLocker(sys System) *Locker {
	return NewLocker(sys, pathpolicy.Default(), DefaultFinder(sys), LockOptions{})
}

// LockedDisk is an open disk that is locked for a change of its state, of its partition table or of what
// lies on its partitions.
type LockedDisk struct {
	*opendisk.Disk
	*lock
}

// Release closes the disk and releases the locks.
func (d *LockedDisk) Release() {
	d.Close()
	d.lock.Release()
}

// LockedVolume is a volume that is locked for a change of where it is mounted, or of the links to it. Its
// disk may have left the node.
type LockedVolume struct {
	ID csiproxy.VolumeID
	*lock
}

// LockedServer is an SMB server that is locked for a change of its mappings.
type LockedServer struct{ *lock }

// LockedShare is a share that is locked for a change of its mapping or of the links to it.
type LockedShare struct {
	Root string
	*lock
}

// lock is two locks: one in this process, and one against other processes.
type lock struct {
	locker  *Locker
	unlock  func() // releases the lock in this process
	include func() // releases the lock against other processes
}

// Release releases the locks. It is to be called once.
func (k *lock) Release() {
	k.include()
	k.unlock()
}

// with returns the lock with another one of this process, which is released last.
func (k *lock) with(unlock func()) *lock {
	return &lock{k.locker, unlock, k.Release}
}

// keyOf returns the key of the lock in this process of what a byte stands for.
func keyOf(offset int64) string { return strconv.FormatInt(offset, 10) }

// take takes both locks of an object, given by its kind and its name. It is the driver's, or its owner isn't known.
func (l *Locker) take(ctx context.Context, k kind, name string) (taken *lock, _ error) {
	return l.takeOf(ctx, l.options.Driver, l.options.Driver != "", k, name)
}

// takeOf is take for an object of an owner.
func (l *Locker) takeOf(ctx context.Context, owner string, isKnown bool, k kind, name string) (taken *lock, _ error) {
	offset, held := byteOf(k, name), l.options.Shared.held
	unlock, err := held.Lock(ctx, held.Owners(l.options.Driver, owner, isKnown), keyOf(offset), kinds[k]+" "+quote.Text(name))
	if err != nil {
		return nil, err
	}
	defer func() { // also after a panic, which the daemon survives
		if taken == nil {
			unlock()
		}
	}()
	include := func() {}
	if k != serverLock { // other processes are excluded by the locks of the server's shares
		if include, err = l.exclude(ctx, k, offset); err != nil {
			return nil, err
		}
	}
	return &lock{l, unlock, include}, nil
}

// LockDisk locks the disk that has the number n now. If there is none, the error is
// csiproxy.ErrNotFound; if Windows runs from the disk, it is csiproxy.ErrFailedPrecondition.
//
// LockDisk opens the disk before it waits for the lock. Meanwhile the disk may leave, or get another
// number. So the caller verifies the disk directly before each change.
func (l *Locker) LockDisk(ctx context.Context, n csiproxy.DiskNumber) (lockedDisk *LockedDisk, _ error) {
	h, err := opendisk.Open(ctx, l.sys, n, win.GenericRead|win.GenericWrite)
	if err != nil {
		return nil, err
	}
	defer func() {
		if lockedDisk == nil {
			h.Close()
		}
	}()
	owner, isKnown := l.options.OwnerOf(ctx, h)
	r, err := l.takeOf(ctx, owner, isKnown, diskLock, n.String())
	if err != nil {
		return nil, err
	}
	defer func() {
		if lockedDisk == nil {
			r.Release()
		}
	}()
	if err := l.users.CheckSystemDisk(ctx, n); err != nil {
		return nil, err
	}
	return &LockedDisk{h, r}, nil
}

// LockDiskOf locks the disk of a volume, and returns the volume's extent. Windows refuses to format a volume with an
// open handle, so LockDiskOf closes its own.
func (l *Locker) LockDiskOf(ctx context.Context, id csiproxy.VolumeID) (*LockedDisk, win.DiskExtent, error) {
	for {
		extent, err := Extent(ctx, l.sys, id)
		if err != nil {
			return nil, extent, err
		}
		lockedDisk, lockedExtent, err := l.tryLockDiskOf(ctx, id, extent.DiskNumber)
		if err != nil || lockedDisk != nil {
			return lockedDisk, lockedExtent, err
		}
		// The disk got another number while tryLockDiskOf waited for the lock.
	}
}

// tryLockDiskOf is LockDiskOf for a volume that lay on disk n a moment ago. It returns a nil disk if the
// volume lies on a disk of another number once disk n is locked.
func (l *Locker) tryLockDiskOf(ctx context.Context, id csiproxy.VolumeID, n csiproxy.DiskNumber) (
	_ *LockedDisk, extent win.DiskExtent, _ error) {
	lockedDisk, err := l.LockDisk(ctx, n)
	if err != nil {
		if extentAfter, extentErr := Extent(ctx, l.sys, id); extentErr == nil && extentAfter.DiskNumber != n {
			return nil, extent, nil
		}
		return nil, extent, err
	}
	lies := false
	defer func() {
		if !lies {
			lockedDisk.Release()
		}
	}()
	// The call that had the lock before may have grown the volume.
	extent, err = Extent(ctx, l.sys, id)
	if err != nil || extent.DiskNumber != n {
		return nil, extent, err
	}
	if err := lockedDisk.Verify(ctx); err != nil { // if nil, the number in extent was that of this disk
		return nil, extent, err
	}
	lies = true
	return lockedDisk, extent, nil
}

// LockVolume locks a volume for a caller that has a disk locked, mostly the volume's.
func (d *LockedDisk) LockVolume(ctx context.Context, id csiproxy.VolumeID) (*LockedVolume, error) {
	return d.locker.lockOwnVolume(ctx, id)
}

// LockVolumeAlone locks a volume without its disk, which may have left, for a caller that only ends a use of it. The owner of
// a missing volume is unknown: any driver may have a mount point of it. So a driver that locks one excludes only its own calls.
func (l *Locker) LockVolumeAlone(ctx context.Context, id csiproxy.VolumeID) (*LockedVolume, error) {
	v, _, err := l.lockVolume(ctx, id)
	return v, err
}

// lockOwnVolume locks a volume for a change, or a new use. A driver can't lock a missing one.
func (l *Locker) lockOwnVolume(ctx context.Context, id csiproxy.VolumeID) (*LockedVolume, error) {
	v, isThere, err := l.lockVolume(ctx, id)
	if err == nil && !isThere {
		v.Release()
		return nil, csiproxy.Errorf(csiproxy.ErrNotFound, "the volume isn't there")
	}
	return v, err
}

func (l *Locker) lockVolume(ctx context.Context, id csiproxy.VolumeID) (locked *LockedVolume, isThere bool, _ error) {
	if err := id.Validate(); err != nil {
		return nil, false, err
	}
	guid := strings.ToLower(strings.TrimSuffix(string(id)[len(`\\?\Volume{`):], `}\`))
	if l.options.HasVolume == nil {
		r, err := l.take(ctx, volumeLock, guid)
		if err != nil {
			return nil, false, err
		}
		return &LockedVolume{id, r}, true, nil
	}
	unlock, err := l.options.Shared.held.Lock(ctx, []string{l.options.Driver}, keyOf(byteOf(ownVolumeLock, guid)), kinds[ownVolumeLock]+" "+quote.Text(guid))
	if err != nil {
		return nil, false, err
	}
	defer func() { // also after a panic, which the daemon survives
		if locked == nil {
			unlock()
		}
	}()
	if isThere, err = l.options.HasVolume(ctx, id); err != nil {
		return nil, false, err
	}
	if !isThere {
		return &LockedVolume{id, &lock{l, unlock, func() {}}}, false, nil
	}
	r, err := l.take(ctx, volumeLock, guid)
	if err != nil {
		return nil, false, err
	}
	return &LockedVolume{id, r.with(unlock)}, true, nil
}

// tryTimeout is how long TryLockVolume waits.
const tryTimeout = time.Second

// TryLockVolume is LockVolumeAlone for a caller that only releases and holds directories open. The call that
// has the lock may wait for one of these directories, so TryLockVolume waits for tryTimeout only. Then it
// returns csiproxy.ErrUnavailable.
func (l *Locker) TryLockVolume(ctx context.Context, id csiproxy.VolumeID) (*LockedVolume, error) {
	soon, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	v, err := l.LockVolumeAlone(soon, id)
	if err != nil && ctx.Err() == nil && soon.Err() != nil {
		err = csiproxy.Errorf(csiproxy.ErrUnavailable,
			"another call is changing where the volume at this path is mounted; try again later")
	}
	return v, err
}

// LockServer locks the server of remote.
func (l *Locker) LockServer(ctx context.Context, remote win.UNCPath) (*LockedServer, error) {
	if err := l.paths.CheckShare(remote.Root()); err != nil {
		return nil, err
	}
	r, err := l.take(ctx, serverLock, remote.Server())
	if err != nil {
		return nil, err
	}
	return &LockedServer{r}, nil
}

// LockShare locks a share for a caller that has its server locked, and so may map it.
func (s *LockedServer) LockShare(ctx context.Context, remote win.UNCPath) (*LockedShare, error) {
	return s.locker.lockShare(ctx, remote)
}

// LockShareAlone locks the share of remote for a caller that changes links only.
func (l *Locker) LockShareAlone(ctx context.Context, remote win.UNCPath) (*LockedShare, error) {
	return l.lockShare(ctx, remote)
}

func (l *Locker) lockShare(ctx context.Context, remote win.UNCPath) (*LockedShare, error) {
	if err := l.paths.CheckShare(remote.Root()); err != nil {
		return nil, err
	}
	r, err := l.take(ctx, shareLock, remote.Root())
	if err != nil {
		return nil, err
	}
	return &LockedShare{remote.Root(), r}, nil
}

// LockMountedAt locks the volume or share that is mounted where a path ends. So that isn't unmounted
// or unmapped until release is called. If the path ends elsewhere, nothing needs a lock, and release
// does nothing. to is where the path ends once that is locked.
func (l *Locker) LockMountedAt(ctx context.Context, path pathpolicy.Path) (
	to pathpolicy.Resolved, release func(), _ error) {
	const attempts = 4
	for range attempts {
		to, release, err := l.tryLockMountedAt(ctx, path)
		if err != nil || release != nil {
			return to, release, err
		}
	}
	return to, nil, csiproxy.Errorf(csiproxy.ErrUnavailable,
		"other calls keep changing what is mounted there; try again later")
}

// tryLockMountedAt is LockMountedAt, but release is nil if the path ends elsewhere once that is locked.
func (l *Locker) tryLockMountedAt(ctx context.Context,
	path pathpolicy.Path) (to pathpolicy.Resolved, release func(), _ error) {
	// The first lookup only says what to lock.
	resolved, err := l.paths.Lookup(ctx, l.sys, path)
	if err == nil && resolved.Kind == pathpolicy.Nothing {
		resolved, err = l.paths.Resolve(ctx, l.sys, path)
	}
	if err != nil {
		return resolved, nil, err
	}
	unlock, err := l.lockEndOf(ctx, resolved)
	if err != nil {
		return resolved, nil, err
	}
	if unlock == nil {
		return resolved, func() {}, nil
	}
	defer func() {
		if release == nil {
			unlock()
		}
	}()
	to, err = l.paths.Resolve(ctx, l.sys, path)
	// For a volume, the target has its name.
	if err != nil || to.Kind != resolved.Kind || !win.SameName(to.Target, resolved.Target) {
		return to, nil, err
	}
	return to, unlock, nil
}

// lockEndOf locks the volume or share that a path was found to end at; unlock is nil if it is neither.
func (l *Locker) lockEndOf(ctx context.Context, to pathpolicy.Resolved) (unlock func(), _ error) {
	switch to.Kind {
	case pathpolicy.MountedVolume:
		v, err := l.lockOwnVolume(ctx, csiproxy.VolumeID(to.Volume))
		if err != nil {
			return nil, err
		}
		return v.Release, nil
	case pathpolicy.SharedDirectory:
		remote, err := win.ParseUNC(to.Target)
		if err != nil {
			return nil, nil // no such share can be mapped
		}
		s, err := l.LockShareAlone(ctx, remote)
		if err != nil {
			return nil, err
		}
		return s.Release, nil
	}
	return nil, nil
}
