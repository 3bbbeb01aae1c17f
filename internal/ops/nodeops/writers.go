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

// inheritedBelow has all files and directories inherit an entry.
const inheritedBelow = win.ObjectInherit | win.ContainerInherit

// freshAccess is the access list that Windows gives to the root of a volume when it formats it, in the
// order in which icacls prints it.
//
// Source: https://github.com/kubernetes-csi/csi-proxy/issues/382, and
// https://github.com/microsoft/Windows-Containers/issues/539 for Windows Server 2019, 2022 and 2025.
// Nobody has published that of ReFS.
var freshAccess = []win.ACE{
	{Flags: inheritedBelow, Rights: win.FileFullControl, SID: winid.SIDAdministrators},
	{Flags: inheritedBelow, Rights: win.FileFullControl, SID: winid.SIDSystem},
	{Flags: inheritedBelow | win.InheritOnly, Rights: win.FileFullControl, SID: winid.SIDCreatorOwner},
	{Flags: inheritedBelow, Rights: win.FileReadExecute, SID: winid.SIDUsers},
	{Flags: win.ContainerInherit, Rights: win.FileAddSubdirectory, SID: winid.SIDUsers},
	{Flags: win.ContainerInherit | win.InheritOnly, Rights: win.FileAddFile, SID: winid.SIDUsers},
	{Rights: win.FileReadExecute, SID: winid.SIDEveryone},
}

// isFresh reports whether a list grants what freshAccess does, in whatever form: Windows may write the
// generic rights, and apart what is for the directory and what is for all below.
func isFresh(list []win.ACE) bool { return maps.Equal(effects(list), effects(freshAccess)) }

// effects are the entries of a list with the rights of files, apart for the directory and for what is
// below it.
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

// noData are directories that Windows makes at the root of a volume by itself.
var noData = []string{"System Volume Information", "$RECYCLE.BIN"}

// allowWriters lets writers, or those of the options if there are none, write at the root of a volume
// and to all that is made there later. It leaves a volume as it is that holds anything, or whose list
// isn't that of a format, unless the caller has formatted it; and one that is mounted in an allowed directory, so
// that nothing is made there meanwhile: the caller has the volume locked, and nobody mounts it.
// (An administrator may write by a drive letter or elsewhere, which harms nothing: what is there has inherited its
// list before.)
//
// The volume is opened by its name, which no link leads astray.
func (v *Volumes) allowWriters(ctx context.Context, lockedVolume *usage.LockedVolume, writers []string, formatted bool) (err error) {
	if len(writers) == 0 {
		writers = v.options.Writers
	}
	if len(writers) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = &csiproxy.Error{Object: volumeObject(lockedVolume.ID), Err: err, Detail: "who may write at its root can't be set"}
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
		return nil // its list isn't that of a format, or nobody writes to it
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
	if err != nil || !formatted && !isFresh(list) {
		return err
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

// isEmpty reports whether a directory has no entries but those of noData.
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
			return !e.IsDir() || !slices.ContainsFunc(noData, func(name string) bool { return strings.EqualFold(name, e.Name) })
		}) {
			return false, nil
		}
	}
}
