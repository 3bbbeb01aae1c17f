// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use

import (
	"context"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/unc"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Purpose is what an object is locked for.
type Purpose int

const (
	// ToChange is for a change of the object, or a new use of it.
	ToChange Purpose = iota
	// ToRelease is for an operation that only ends a use. When the lock file is missing and there is no room
	// to make it, this goes on with the lock in this process: a full disk must not keep kubelet from releasing
	// volumes.
	ToRelease
)

// LockedDisk is an open disk with the right to change it: its state, its partition table and what lies
// on its partitions.
type LockedDisk struct {
	*opendisk.Disk
	*right
}

// Release closes the disk and releases the locks.
func (d *LockedDisk) Release() {
	d.Close()
	d.right.Release()
}

// LockedVolume is the right to change where a volume is mounted, and which links lead to it. The
// volume's disk may have left the node.
type LockedVolume struct {
	ID volume.ID
	*right
}

// LockedServer is the right to change the mappings of an SMB server.
type LockedServer struct{ *right }

// LockedShare is the right to change the mapping of a share and the links to it.
type LockedShare struct {
	Root string
	*right
}

// right is what all rights have: a lock in this process, and a lock against other processes.
type right struct {
	owner   *Owner
	purpose Purpose
	unlock  func()   // releases the lock in this process
	file    win.File // holds the lock against other processes while it is open; nil if there is none
}

// Release releases the locks. It is to be called once.
func (r *right) Release() {
	if r.file != nil {
		r.file.Close()
	}
	r.unlock()
}

// take takes both locks of an object, given by its kind and its name.
func (o *Owner) take(ctx context.Context, k kind, name string, purpose Purpose) (r *right, _ error) {
	at := byteOf(k, name)
	unlock, err := o.locks.Lock(ctx, at, kinds[k]+" "+quote.Text(name))
	if err != nil {
		return nil, err
	}
	defer func() { // also after a panic, which the daemon survives
		if r == nil {
			unlock()
		}
	}()
	var file win.File
	if k != serverRight { // other processes are excluded by the rights to the server's shares
		if file, err = o.exclude(ctx, k, at, purpose); err != nil {
			return nil, err
		}
	}
	return &right{o, purpose, unlock, file}, nil
}

// LockDisk takes the right to the disk that has the number n now. If there is none, the error is
// csiproxy.ErrNotFound; if Windows runs from the disk, it is csiproxy.ErrFailedPrecondition.
//
// LockDisk opens the disk before it waits for the right. Meanwhile the disk may leave, or get another
// number. So the caller verifies the disk right before each change.
func (o *Owner) LockDisk(ctx context.Context, n disk.Number, purpose Purpose) (d *LockedDisk, _ error) {
	h, err := opendisk.Open(ctx, o.sys, n, win.GenericRead|win.GenericWrite)
	if err != nil {
		return nil, err
	}
	defer func() {
		if d == nil {
			h.Close()
		}
	}()
	r, err := o.take(ctx, diskRight, n.String(), purpose)
	if err != nil {
		return nil, err
	}
	defer func() {
		if d == nil {
			r.Release()
		}
	}()
	if err := o.checkSystemDisk(ctx, n); err != nil {
		return nil, err
	}
	return &LockedDisk{h, r}, nil
}

// LockDiskOf takes the right to the disk that a volume lies on, and returns where on the disk it lies.
// It keeps no handle of the volume open: with one, Windows wouldn't format it.
func (o *Owner) LockDiskOf(ctx context.Context, id volume.ID, purpose Purpose) (*LockedDisk, win.DiskExtent, error) {
	for {
		extent, err := Extent(ctx, o.sys, id)
		if err != nil {
			return nil, extent, err
		}
		d, now, err := o.tryLockDiskOf(ctx, id, extent.DiskNumber, purpose)
		if err != nil || d != nil {
			return d, now, err
		}
		// The disk got another number while tryLockDiskOf waited for the right.
	}
}

// tryLockDiskOf is LockDiskOf for a volume that lay on disk n a moment ago. It returns a nil disk if the
// volume lies on a disk of another number once the right to disk n is taken.
func (o *Owner) tryLockDiskOf(ctx context.Context, id volume.ID, n disk.Number, purpose Purpose) (
	_ *LockedDisk, extent win.DiskExtent, _ error) {
	d, err := o.LockDisk(ctx, n, purpose)
	if err != nil {
		if now, extentErr := Extent(ctx, o.sys, id); extentErr == nil && now.DiskNumber != n {
			return nil, extent, nil
		}
		return nil, extent, err
	}
	lies := false
	defer func() {
		if !lies {
			d.Release()
		}
	}()
	// The call that had the right before may have grown the volume.
	extent, err = Extent(ctx, o.sys, id)
	if err != nil || extent.DiskNumber != n {
		return nil, extent, err
	}
	if err := d.Verify(ctx); err != nil { // if nil, the number in extent was that of this disk
		return nil, extent, err
	}
	lies = true
	return d, extent, nil
}

// LockVolume takes the right to a volume for a caller that has a right to a disk, mostly the volume's.
func (d *LockedDisk) LockVolume(ctx context.Context, id volume.ID) (*LockedVolume, error) {
	return d.owner.LockVolumeAlone(ctx, id, d.purpose)
}

// LockVolumeAlone takes the right to a volume for a caller that needs none to its disk, which may have left.
func (o *Owner) LockVolumeAlone(ctx context.Context, id volume.ID, purpose Purpose) (*LockedVolume, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	guid := strings.ToLower(strings.TrimSuffix(string(id)[len(`\\?\Volume{`):], `}\`))
	r, err := o.take(ctx, volumeRight, guid, purpose)
	if err != nil {
		return nil, err
	}
	return &LockedVolume{id, r}, nil
}

// tryTimeout is how long TryLockVolume waits.
const tryTimeout = time.Second

// TryLockVolume is LockVolumeAlone for a caller that only releases and holds directories open. The call that
// has the right may wait for one of these directories, so TryLockVolume waits for tryTimeout only. Then it
// returns csiproxy.ErrUnavailable.
func (o *Owner) TryLockVolume(ctx context.Context, id volume.ID) (*LockedVolume, error) {
	soon, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	v, err := o.LockVolumeAlone(soon, id, ToRelease)
	if err != nil && ctx.Err() == nil && soon.Err() != nil {
		err = csiproxy.Errorf(csiproxy.ErrUnavailable,
			"another call is changing where the volume at this path is mounted; try again later")
	}
	return v, err
}

// LockServer takes the right to the mappings of the server of remote.
func (o *Owner) LockServer(ctx context.Context, remote unc.Path, purpose Purpose) (*LockedServer, error) {
	r, err := o.take(ctx, serverRight, remote.Server(), purpose)
	if err != nil {
		return nil, err
	}
	return &LockedServer{r}, nil
}

// LockShare takes the right to a share for a caller that has the right to its server, and so may map it.
func (s *LockedServer) LockShare(ctx context.Context, remote unc.Path) (*LockedShare, error) {
	return s.owner.lockShare(ctx, remote, s.purpose)
}

// LockShareAlone takes the right to the share of remote for a caller that changes links only.
func (o *Owner) LockShareAlone(ctx context.Context, remote unc.Path) (*LockedShare, error) {
	return o.lockShare(ctx, remote, ToChange)
}

func (o *Owner) lockShare(ctx context.Context, remote unc.Path, purpose Purpose) (*LockedShare, error) {
	r, err := o.take(ctx, shareRight, remote.Root(), purpose)
	if err != nil {
		return nil, err
	}
	return &LockedShare{remote.Root(), r}, nil
}

// LockMountedAt takes the right to the volume or share that is mounted where a path ends. So that
// isn't unmounted or unmapped until release is called. If the path ends elsewhere, no right is
// needed, and release does nothing. to is where the path ends once the right is taken.
func (o *Owner) LockMountedAt(ctx context.Context, path pathpolicy.Path) (
	to pathpolicy.Resolved, release func(), _ error) {
	const attempts = 4
	for range attempts {
		to, release, err := o.tryLockMountedAt(ctx, path)
		if err != nil || release != nil {
			return to, release, err
		}
	}
	return to, nil, csiproxy.Errorf(csiproxy.ErrUnavailable,
		"other calls keep changing what is mounted there; try again later")
}

// tryLockMountedAt is LockMountedAt, but release is nil if the path ends elsewhere once the right is taken.
func (o *Owner) tryLockMountedAt(ctx context.Context,
	path pathpolicy.Path) (to pathpolicy.Resolved, release func(), _ error) {
	// The first lookup only says which right to take.
	first, err := o.paths.Lookup(ctx, o.sys, path)
	if err == nil && first.Kind == pathpolicy.Nothing {
		first, err = o.paths.Resolve(ctx, o.sys, path)
	}
	if err != nil {
		return first, nil, err
	}
	right, err := o.rightTo(ctx, first)
	if err != nil {
		return first, nil, err
	}
	if right == nil {
		return first, func() {}, nil
	}
	defer func() {
		if release == nil {
			right.Release()
		}
	}()
	to, err = o.paths.Resolve(ctx, o.sys, path)
	// For a volume, the target has its name.
	if err != nil || to.Kind != first.Kind || !winname.Equal(to.Target, first.Target) {
		return to, nil, err
	}
	return to, right.Release, nil
}

// rightTo takes the right to where a path was found to end. It is nil if none is needed.
func (o *Owner) rightTo(ctx context.Context, to pathpolicy.Resolved) (*right, error) {
	switch to.Kind {
	case pathpolicy.MountedVolume:
		v, err := o.LockVolumeAlone(ctx, volume.ID(to.Volume), ToChange)
		if err != nil {
			return nil, err
		}
		return v.right, nil
	case pathpolicy.SharedDirectory:
		remote, err := unc.Parse(to.Target)
		if err != nil {
			return nil, nil // no such share can be mapped
		}
		s, err := o.LockShareAlone(ctx, remote)
		if err != nil {
			return nil, err
		}
		return s.right, nil
	}
	return nil, nil
}
