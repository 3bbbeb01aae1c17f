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

// LockOptions configure a Locker. The zero value is the default.
type LockOptions struct {
	// Logger gets problems that do not fail an operation. Default: none.
	Logger *slog.Logger
	// Shared is the common part of the lockers of a node and its drivers. Default: a new
	// SharedLocks for this locker alone.
	Shared *SharedLocks
	// Driver is the name of the locker's driver. Default: the locker belongs to the node.
	Driver string
	// OwnerOf returns the driver that owns an open disk for as long as the disk is there; "" for
	// none. If the owner may change, or is only presumed, isKnown is false. Default: a driver's
	// locker owns its disks, and for the node's locker all owners are unknown.
	OwnerOf func(ctx context.Context, disk *opendisk.Disk) (driver string, isKnown bool)
	// HasVolume reports whether a volume is there. To a driver, volumes of other drivers are
	// missing. Default: all volumes may be locked.
	HasVolume func(ctx context.Context, id csiproxy.VolumeID) (isThere bool, _ error)
}

// SharedLocks is the common part of the lockers of a node and its drivers: the locks held in this
// process, keyed by the objects' bytes in the lock file, and the locked bytes.
type SharedLocks struct {
	held  *operation.DriverLocks
	bytes lockedBytes
	kept  atomic.Pointer[string] // the path of the lock file once this process keeps it
}

// NewSharedLocks returns the common part of the lockers of a node and its drivers.
func NewSharedLocks(drivers []string) *SharedLocks {
	return &SharedLocks{held: operation.NewDriverLocks(drivers), bytes: lockedBytes{held: make(map[int64]*lockedByte)}}
}

// Locker locks objects of a node or of one driver. All operations on the node or of the driver must
// use the same Locker to exclude each other within the process. All methods are safe for concurrent
// use.
type Locker struct {
	sys     System
	paths   *pathpolicy.Policy
	users   *Finder
	options LockOptions
}

// NewLocker returns the locker of the node sys, or of a driver. The locker locks disks and volumes
// on sys, volumes and shares mounted at paths allowed by paths, and shares of servers allowed by
// paths. The disks of Windows itself, known only to users, are refused.
func NewLocker(sys System, paths *pathpolicy.Policy, users *Finder, o LockOptions) *Locker {
	o.Logger, o.Shared = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.Shared, NewSharedLocks(nil))
	if o.OwnerOf == nil {
		o.OwnerOf = func(context.Context, *opendisk.Disk) (string, bool) { return o.Driver, o.Driver != "" }
	}
	return &Locker{sys, paths, users, o}
}

// LockedDisk is an open disk, locked for a change of its state, its partition table or the contents
// of its partitions.
type LockedDisk struct {
	*opendisk.Disk
	*lock
}

// Release closes the disk and releases the locks.
func (d *LockedDisk) Release() {
	d.Close()
	d.lock.Release()
}

// LockedVolume is a volume, locked for a change of its mount points or of the links to it. The
// volume's disk may have left the node.
type LockedVolume struct {
	ID csiproxy.VolumeID
	*lock
}

// LockedServer is an SMB server, locked for a change of its mappings.
type LockedServer struct{ *lock }

// LockedShare is a share, locked for a change of its mapping or of the links to it.
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

// Release releases the locks. Call Release once.
func (k *lock) Release() {
	k.include()
	k.unlock()
}

// with returns the lock together with a further lock in this process. unlock runs last.
func (k *lock) with(unlock func()) *lock {
	return &lock{k.locker, unlock, k.Release}
}

// keyOf returns the key of the lock in this process for a byte of the lock file.
func keyOf(offset int64) string { return strconv.FormatInt(offset, 10) }

// acquire takes both locks of an object, given by its kind and name. The driver owns the object; with
// the node's locker, the owner is unknown.
func (l *Locker) acquire(ctx context.Context, k kind, name string) (taken *lock, _ error) {
	return l.acquireOf(ctx, l.options.Driver, l.options.Driver != "", k, name)
}

// acquireOf is acquire for an object with an owner.
func (l *Locker) acquireOf(ctx context.Context, owner string, isKnown bool, k kind, name string) (taken *lock, _ error) {
	offset, held := byteOf(k, name), l.options.Shared.held
	unlock, err := held.Lock(ctx, held.Owners(l.options.Driver, owner, isKnown), keyOf(offset), kinds[k]+" "+quote.Text(name))
	if err != nil {
		return nil, err
	}
	defer func() { // even after a panic: the daemon survives panics
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

// LockDisk locks the disk with the number n. If the disk is missing, the error is
// csiproxy.ErrNotFound; if Windows runs from the disk, csiproxy.ErrFailedPrecondition.
//
// LockDisk opens the disk before waiting for the lock. During the wait the disk may leave, or get
// another number. Verify the disk directly before each change.
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
	r, err := l.acquireOf(ctx, owner, isKnown, diskLock, n.String())
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

// LockDiskOf locks the disk of a volume, and returns the volume's extent. LockDiskOf closes its
// handle of the volume: Windows refuses to format a volume with an open handle.
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

// tryLockDiskOf is LockDiskOf for a volume that was on disk n a moment ago. The returned disk is
// nil if the volume is on a disk with another number once disk n is locked.
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
	// The previous holder of the lock may have grown the volume.
	extent, err = Extent(ctx, l.sys, id)
	if err != nil || extent.DiskNumber != n {
		return nil, extent, err
	}
	if err := lockedDisk.Verify(ctx); err != nil { // on success, extent has this disk's number
		return nil, extent, err
	}
	lies = true
	return lockedDisk, extent, nil
}

// LockVolume locks a volume for a caller with a locked disk, mostly the volume's disk.
func (d *LockedDisk) LockVolume(ctx context.Context, id csiproxy.VolumeID) (*LockedVolume, error) {
	return d.locker.lockOwnVolume(ctx, id)
}

// LockVolumeOnly locks a volume without its disk, which may have left the node. The caller may
// only end a use of the volume. The owner of a missing volume is unknown: any driver may have a
// mount point of it. A driver's lock of a missing volume excludes only the driver's own calls.
func (l *Locker) LockVolumeOnly(ctx context.Context, id csiproxy.VolumeID) (*LockedVolume, error) {
	v, _, err := l.lockVolume(ctx, id)
	return v, err
}

// lockOwnVolume locks a volume for a change, or a new use. A driver cannot lock a missing volume.
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
		r, err := l.acquire(ctx, volumeLock, guid)
		if err != nil {
			return nil, false, err
		}
		return &LockedVolume{id, r}, true, nil
	}
	unlock, err := l.options.Shared.held.Lock(ctx, []string{l.options.Driver}, keyOf(byteOf(ownVolumeLock, guid)), kinds[ownVolumeLock]+" "+quote.Text(guid))
	if err != nil {
		return nil, false, err
	}
	defer func() { // even after a panic: the daemon survives panics
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
	r, err := l.acquire(ctx, volumeLock, guid)
	if err != nil {
		return nil, false, err
	}
	return &LockedVolume{id, r.with(unlock)}, true, nil
}

// tryTimeout is the maximum wait of TryLockVolume.
const tryTimeout = time.Second

// TryLockVolume is LockVolumeOnly for a caller that holds directories open and only ends uses. The
// current holder of the lock may be waiting for one of the directories, and TryLockVolume gives up
// after tryTimeout. The error is then csiproxy.ErrUnavailable.
func (l *Locker) TryLockVolume(ctx context.Context, id csiproxy.VolumeID) (*LockedVolume, error) {
	soon, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	v, err := l.LockVolumeOnly(soon, id)
	gaveUp := soon.Err() != nil && ctx.Err() == nil
	if err != nil && gaveUp {
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
	r, err := l.acquire(ctx, serverLock, remote.Server())
	if err != nil {
		return nil, err
	}
	return &LockedServer{r}, nil
}

// LockShare locks a share for a caller with the server locked. The caller may map the share.
func (s *LockedServer) LockShare(ctx context.Context, remote win.UNCPath) (*LockedShare, error) {
	return s.locker.lockShare(ctx, remote)
}

// LockShareOnly locks the share of remote for a caller that only changes links.
func (l *Locker) LockShareOnly(ctx context.Context, remote win.UNCPath) (*LockedShare, error) {
	return l.lockShare(ctx, remote)
}

func (l *Locker) lockShare(ctx context.Context, remote win.UNCPath) (*LockedShare, error) {
	if err := l.paths.CheckShare(remote.Root()); err != nil {
		return nil, err
	}
	r, err := l.acquire(ctx, shareLock, remote.Root())
	if err != nil {
		return nil, err
	}
	return &LockedShare{remote.Root(), r}, nil
}

// LockMountedAt locks the volume or share mounted at the end of a path: it stays mounted or mapped
// until release is called. If the path ends elsewhere, there is nothing to lock, and release is a
// no-op. to is the end of the path, read again under the lock.
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

// tryLockMountedAt is LockMountedAt, but release is nil if the path has got another end meanwhile.
func (l *Locker) tryLockMountedAt(ctx context.Context,
	path pathpolicy.Path) (to pathpolicy.Resolved, release func(), _ error) {
	// The first lookup only finds the object to lock.
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
	if to, err = l.paths.Resolve(ctx, l.sys, path); err != nil {
		return to, nil, err
	}
	// A volume's name is in the target.
	if to.Kind != resolved.Kind || !win.SameName(to.Target, resolved.Target) {
		return to, nil, nil
	}
	return to, unlock, nil
}

// lockEndOf locks the volume or share at the end of a path; for all other ends, unlock is nil.
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
			return nil, nil // the share cannot be mapped
		}
		s, err := l.LockShareOnly(ctx, remote)
		if err != nil {
			return nil, err
		}
		return s.Release, nil
	}
	return nil, nil
}
