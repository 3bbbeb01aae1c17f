// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// remover removes entries of open directories. It works through handles, and links can't redirect
// handles.
//
// A tree may be deeper than the longest path. Each level takes one open handle and some memory,
// independent of the depth.
type remover struct {
	limits
	trees     *openTrees
	locks     *usage.Locker
	removed   int // entries so far
	unmounted int // volumes so far
	depth     int // directories above the current entry
}

// openTrees is what all removing calls of a driver, or of the shared endpoints, hold together.
type openTrees struct {
	depth  atomic.Int64 // open directories
	listed atomic.Int64 // listed entries of these directories, to be removed later
}

// limits bound the work of one call, and the memory of all calls of a driver together.
type limits struct {
	// removals is how many entries one call removes. A pod may make files as fast as the call
	// removes them.
	removals int
	// listed is how many entries stay in memory: listed and not yet removed, while the directories
	// below are removed.
	listed int
	// depth is how deep directories may be nested: each level takes a handle and a few KiB of
	// memory. A path in Windows has at most 16,384 names.
	depth int
}

var defaultLimits = limits{removals: 1_000_000, listed: 100_000, depth: 20_000}

// entry is an entry of an open directory, as last seen.
type entry struct {
	pathpolicy.Entry
	win.FileInfo
}

// isPlainDir reports whether e is a directory with entries of its own.
func (e entry) isPlainDir() bool { return e.IsDir() && !e.IsReparsePoint() }

// maxRounds bounds the listings of a directory while other processes keep making entries there.
const maxRounds = 3

// removeTree removes an entry and, if it is a plain directory, everything in it.
func (r *remover) removeTree(ctx context.Context, e entry) error {
	dir, err := r.removeEntry(ctx, e)
	if err != nil || dir == nil {
		return err
	}
	return closed(dir, r.removeDirectory(ctx, dir))
}

// removeDirectory removes an open directory and everything in it.
func (r *remover) removeDirectory(ctx context.Context, dir *pathpolicy.File) error {
	if r.depth == r.limits.depth {
		return atPath(dir.Path, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"it lies in %d directories, one in the other, and no deeper ones are removed", r.depth))
	}
	r.depth++
	defer func() { r.depth-- }()
	defer r.trees.depth.Add(-1)
	if open := r.trees.depth.Add(1); open > int64(r.limits.depth) {
		return atPath(dir.Path, csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"the calls under way remove trees of %d levels in all, the most allowed; try again later", open-1))
	}
	for range maxRounds {
		if err := r.removeEntries(ctx, dir); err != nil {
			return err
		}
		if err := r.delete(ctx, dir); !errors.Is(err, winerr.ErrorDirNotEmpty) {
			return atPath(dir.Path, err)
		}
	}
	return atPath(dir.Path, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: winerr.ErrorDirNotEmpty,
		Detail: "other processes keep making files in it; try again later"})
}

// removeBelow is removeDirectory while listed entries of the directory above stay in memory.
func (r *remover) removeBelow(ctx context.Context, dir *pathpolicy.File, listed int) error {
	r.trees.listed.Add(int64(listed))
	defer r.trees.listed.Add(-int64(listed))
	return closed(dir, r.removeDirectory(ctx, dir))
}

// removeEntries removes everything in an open directory. After a failed entry, removeEntries goes
// on, and finally returns the first error.
//
// A listing stays in memory while its directories are removed. The listings of a deep and broad
// tree would fill the memory. An excessive listing is therefore discarded, and repeated afterwards.
func (r *remover) removeEntries(ctx context.Context, dir *pathpolicy.File) (first error) {
	for restart := true; ; {
		entries, err := dir.ReadDir(ctx, restart)
		if err != nil && !errors.Is(err, winerr.ErrorNoMoreFiles) {
			return cmp.Or(first, atPath(dir.Path, err))
		}
		if len(entries) == 0 {
			return first
		}
		restart = false
		for len(entries) > 0 {
			if r.removed >= r.limits.removals {
				return cmp.Or(first, atPath(dir.Path, csiproxy.Errorf(csiproxy.ErrUnavailable,
					"%d entries are removed, and there are more; repeat the call, or end what keeps making files there", r.removed)))
			}
			e := entry{dir.Entry(entries[0].Name), entries[0].FileInfo}
			entries = entries[1:]
			below, err := r.removeEntry(ctx, e)
			if err != nil {
				err = atPath(e.Path, err)
			} else if below != nil {
				if r.trees.listed.Load()+int64(len(entries)) > int64(r.limits.listed) {
					entries, restart = nil, true
				}
				err = r.removeBelow(ctx, below, len(entries))
			}
			if !pathpolicy.Missing(err) { // a missing entry was removed by another process
				first = cmp.Or(first, err)
			}
		}
		if restart && first != nil { // a repeated listing would return the failed entry again and again
			return first
		}
	}
}

// atPath adds a path to err.
func atPath(path func() string, err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Object: quote.Text(path()), Err: err}
}

// removeEntry removes an entry, except for a plain directory: removeEntry opens the directory, with
// the rights to list and delete it.
func (r *remover) removeEntry(ctx context.Context, e entry) (dir *pathpolicy.File, err error) {
	// The entry may have changed since the listing.
	const attempts = 5
	before := r.unmounted
	for range attempts {
		if e.ReparseTag == win.TagMountPoint {
			if r.unmounted > before {
				break // another call mounted a volume there again
			}
			if err := r.unmount(ctx, e); err != nil {
				return nil, err
			}
		}
		file, changed, err := openToDelete(ctx, &e)
		if err != nil {
			return nil, err
		}
		if changed {
			continue
		}
		if e.isPlainDir() {
			return file, nil
		}
		return nil, closed(file, r.delete(ctx, file))
	}
	return nil, csiproxy.Errorf(csiproxy.ErrUnavailable, "other processes keep changing it; try again later")
}

// delete deletes an open file or directory.
func (r *remover) delete(ctx context.Context, file *pathpolicy.File) error {
	err := file.Delete(ctx)
	if err == nil {
		r.removed++
	}
	return err
}

// openToDelete opens an entry with the access rights for its last known kind, and reads its current
// kind. If the entry needs other rights, or must first be unmounted, openToDelete closes the entry,
// and changed is true.
func openToDelete(ctx context.Context, e *entry) (file *pathpolicy.File, changed bool, err error) {
	o := win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen}
	listable := e.isPlainDir()
	if listable {
		o.Access |= win.FileListDirectory | win.FileTraverse
	}
	if file, err = e.Open(ctx, o); err != nil {
		return nil, false, err
	}
	e.FileInfo, err = file.Info(ctx)
	changed = e.isPlainDir() && !listable
	if err == nil && e.ReparseTag == win.TagMountPoint {
		changed, err = isMountPoint(ctx, file)
	}
	if err != nil || changed {
		return nil, changed, closed(file, err)
	}
	return file, false, nil
}

// closed closes file, and returns err, or else the error of closing.
func closed(file *pathpolicy.File, err error) error {
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

func isMountPoint(ctx context.Context, file *pathpolicy.File) (bool, error) {
	link, err := file.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return false, nil
	}
	return link.IsMountPoint(), err
}

// unmount removes a mount point through the mount manager, and leaves a junction alone. The
// directory stays open meanwhile, but without the right to delete: the mount manager opens the
// directory, too, and doesn't share deletion.
func (r *remover) unmount(ctx context.Context, e entry) error {
	file, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
	if errors.Is(err, winerr.ErrorDirectory) {
		file, err = e.Open(ctx, pathpolicy.ForAttributes) // the directory has become a file meanwhile
	}
	if err != nil {
		return err
	}
	link, err := file.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		err = nil
	} else if err == nil && link.IsMountPoint() {
		err = r.unmountVolume(ctx, file, csiproxy.VolumeID(link.Volume))
	}
	return closed(file, err)
}

func (r *remover) unmountVolume(ctx context.Context, file *pathpolicy.File, id csiproxy.VolumeID) error {
	lockedVolume, err := r.locks.TryLockVolume(ctx, id)
	if err != nil {
		return err
	}
	defer lockedVolume.Release()
	link, err := file.Link(ctx)
	if err != nil && !errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return err
	}
	isMounted := err == nil && link.IsMountPoint() && id.Equal(csiproxy.VolumeID(link.Volume))
	if !isMounted {
		return nil // another call has changed the entry; the caller reads the entry again
	}
	if err := file.Unmount(ctx); err != nil {
		return err
	}
	r.unmounted++
	return nil
}
