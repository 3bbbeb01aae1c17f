// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/use"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/volume"
)

// remover removes entries of directories that are held open. It works through handles,
// so no link can lead it elsewhere.
//
// A tree may be of any depth, deeper than any path can name. Each level takes one open
// handle and some memory that doesn't depend on the depth.
type remover struct {
	limits
	owner     *use.Owner
	removed   int // entries so far
	unmounted int // volumes so far
	listed    int // entries in the lists of all levels
}

// limits bound what one call does and keeps.
type limits struct {
	// removals is how many entries one call removes. A pod may make files as fast as they
	// are removed.
	removals int
	// listed is how many entries the levels of a tree may keep in memory.
	listed int
}

var defaultLimits = limits{removals: 1_000_000, listed: 100_000}

// entry is one entry of an open directory, as it was seen last.
type entry struct {
	pathpolicy.Entry
	win.FileInfo
}

// isPlainDir reports whether e is a directory that has its entries itself.
func (e entry) isPlainDir() bool { return e.IsDir() && !e.IsReparsePoint() }

// level is a directory whose entries are being removed.
type level struct {
	dir     *pathpolicy.File
	entries []win.DirEntry // listed, and still to be removed
	ended   bool           // the list is at its end
	restart bool           // list it from its beginning
	dropped bool           // entries were taken off the list to save memory: see keepFew
	rounds  int            // how often it was listed again because it wasn't empty at the end
	stays   bool           // the directory itself, or something in it, isn't removed
}

// maxRounds bounds how often a directory is listed again while others keep making
// entries in it.
const maxRounds = 3

// removeTree removes an entry and, if it is a plain directory, everything in it.
func (r *remover) removeTree(ctx context.Context, e entry) error {
	dir, err := r.removeEntry(ctx, e)
	if err != nil || dir == nil {
		return err
	}
	return r.removeBelow(ctx, &level{dir: dir})
}

// removeBelow removes everything in the directory top, and the directory itself unless
// top.stays is set. If an entry can't be removed, it goes on, and returns the first error.
func (r *remover) removeBelow(ctx context.Context, top *level) (first error) {
	levels := []*level{top}
	// note notes an error in l, so that l stays. An error that says that an entry is missing
	// doesn't count: somebody else has removed it.
	note := func(l *level, path func() string, err error) {
		if err == nil || pathpolicy.Missing(err) {
			return
		}
		l.stays = true
		if first == nil {
			first = &csiproxy.Error{Object: quote.Text(path()), Err: err}
		}
	}
	for len(levels) > 0 {
		l := levels[len(levels)-1]
		if r.removed >= r.removals {
			note(l, l.dir.Path, csiproxy.Errorf(csiproxy.ErrUnavailable,
				"%d entries are removed, and there are more; repeat the call, or end what keeps making files there", r.removed))
			return first
		}
		e, more, err := r.next(ctx, l)
		note(l, l.dir.Path, err)
		if more {
			dir, err := r.removeEntry(ctx, e)
			note(l, e.Path, err)
			if dir != nil {
				r.keepFew(l)
				levels = append(levels, &level{dir: dir})
			}
			continue
		}
		if !l.stays {
			err := r.delete(ctx, l.dir)
			if errors.Is(err, win.ErrorDirNotEmpty) {
				if l.rounds++; l.rounds < maxRounds {
					l.ended, l.restart = false, true
					continue
				}
				err = &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
					Detail: "other processes keep making files in it; try again later", Err: err}
			}
			note(l, l.dir.Path, err)
		}
		levels = levels[:len(levels)-1]
		if len(levels) > 0 {
			parent := levels[len(levels)-1]
			parent.stays = parent.stays || l.stays
			note(parent, l.dir.Path, l.dir.Close())
		}
	}
	return first
}

// next returns the next entry of l; more is false after the last one.
func (r *remover) next(ctx context.Context, l *level) (e entry, more bool, err error) {
	if l.dropped && l.stays {
		// If the list began again, the entries that stay would come again and again.
		return entry{}, false, nil
	}
	if len(l.entries) == 0 && !l.ended {
		l.entries, err = l.dir.ReadDir(ctx, l.restart)
		r.listed += len(l.entries)
		l.restart, l.dropped = false, false
		l.ended = len(l.entries) == 0
		if errors.Is(err, win.ErrorNoMoreFiles) {
			err = nil
		}
	}
	if len(l.entries) == 0 {
		return entry{}, false, err
	}
	e = entry{l.dir.Entry(l.entries[0].Name), l.entries[0].FileInfo}
	l.entries = l.entries[1:]
	r.listed--
	return e, true, nil
}

// keepFew drops the list of l if the lists of all levels have too many entries: those of a deep
// and broad tree would fill the memory. The entries are listed again when the directory below is
// removed.
func (r *remover) keepFew(l *level) {
	if r.listed <= r.limits.listed || len(l.entries) == 0 {
		return
	}
	r.listed -= len(l.entries)
	l.entries, l.ended, l.restart, l.dropped = nil, false, true, true
}

// removeEntry removes an entry that isn't a plain directory, and opens one that is,
// with the rights to list and delete it.
func (r *remover) removeEntry(ctx context.Context, e entry) (dir *pathpolicy.File, err error) {
	// The entry may be something else than it was when it was listed.
	const attempts = 5
	before := r.unmounted
	for range attempts {
		if e.ReparseTag == win.TagMountPoint {
			if r.unmounted > before {
				break // it was mounted again, by a call after this one
			}
			if err := r.unmount(ctx, e); err != nil {
				return nil, err
			}
		}
		file, changed, err := openToDelete(ctx, &e)
		switch {
		case err != nil:
			return nil, err
		case changed:
			continue
		case e.isPlainDir():
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

// openToDelete opens an entry with the access rights that it needs by its last known kind,
// and reads what it is now. If that needs other rights, or has to be unmounted first,
// openToDelete closes it, and changed is true.
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
	if errors.Is(err, win.ErrorNotAReparsePoint) {
		return false, nil
	}
	return link.IsMountPoint(), err
}

// unmount removes a mount point through the mount manager, and leaves a junction alone. It
// holds the directory open meanwhile, but without the right to delete it: the mount manager
// opens the directory, too, and doesn't share deletion.
func (r *remover) unmount(ctx context.Context, e entry) error {
	file, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
	if errors.Is(err, win.ErrorDirectory) {
		file, err = e.Open(ctx, pathpolicy.ForAttributes) // the directory has become a file meanwhile
	}
	if err != nil {
		return err
	}
	link, err := file.Link(ctx)
	switch {
	case errors.Is(err, win.ErrorNotAReparsePoint):
		err = nil
	case err == nil && link.IsMountPoint():
		err = r.unmountVolume(ctx, file, volume.ID(link.Volume))
	}
	return closed(file, err)
}

func (r *remover) unmountVolume(ctx context.Context, file *pathpolicy.File, id volume.ID) error {
	right, err := r.owner.Releasing().TryVolume(ctx, id)
	if err != nil {
		return err
	}
	defer right.Release()
	link, err := file.Link(ctx)
	if errors.Is(err, win.ErrorNotAReparsePoint) || err == nil &&
		!(link.IsMountPoint() && id.Equal(volume.ID(link.Volume))) {
		return nil // another call has changed the entry; the caller reads it again
	}
	if err == nil {
		err = file.Unmount(ctx)
	}
	if err == nil {
		r.unmounted++
	}
	return err
}
