// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Disk is the right to change an open disk: its state, its partition table and what lies on
// its partitions.
type Disk struct {
	*opendisk.Disk
	right
}

// Release gives the right back and closes the disk.
func (d *Disk) Release() {
	d.Close()
	d.release()
}

// Volume is the right to change where a volume is mounted, and which links lead to it. Its disk
// may have left the node.
type Volume struct {
	ID volume.ID
	right
}

// Server is the right to change the mappings of an SMB server.
type Server struct{ right }

// Share is the right to change the mapping of a share and the links to it.
type Share struct {
	Root string
	right
}

// Link is the right to say whether a link stays, which is there already.
type Link struct{ right }

// right is what all rights have: a lock in this process and a file against other processes.
type right struct{ release func() }

// Release gives the right back. It is to be called once.
func (r right) Release() { r.release() }

// unlessGiven gives back what was taken for a right, unless the right was given. It is deferred,
// so it also runs after a panic, which the daemon survives.
func unlessGiven(given *bool, back func()) {
	if !*given {
		back()
	}
}

// take takes the lock of key, and then the file of the name, which may be "" if no other process
// needs to be excluded, and gives the right that make makes of them. The context that it returns is
// for what is done with the right, and says that it is held. A right that comes too late, since the
// operation holds one of the same kind or of a later one, is an error.
func take[K comparable, R any](ctx context.Context, o *Owner, k kind, locks *operation.Locks[K], key K, file string,
	make func(right) *R) (context.Context, *R, error) {
	if held, _ := ctx.Value(heldKey{}).(kind); held >= k {
		return ctx, nil, fmt.Errorf("a bug in CSI Proxy: the right to a %s is asked for while one to a %s is held",
			kinds[k], kinds[held])
	}
	open, err := locks.Lock(ctx, key)
	if err != nil {
		return ctx, nil, err
	}
	unlock := func() {
		o.Changed()
		open()
	}
	given := false
	defer unlessGiven(&given, unlock)
	readmit := func() {}
	if file != "" {
		if readmit, err = o.exclude(ctx, file, k); err != nil {
			return ctx, nil, err
		}
	}
	given = true
	return context.WithValue(ctx, heldKey{}, k), make(right{func() {
		readmit()
		unlock()
	}}), nil
}

// Disk gives the right to the disk that has the number n now. What is done with it gets the
// context that is returned. A disk that isn't there is csiproxy.ErrNotFound, one that
// Windows runs from csiproxy.ErrFailedPrecondition.
//
// The disk is opened first: it may leave, or get another number, while the right is waited
// for. So it is to be verified right before each change.
func (o *Owner) Disk(ctx context.Context, n disk.Number) (context.Context, *Disk, error) {
	h, err := opendisk.Open(ctx, o.sys, n, win.GenericRead|win.GenericWrite)
	if err != nil {
		return ctx, nil, err
	}
	given := false
	defer unlessGiven(&given, func() { h.Close() })
	inside, d, err := take(ctx, o, diskRight, &o.disks, n, fmt.Sprintf("disk-%d", n),
		func(r right) *Disk { return &Disk{h, r} })
	if err != nil {
		return ctx, nil, err
	}
	defer unlessGiven(&given, d.release)
	if err := o.systemDisks.Check(ctx, n); err != nil {
		return ctx, nil, err
	}
	given = true
	return inside, d, nil
}

// DiskOf gives the right to the disk that a volume lies on, and says where it lies there. It
// holds no handle of the volume: that would keep it from being formatted.
func (o *Owner) DiskOf(ctx context.Context, id volume.ID) (context.Context, *Disk, win.DiskExtent, error) {
	for {
		extent, err := Extent(ctx, o.sys, id)
		if err != nil {
			return ctx, nil, extent, err
		}
		inside, d, now, err := o.tryDiskOf(ctx, id, extent.DiskNumber)
		if err != nil || d != nil {
			return inside, d, now, err
		}
		// The disk has got another number while the right was waited for.
	}
}

// tryDiskOf is DiskOf for a volume that lay on disk n a moment ago. The right is nil if it
// lies on another one by the time that the right to disk n is there.
func (o *Owner) tryDiskOf(ctx context.Context, id volume.ID,
	n disk.Number) (_ context.Context, _ *Disk, extent win.DiskExtent, _ error) {
	inside, d, err := o.Disk(ctx, n)
	if err != nil {
		if now, extentErr := Extent(ctx, o.sys, id); extentErr == nil && now.DiskNumber != n {
			return ctx, nil, extent, nil
		}
		return ctx, nil, extent, err
	}
	given := false
	defer unlessGiven(&given, d.Release)
	// Who had the right before may have grown it.
	extent, err = Extent(inside, o.sys, id)
	if err != nil || extent.DiskNumber != n {
		return ctx, nil, extent, err
	}
	if err := d.Verify(inside); err != nil { // so the number in extent was that of this disk
		return ctx, nil, extent, err
	}
	given = true
	return inside, d, extent, nil
}

// Extent returns where a volume lies that isn't spread. A string that is no volume id is
// csiproxy.ErrInvalidArgument, a volume that isn't there csiproxy.ErrNotFound.
func Extent(ctx context.Context, sys win.DeviceOpener, id volume.ID) (win.DiskExtent, error) {
	if err := id.Validate(); err != nil {
		return win.DiskExtent{}, err
	}
	extents, err := device.ExtentsOf(ctx, sys, device.VolumePath(string(id)))
	if err == nil && len(extents) != 1 {
		err = ErrSpread(len(extents))
	}
	if err != nil {
		return win.DiskExtent{}, err
	}
	return extents[0], nil
}

// ErrSpread is the error of a volume that doesn't lie on one part of a disk.
func ErrSpread(parts int) error {
	return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
		"the volume lies on %d parts of disks; only a volume on one part of one disk can be used", parts)
}

// Volume gives the right to a volume, whose disk may have left the node.
func (o *Owner) Volume(ctx context.Context, id volume.ID) (context.Context, *Volume, error) {
	if err := id.Validate(); err != nil {
		return ctx, nil, err
	}
	guid := strings.ToLower(strings.TrimSuffix(string(id)[len(`\\?\Volume{`):], `}\`))
	return take(ctx, o, volumeRight, &o.volumes, guid, "volume-"+guid, func(r right) *Volume { return &Volume{id, r} })
}

// tryPatience is how long TryVolume waits.
const tryPatience = time.Second

// TryVolume is Volume for who holds directories open: it waits for a moment only, since who
// has the right may wait for a directory. It gives csiproxy.ErrUnavailable then.
func (o *Owner) TryVolume(ctx context.Context, id volume.ID) (context.Context, *Volume, error) {
	soon, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	_, right, err := o.Volume(soon, id)
	if err != nil {
		if ctx.Err() == nil && soon.Err() != nil {
			err = csiproxy.Errorf(csiproxy.ErrUnavailable,
				"another call is changing where the volume at this path is mounted; try again later")
		}
		return ctx, nil, err
	}
	return context.WithValue(ctx, heldKey{}, volumeRight), right, nil // soon has ended by the time that it is used
}

// Server gives the right to the mappings of the server of remote.
func (o *Owner) Server(ctx context.Context, remote unc.Path) (context.Context, *Server, error) {
	return take(ctx, o, serverRight, &o.servers, remote.Server(), "", func(r right) *Server { return &Server{r} })
}

// Share gives the right to the mapping of the share of remote and the links to it.
func (o *Owner) Share(ctx context.Context, remote unc.Path) (context.Context, *Share, error) {
	root := remote.Root()
	name := sha256.Sum256([]byte(root)) // which has no characters that a file can't have
	return take(ctx, o, shareRight, &o.shares, root, fmt.Sprintf("share-%x", name[:8]),
		func(r right) *Share { return &Share{root, r} })
}

// Link gives the right to the link at a path.
func (o *Owner) Link(ctx context.Context, path pathpolicy.Path) (context.Context, *Link, error) {
	key := winname.Lower(path.String())
	name := sha256.Sum256([]byte(key))
	return take(ctx, o, linkRight, &o.links, key, fmt.Sprintf("link-%x", name[:8]),
		func(r right) *Link { return &Link{r} })
}

// MountedAt gives the right to the volume or share that is mounted where a path ends, so that
// it isn't unmounted or unmapped before release is called. If the path ends elsewhere, no right
// is needed, and release does nothing. to is where the path ends once the right is there.
func (o *Owner) MountedAt(ctx context.Context,
	path pathpolicy.Path) (_ context.Context, to pathpolicy.Resolved, release func(), _ error) {
	const attempts = 4
	for range attempts {
		inside, to, release, err := o.tryMountedAt(ctx, path)
		if err != nil || release != nil {
			return inside, to, release, err
		}
	}
	return ctx, to, nil, csiproxy.Errorf(csiproxy.ErrUnavailable,
		"other calls keep changing what is mounted there; try again later")
}

// tryMountedAt is MountedAt; release is nil if the path ends elsewhere once the right is there.
func (o *Owner) tryMountedAt(ctx context.Context,
	path pathpolicy.Path) (_ context.Context, to pathpolicy.Resolved, release func(), _ error) {
	// The first look only says which right to take.
	to, err := o.paths.Glance(ctx, o.sys, path)
	if err == nil && to.Kind == pathpolicy.Nothing {
		to, err = o.paths.Resolve(ctx, o.sys, path)
	}
	if err != nil {
		return ctx, to, nil, err
	}
	inside, back, err := o.rightTo(ctx, to)
	if err != nil {
		return ctx, to, nil, err
	}
	if back == nil {
		return ctx, to, func() {}, nil
	}
	given := false
	defer unlessGiven(&given, back)
	now, err := o.paths.Resolve(inside, o.sys, path)
	// The target names the volume, too.
	given = err == nil && now.Kind == to.Kind && winname.Equal(now.Target, to.Target)
	if err != nil || !given {
		return ctx, now, nil, err
	}
	return inside, now, back, nil
}

// rightTo gives the right to where a path was found to end; release is nil if that needs none.
func (o *Owner) rightTo(ctx context.Context, to pathpolicy.Resolved) (_ context.Context, release func(), _ error) {
	switch to.Kind {
	case pathpolicy.MountedVolume:
		ctx, right, err := o.Volume(ctx, volume.ID(to.Volume))
		if err != nil {
			return ctx, nil, err
		}
		return ctx, right.Release, nil
	case pathpolicy.SharedDirectory:
		remote, err := unc.Parse(to.Target)
		if err != nil {
			return ctx, nil, nil // no such share can be mapped
		}
		ctx, right, err := o.Share(ctx, remote)
		if err != nil {
			return ctx, nil, err
		}
		return ctx, right.Release, nil
	}
	return ctx, nil, nil
}
