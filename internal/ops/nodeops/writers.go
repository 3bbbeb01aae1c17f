// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// inheritedBelow makes all files and directories inherit an entry.
const inheritedBelow = win.ObjectInherit | win.ContainerInherit

// freshAccess is the access list that Windows gives to the root of a newly formatted volume, in the
// order in which icacls prints it.
//
// Source: https://github.com/kubernetes-csi/csi-proxy/issues/382, and
// https://github.com/microsoft/Windows-Containers/issues/539 for Windows Server 2019, 2022 and
// 2025. No source has the list of ReFS.
var freshAccess = []win.ACE{
	{Flags: inheritedBelow, Rights: win.FileFullControl, SID: winid.SIDAdministrators},
	{Flags: inheritedBelow, Rights: win.FileFullControl, SID: winid.SIDSystem},
	{Flags: inheritedBelow | win.InheritOnly, Rights: win.FileFullControl, SID: winid.SIDCreatorOwner},
	{Flags: inheritedBelow, Rights: win.FileReadExecute, SID: winid.SIDUsers},
	{Flags: win.ContainerInherit, Rights: win.FileAddSubdirectory, SID: winid.SIDUsers},
	{Flags: win.ContainerInherit | win.InheritOnly, Rights: win.FileAddFile, SID: winid.SIDUsers},
	{Rights: win.FileReadExecute, SID: winid.SIDEveryone},
}

// isFresh reports whether a list grants the same access as freshAccess, in any form: Windows may
// write generic rights, and separate entries for the directory and for everything below.
func isFresh(list []win.ACE) bool { return maps.Equal(effects(list), effects(freshAccess)) }

// effects returns the entries of a list, with generic rights replaced by file rights, and separate
// entries for the directory and for everything below.
func effects(list []win.ACE) map[win.ACE]bool {
	all := make(map[win.ACE]bool)
	for _, e := range list {
		for generic, rights := range map[win.Access]win.Access{
			win.GenericAll: win.FileFullControl, win.GenericRead: win.FileGenericRead,
			win.GenericWrite: win.FileGenericWrite, win.GenericExecute: win.FileGenericExecute,
		} {
			if e.Rights&generic != 0 {
				e.Rights = e.Rights&^generic | rights
			}
		}
		here, below := e, e
		here.Flags &^= inheritedBelow
		below.Flags |= win.InheritOnly
		if e.Flags&win.InheritOnly == 0 {
			all[here] = true
		}
		if e.Flags&inheritedBelow != 0 {
			all[below] = true
		}
	}
	return all
}

// windowsDirs are directories that Windows itself makes at the root of a volume.
var windowsDirs = []string{"System Volume Information", "$RECYCLE.BIN"}

// allowWriters lets writers, by default the Writers of the options, write at the root of a volume
// and to everything made there later. It leaves unchanged
//   - a volume with data
//   - a volume whose access list differs from a new volume's, except if the caller has formatted
//     the volume
//   - a volume mounted in an allowed directory, where files could be made meanwhile. The caller's
//     lock on the volume prevents new mounts. An administrator may still make files through a drive
//     letter: the new access list of the root doesn't reach them.
//
// The volume is opened by its name, and links can't redirect a volume name.
func (v *Volumes) allowWriters(ctx context.Context, lockedVolume *usage.LockedVolume, writers []string, formatted bool) (err error) {
	if len(writers) == 0 {
		writers = v.options.Writers
	}
	if len(writers) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = &csiproxy.Error{Object: volumeObject(lockedVolume.ID), Err: err, Detail: "can't set who may write at its root"}
		}
	}()
	entries := make([]win.ACE, len(writers))
	for i, writer := range writers {
		sid, err := csiproxy.ParseWriter(writer)
		if err != nil {
			return err
		}
		entries[i] = win.ACE{Flags: inheritedBelow, Rights: win.FileModify, SID: winid.SID(sid)}
	}
	root, err := v.sys.OpenFile(ctx, string(lockedVolume.ID), win.OpenOptions{
		Access: win.FileListDirectory | win.FileReadAttributes | win.ReadControl | win.WriteDAC,
		Share:  win.ShareRead | win.ShareWrite | win.ShareDelete, Disposition: win.FileOpen,
		Options: win.FileDirectoryFile | win.FileOpenReparsePoint,
	})
	if !formatted && winerr.IsAny(err, winerr.ErrorAccessDenied, winerr.ErrorWriteProtect) {
		return nil // the list isn't a new volume's, or the volume is read-only
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	list, err := root.AccessList(ctx)
	const noAccessList winerr.Errno = 1336
	if winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported, noAccessList) {
		return nil // everybody may write
	}
	if err != nil {
		return err
	}
	if !formatted && !isFresh(list) {
		return nil
	}
	mounted, err := v.options.Users.MountedAt(ctx, string(lockedVolume.ID))
	if err != nil || len(v.options.Users.Allowed(mounted)) > 0 {
		return err
	}
	if empty, err := isEmpty(ctx, root); err != nil || !empty {
		return err
	}
	if err := root.AddAccess(ctx, entries); err != nil {
		return err
	}
	v.options.Logger.Info("writers of a volume set", "volume", lockedVolume.ID, "writers", writers)
	return nil
}

// isEmpty reports whether a directory is empty except for windowsDirs.
func isEmpty(ctx context.Context, root win.File) (bool, error) {
	for restart := true; ; restart = false {
		entries, err := root.ReadDir(ctx, restart)
		if errors.Is(err, winerr.ErrorNoMoreFiles) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(entries, func(e win.DirEntry) bool {
			return !e.IsDir() || !slices.ContainsFunc(windowsDirs, func(name string) bool { return strings.EqualFold(name, e.Name) })
		}) {
			return false, nil
		}
	}
}
