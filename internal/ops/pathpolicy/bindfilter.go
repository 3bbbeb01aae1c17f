// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// openAt opens an entry relative to its directory and refuses links. The first directory of a walk
// is opened by its path.
//
// Windows' bind filter (bindflt) handles opens in a directory mounted into a HostProcess container.
// The filter may answer any relative open with "reparse", the answer of Windows for a link, even
// where there is no link. The first relative open of a walk tells a link and the filter apart: only
// the administrator can turn the first directory of a walk into a link, and a reparse point there
// means a filter. From then on, the walk opens an entry by its path whenever the filter refuses the
// relative open.
//
// Under load, the filter sometimes answers a relative open with ErrorInvalidParameter. Opens by
// path are immune. openAt retries the relative open once, and then opens by path. For a name of
// several elements, openAt reports a link instead, and the caller opens one element after the
// other.
//
// Source: https://github.com/microsoft/hcsshim/blob/main/internal/jobcontainers/mounts.go,
// https://github.com/microsoft/Windows-Containers/issues/635
func (e Entry) openAt(ctx context.Context, o win.OpenOptions) (win.File, error) {
	if e.dir == nil {
		return e.walk.sys.OpenFile(ctx, e.start.String(), o)
	}
	name, several := strings.Join(e.names, `\`), len(e.names) > 1
	f, err := e.dir.handle.OpenAt(ctx, name, o)
	if errors.Is(err, winerr.ErrorInvalidParameter) {
		f, err = e.dir.handle.OpenAt(ctx, name, o)
	}
	if errors.Is(err, winerr.ErrorInvalidParameter) && several {
		return nil, winerr.ErrorReparsePointEncountered
	}
	if errors.Is(err, winerr.ErrorInvalidParameter) {
		return e.openByPath(ctx, o)
	}
	if several || !errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return f, err // an element may really be a link
	}
	if e.dir.entry.dir == nil {
		e.walk.filtered = true
	}
	if !e.walk.filtered {
		return nil, err
	}
	return e.openByPath(ctx, o)
}

// openByPath opens an entry by its whole path. The held directory could have become a link, and
// openByPath compares final paths to prove the file is the entry of the held directory. If the open
// created an entry elsewhere, openByPath deletes the new entry through its handle.
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
			// A second handle creates the entry: creating needs the right to delete, and the
			// caller's handle must not have that right.
			f, err = e.openByPath(ctx, create)
			if err == nil {
				err = f.Close()
			}
			if err != nil && !errors.Is(err, winerr.ErrorAlreadyExists) {
				return nil, err
			}
		}
		return nil, winerr.ErrorFileNotFound // others keep making and removing the entry
	}
	mayBeLink := o.Options&win.FileOpenReparsePoint != 0
	o.Options |= win.FileOpenReparsePoint // an open by path would follow a link
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
	if err = e.prove(ctx, f); err == nil && !mayBeLink {
		err = checkNoLink(ctx, f)
	}
	if err == nil {
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
	if !win.SameName(path, strings.TrimSuffix(dir, `\`)+`\`+strings.Join(e.names, `\`)) {
		return winerr.ErrorReparsePointEncountered
	}
	return nil
}

// checkNoLink returns ErrorReparsePointEncountered if f is a link.
func checkNoLink(ctx context.Context, f win.File) error {
	info, err := f.Info(ctx)
	if err == nil && info.IsReparsePoint() {
		err = winerr.ErrorReparsePointEncountered
	}
	return err
}
