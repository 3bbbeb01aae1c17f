// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// openAt opens an entry relative to its directory, refusing links.
//
// A directory that is mounted into a HostProcess container goes through Windows' bind
// filter (bindflt), which may answer each relative open with "reparse", whether there is
// a link or not. So does a directory that somebody has just made a link. What tells them
// apart is the first relative open of a walk: the directory where a walk begins can't be
// made a link by anybody but the administrator. If already that open meets a reparse
// point, there is a filter, and the walk opens by path what the filter doesn't let it
// open otherwise.
//
// Under load, the filter also gives ErrorInvalidParameter now and then to relative opens, and
// never to those by path. That is tried again, and then by path. A name of several elements is
// treated as if there were a link among them, so that the caller takes one after the other.
//
// Source: https://github.com/microsoft/hcsshim/blob/main/internal/jobcontainers/mounts.go,
// https://github.com/microsoft/Windows-Containers/issues/635
func (e Entry) openAt(ctx context.Context, o win.OpenOptions) (win.File, error) {
	f, err := e.dir.handle.OpenAt(ctx, e.name, o)
	if errors.Is(err, win.ErrorInvalidParameter) {
		f, err = e.dir.handle.OpenAt(ctx, e.name, o)
	}
	several := strings.Contains(e.name, `\`)
	switch {
	case errors.Is(err, win.ErrorInvalidParameter) && several:
		return nil, win.ErrorReparsePointEncountered
	case errors.Is(err, win.ErrorInvalidParameter):
		return e.openByPath(ctx, o)
	case several, !errors.Is(err, win.ErrorReparsePointEncountered):
		return f, err // a name of several elements may well have a link among them
	}
	if e.dir.entry.dir == nil {
		e.walk.filtered = true
	}
	if !e.walk.filtered {
		return nil, err
	}
	return e.openByPath(ctx, o)
}

// openByPath opens an entry by its whole path, and proves by its final path that it is
// the entry of the held directory: that directory could have become a link. An entry that
// was made elsewhere for that reason is deleted through its handle.
func (e Entry) openByPath(ctx context.Context, o win.OpenOptions) (_ win.File, err error) {
	const attempts = 3
	if o.Disposition == win.FileOpenIf {
		open, create := o, o
		open.Disposition, create.Disposition = win.FileOpen, win.FileCreate
		for range attempts {
			f, err := e.openByPath(ctx, open)
			if !errors.Is(err, fs.ErrNotExist) {
				return f, err
			}
			// Made with the right to delete, which the caller's handle mustn't have.
			f, err = e.openByPath(ctx, create)
			if err == nil {
				err = f.Close()
			}
			if err != nil && !errors.Is(err, win.ErrorAlreadyExists) {
				return nil, err
			}
		}
		return nil, win.ErrorFileNotFound // others make and remove it all the time
	}
	made := o.Disposition == win.FileCreate
	if made {
		o.Access |= win.Delete
	}
	f, err := e.walk.sys.OpenFile(ctx, e.Path(), o)
	if err != nil {
		return nil, err
	}
	proven := false
	defer func() {
		if !proven {
			err = errors.Join(err, f.Close())
		}
	}()
	if err = e.prove(ctx, f); err == nil {
		proven = true
		return f, nil
	}
	if made {
		err = errors.Join(err, f.Delete(context.WithoutCancel(ctx)))
	}
	return nil, err
}

// prove returns ErrorReparsePointEncountered if f isn't the entry e.
func (e Entry) prove(ctx context.Context, f win.File) error {
	dir, err := e.dir.handle.FinalPath(ctx)
	if err != nil {
		return err
	}
	path, err := f.FinalPath(ctx)
	if err != nil {
		return err
	}
	if !winname.Equal(path, strings.TrimSuffix(dir, `\`)+`\`+e.name) {
		return win.ErrorReparsePointEncountered
	}
	return nil
}
