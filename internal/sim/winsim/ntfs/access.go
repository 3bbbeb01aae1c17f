// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package ntfs

import (
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Account is whose process opens files. A nil Account is SYSTEM, which no access list is asked about
// but for the entry that denies to create.
type Account struct {
	SID    winid.SID
	Groups []winid.SID
}

func (a *Account) is(sid winid.SID) bool { return a.SID == sid || slices.Contains(a.Groups, sid) }

// Accounts of containers, with the groups that count for files. `whoami /groups` prints those of
// ContainerUser in a container that is isolated by processes. ContainerAdministrator is one of the
// Administrators beside.
//
// Source: https://github.com/moby/buildkit/pull/5791 and
// https://learn.microsoft.com/virtualization/windowscontainers/manage-containers/persistent-storage
var (
	ContainerUser = &Account{SID: winid.SIDContainerUser,
		Groups: []winid.SID{winid.SIDEveryone, winid.SIDUsers, winid.SIDAuthenticatedUsers}}
	ContainerAdministrator = &Account{SID: winid.SIDContainerAdministrator,
		Groups: []winid.SID{winid.SIDEveryone, winid.SIDUsers, winid.SIDAuthenticatedUsers, winid.SIDAdministrators}}
)

// FreshAccess is the access list that a format gives to the root directory, as `icacls` prints it of a
// fresh NTFS volume on a Windows Server. That of ReFS is a guess: nobody has published it.
//
// Source: https://github.com/kubernetes-csi/csi-proxy/issues/382 and, for C: in containers on Windows
// Server 2019, 2022 and 2025, https://github.com/microsoft/Windows-Containers/issues/539
var FreshAccess = []win.ACE{
	{Flags: below, Rights: win.FileFullControl, SID: winid.SIDAdministrators},
	{Flags: below, Rights: win.FileFullControl, SID: winid.SIDSystem},
	{Flags: below | win.InheritOnly, Rights: win.GenericAll, SID: winid.SIDCreatorOwner},
	{Flags: below, Rights: win.FileReadExecute, SID: winid.SIDUsers},
	{Flags: win.ContainerInherit, Rights: win.FileAddSubdirectory, SID: winid.SIDUsers},
	{Flags: win.ContainerInherit | win.InheritOnly, Rights: win.FileAddFile, SID: winid.SIDUsers},
	{Rights: win.FileReadExecute, SID: winid.SIDEveryone},
}

// SplitAccess is FreshAccess with what is for the root apart from what is for all below. Windows' own
// setup has taken both for the list of a format.
var SplitAccess = []win.ACE{
	{Rights: win.FileFullControl, SID: winid.SIDAdministrators},
	{Flags: below | win.InheritOnly, Rights: win.GenericAll, SID: winid.SIDAdministrators},
	{Rights: win.FileFullControl, SID: winid.SIDSystem},
	{Flags: below | win.InheritOnly, Rights: win.GenericAll, SID: winid.SIDSystem},
	{Flags: below | win.InheritOnly, Rights: win.GenericAll, SID: winid.SIDCreatorOwner},
	{Rights: win.FileReadExecute, SID: winid.SIDUsers},
	{Flags: below | win.InheritOnly, Rights: win.GenericRead | win.GenericExecute, SID: winid.SIDUsers},
	{Flags: win.ContainerInherit, Rights: win.FileAddSubdirectory, SID: winid.SIDUsers},
	{Flags: win.ContainerInherit | win.InheritOnly, Rights: win.FileAddFile, SID: winid.SIDUsers},
	{Rights: win.FileReadExecute, SID: winid.SIDEveryone},
}

const below = win.ObjectInherit | win.ContainerInherit

// privateAccess is the list of a file for SYSTEM and the Administrators alone, and deniedEntry the one
// that DenyCreation adds.
var (
	privateAccess = []win.ACE{
		{Rights: win.FileFullControl, SID: winid.SIDSystem}, {Rights: win.FileFullControl, SID: winid.SIDAdministrators},
	}
	deniedEntry = win.ACE{Type: win.AccessDenied, Rights: win.FileAddFile | win.FileAddSubdirectory, SID: winid.SIDEveryone}
)

// SetRootAccess gives the root directory another list than FreshAccess.
func (f *FS) SetRootAccess(list []win.ACE) { f.root.setAccess(list) }

// accessList returns the list of n. Most have none of their own: they have what they have inherited.
func (n *Node) accessList() []win.ACE {
	var list []win.ACE
	switch {
	case n.access != nil:
		list = n.access
	case n.private:
		list = privateAccess
	case n.parent == nil:
		list = FreshAccess
	default:
		list = inherited(n.parent.accessList(), n.isDir(), n.owner)
	}
	if n.denied {
		list = slices.Insert(slices.Clone(list), 0, deniedEntry)
	}
	return list
}

// setAccess replaces the list of n. What is in n keeps the list that it has inherited.
func (n *Node) setAccess(list []win.ACE) {
	for _, c := range n.children {
		c.keepAccess()
	}
	n.access = slices.Clone(list)
	n.fs.touch(n.id)
}

// keepAccess keeps the list that n has inherited, as what is above n gets another one.
func (n *Node) keepAccess() {
	if n.access == nil && !n.private {
		denied := n.denied
		n.denied = false
		n.access = n.accessList()
		n.denied = denied
		n.fs.touch(n.id)
	}
}

// inherited returns what a new file or directory of an owner inherits from a list.
//
// Source: MS-DTYP 2.5.3.4.3 and https://learn.microsoft.com/windows/win32/secauthz/ace-inheritance-rules
func inherited(list []win.ACE, directory bool, owner winid.SID) (child []win.ACE) {
	if owner == "" {
		owner = winid.SIDAdministrators
	}
	for _, e := range list {
		applies := e.Flags&win.ObjectInherit != 0
		goesOn := win.ACEFlags(0)
		if directory {
			applies = e.Flags&win.ContainerInherit != 0
			if e.Flags&win.NoPropagateInherit == 0 {
				goesOn = e.Flags & below
			}
		}
		kept := win.ACE{Type: e.Type, Flags: goesOn | win.InheritedACE, Rights: e.Rights, SID: e.SID}
		if applies && e.SID == winid.SIDCreatorOwner {
			child = append(child, win.ACE{Type: e.Type, Flags: win.InheritedACE, Rights: e.Rights, SID: owner})
			applies = false
		}
		switch {
		case applies:
			child = append(child, kept)
		case goesOn != 0:
			kept.Flags |= win.InheritOnly
			child = append(child, kept)
		}
	}
	return child
}

// allows reports whether the list of n lets an account open it with some access. Who may delete what is
// in the directory above needs no right to n for that, and the owner may read and change the list.
//
// Source: MS-DTYP 2.5.3.2
func (n *Node) allows(a *Account, wanted win.Access) bool {
	if a == nil {
		return true
	}
	if n.owner != "" && a.is(n.owner) {
		wanted &^= win.ReadControl | win.WriteDAC
	}
	if wanted&win.Delete != 0 && n.parent != nil && granted(n.parent.accessList(), a, win.FileDeleteChild) {
		wanted &^= win.Delete
	}
	if n.parent != nil && granted(n.parent.accessList(), a, win.FileListDirectory) {
		wanted &^= win.FileReadAttributes
	}
	return granted(n.accessList(), a, wanted)
}

// granted reports whether a list grants an account all rights that it wants.
func granted(list []win.ACE, a *Account, wanted win.Access) bool {
	wanted = mapGeneric(wanted)
	for _, e := range list {
		if e.Flags&win.InheritOnly != 0 || !a.is(e.SID) {
			continue
		}
		rights := mapGeneric(e.Rights)
		switch {
		case e.Type == win.AccessDenied && wanted&rights != 0:
			return false
		case e.Type == win.AccessAllowed:
			wanted &^= rights
		}
		if wanted == 0 {
			return true
		}
	}
	return wanted == 0
}

// AccessList returns the access list.
func (h *Handle) AccessList() ([]win.ACE, error) {
	return slices.Clone(h.node.accessList()), h.need(win.ReadControl)
}

// AddAccess adds entries to the directory's access list, behind those that aren't inherited.
func (h *Handle) AddAccess(entries []win.ACE) error {
	const needed = win.ReadControl | win.WriteDAC
	if h.access&needed != needed {
		return winerr.ErrorAccessDenied
	}
	n := h.node
	denied := n.denied // its entry isn't in the list of n
	n.denied = false
	list := slices.Clone(n.accessList())
	n.denied = denied
	for _, e := range entries {
		if slices.Contains(list, e) {
			continue
		}
		at := slices.IndexFunc(list, func(old win.ACE) bool { return old.Flags&win.InheritedACE != 0 })
		if at < 0 {
			at = len(list)
		}
		list = slices.Insert(list, at, e)
	}
	if !slices.Equal(list, n.accessList()) {
		n.setAccess(list)
	}
	return nil
}
