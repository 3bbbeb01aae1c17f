// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// remover removes entries of directories that are held open, through their handles:
// no link can lead it elsewhere.
type remover struct {
	sys  System
	held *pathpolicy.Held
}

// entry is one entry of an open directory, as it was seen last.
type entry struct {
	dir win.File
	win.DirEntry
	path string
}

// isPlainDir reports whether e is a directory that has its entries itself.
func (e entry) isPlainDir() bool { return e.IsDir() && !e.IsReparsePoint() }

// maxDepth is how deep a tree is removed: deeper than a path of 32767 UTF-16 units,
// the longest that Windows takes, can name anything. Each level holds a handle.
const maxDepth = 16384

// level is a directory whose entries are being removed.
type level struct {
	dir     win.File
	path    string
	entries []win.DirEntry // listed and not seen to
	listed  bool           // up to the end
	restart bool           // list it from its beginning
	rounds  int            // how often it was listed anew
	stays   bool           // the directory itself, or something in it, isn't removed
}

// maxRounds is how often a directory is listed in which others keep making
// entries.
const maxRounds = 3

// removeTree removes an entry and, if it is a plain directory, everything in it.
func (r *remover) removeTree(ctx context.Context, e entry) error {
	dir, err := r.removeEntry(ctx, e)
	if err != nil || dir == nil {
		return err
	}
	return r.removeBelow(ctx, &level{dir: dir, path: e.path})
}

// removeBelow removes everything in the directory top, and that itself unless it
// stays. It goes on past what can't be removed, and returns the first error.
func (r *remover) removeBelow(ctx context.Context, top *level) (first error) {
	levels := []*level{top}
	// note keeps what went wrong with something in l, so that l stays. What is gone
	// already was removed by somebody else.
	note := func(l *level, path string, err error) {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		l.stays = true
		if first == nil {
			first = &csiproxy.Error{Object: quote.Text(path), Err: err}
		}
	}
	for len(levels) > 0 {
		l := levels[len(levels)-1]
		e, more, err := l.next(ctx)
		note(l, l.path, err)
		if more {
			dir, err := r.removeEntry(ctx, e)
			if err == nil && dir != nil && len(levels) == maxDepth {
				err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "it is nested too deep")
			}
			note(l, e.path, err)
			if err == nil && dir != nil {
				levels = append(levels, &level{dir: dir, path: e.path})
			}
			continue
		}
		if !l.stays {
			err := r.held.Retry(ctx, func() error { return l.dir.Delete(ctx) })
			if errors.Is(err, win.ErrorDirNotEmpty) {
				if l.rounds++; l.rounds < maxRounds {
					l.listed, l.restart = false, true
					continue
				}
				err = &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "entries are made in it all the time", Err: err}
			}
			note(l, l.path, err)
		}
		levels = levels[:len(levels)-1]
		if len(levels) > 0 {
			parent := levels[len(levels)-1]
			parent.stays = parent.stays || l.stays
			note(parent, l.path, r.held.Release(l.dir))
		}
	}
	return first
}

// next returns the next entry; more is false after the last one.
func (l *level) next(ctx context.Context) (e entry, more bool, err error) {
	if len(l.entries) == 0 && !l.listed {
		l.entries, err = l.dir.ReadDir(ctx, l.restart)
		l.restart = false
		l.listed = err != nil || len(l.entries) == 0
		if errors.Is(err, win.ErrorNoMoreFiles) {
			err = nil
		}
	}
	if len(l.entries) == 0 {
		return entry{}, false, err
	}
	e = entry{l.dir, l.entries[0], l.path + `\` + l.entries[0].Name}
	l.entries = l.entries[1:]
	return e, true, nil
}

// removeEntry removes an entry that isn't a plain directory, and opens one that is,
// with the rights to list and delete it.
func (r *remover) removeEntry(ctx context.Context, e entry) (dir win.File, err error) {
	// The entry may be something else than it was when it was listed.
	const attempts = 5
	for range attempts {
		if e.ReparseTag == win.TagMountPoint {
			if err := r.unmount(ctx, &e); err != nil {
				return nil, err
			}
		}
		file, changed, err := r.openToDelete(ctx, &e)
		switch {
		case err != nil:
			return nil, err
		case changed:
			continue
		case e.isPlainDir():
			return file, nil
		}
		return nil, r.release(file, r.held.Retry(ctx, func() error { return file.Delete(ctx) }))
	}
	return nil, csiproxy.Errorf(csiproxy.ErrUnavailable, "it keeps changing")
}

// openToDelete opens an entry with the rights that what it was needs, and sees what
// it is now. If that needs others, or has to be unmounted first, it is closed again.
func (r *remover) openToDelete(ctx context.Context, e *entry) (file win.File, changed bool, err error) {
	o := win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen}
	listable := e.isPlainDir()
	if listable {
		o.Access |= win.FileListDirectory | win.FileTraverse
	}
	if file, err = r.held.OpenIn(ctx, e.dir, e.Name, o); err != nil {
		return nil, false, err
	}
	e.FileInfo, err = file.Info(ctx)
	changed = e.isPlainDir() && !listable
	if err == nil && e.ReparseTag == win.TagMountPoint {
		changed, err = r.isMountPoint(ctx, file)
	}
	if err != nil || changed {
		return nil, changed, r.release(file, err)
	}
	return file, false, nil
}

// release closes file, and returns err or else what came of that.
func (r *remover) release(file win.File, err error) error {
	if releaseErr := r.held.Release(file); err == nil {
		err = releaseErr
	}
	return err
}

func (r *remover) isMountPoint(ctx context.Context, file win.File) (bool, error) {
	link, err := r.held.ReadLink(ctx, file)
	return link.Kind == pathpolicy.LinkToVolume, err
}

// unmount takes a mount point away through the mount manager, and leaves a junction
// alone. The directory is held meanwhile, without the right to delete it: the mount
// manager opens it too, and doesn't share deletion.
func (r *remover) unmount(ctx context.Context, e *entry) error {
	file, err := r.held.OpenIn(ctx, e.dir, e.Name, win.OpenOptions{
		Access:      win.FileListDirectory | win.FileTraverse | win.FileWriteAttributes,
		Disposition: win.FileOpen,
	})
	if err != nil {
		return err
	}
	mounted, err := r.isMountPoint(ctx, file)
	if err == nil && mounted {
		err = r.held.Retry(ctx, func() error {
			return r.held.Call(ctx, func(ctx context.Context) error { return r.sys.DeleteVolumeMountPoint(ctx, e.path+`\`) })
		})
		if unknown(err) {
			_, err = file.Control(ctx, win.FsctlDeleteReparsePoint, mountPointHeader(), nil)
		}
	}
	if errors.Is(err, win.ErrorNotAReparsePoint) {
		err = nil // somebody else has unmounted it
	}
	if err == nil {
		e.FileInfo, err = file.Info(ctx)
	}
	return r.release(file, err)
}

// unknown reports whether err of the mount manager says that it doesn't know the
// volume, which may have left the node: then the reparse point is all there is to
// remove.
func unknown(err error) bool {
	var errno win.Errno
	return errors.As(err, &errno) && (errno.Gone() || errno == win.ErrorInvalidParameter)
}

// mountPointHeader is a REPARSE_DATA_BUFFER without data, the input of
// FsctlDeleteReparsePoint.
func mountPointHeader() []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(win.TagMountPoint)), 0, 0, 0, 0)
}
