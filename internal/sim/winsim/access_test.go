// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// addAccess gives a group what icacls calls (OI)(CI)(M) of a directory.
func addAccess(t *testing.T, s *System, path string, sid winid.SID) {
	t.Helper()
	f, err := s.OpenFile(t.Context(), path, existing(win.ReadControl|win.WriteDAC, win.FileDirectoryFile))
	must(t, err)
	defer closeHandle(t, f)
	must(t, f.AddAccess(t.Context(), []win.ACE{{Flags: win.ObjectInherit | win.ContainerInherit, Rights: win.FileModify, SID: sid}}))
}

// A fresh volume is as csi-proxy#382 says: ContainerUser gets "access denied" at its root, and can make a
// directory there, and files in that.
func TestUsersOfAFreshVolume(t *testing.T) {
	for _, fileSystem := range []string{"NTFS", "ReFS"} {
		for _, split := range []bool{false, true} {
			s := newNode(t, Delays{})
			must(t, s.SetSettings(Settings{SplitAccessList: split}))
			_, volume := newVolume(t, s, false)
			must(t, s.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: fileSystem}))
			user, administrator := s.As(ContainerUser), s.As(ContainerAdministrator)
			stranger := s.As(&Account{SID: "S-1-5-21-1-2-3-1000", Groups: []winid.SID{winid.SIDEveryone}})
			must(t, administrator.WriteFile(volume+"a", []byte("a")))
			wantErr(t, "write at the root", user.WriteFile(volume+"b", nil), winerr.ErrorAccessDenied)
			wantErr(t, "write to an administrator's file", user.WriteFile(volume+"a", nil), winerr.ErrorAccessDenied)
			wantErr(t, "remove an administrator's file", user.Remove(volume+"a"), winerr.ErrorAccessDenied)
			if data, err := user.ReadFile(volume + "a"); err != nil || string(data) != "a" {
				t.Errorf("read: %q, %v", data, err)
			}
			must(t, user.MkdirAll(volume+`sub\sub`))
			must(t, user.WriteFile(volume+`sub\sub\b`, []byte("b")))
			must(t, user.Remove(volume+`sub\sub\b`))
			if _, err := user.ReadDir(volume); err != nil {
				t.Error(err)
			}
			if _, err := stranger.ReadDir(volume); err != nil { // Everyone has (RX) of the root alone
				t.Error(err)
			}
			_, err := stranger.ReadFile(volume + "a")
			wantErr(t, "read as who isn't one of the Users", err, winerr.ErrorAccessDenied)
			wantErr(t, "make a directory as him", stranger.MkdirAll(volume+"c"), winerr.ErrorAccessDenied)
			must(t, makePrivate(t.Context(), s, volume+"private"))
			_, err = user.ReadFile(volume + "private")
			wantErr(t, "read a private file", err, winerr.ErrorAccessDenied)
			_, err = administrator.ReadFile(volume + "private")
			must(t, err)
		}
	}
}

// Who is let modify the root may do so with what is made later, and what was there keeps its list.
func TestAddAccess(t *testing.T) {
	s := newNode(t, Delays{})
	_, volume := newVolume(t, s, true)
	must(t, s.WriteFile(volume+"before", nil))
	must(t, s.MkdirAll(volume+"directory"))
	const group winid.SID = "S-1-5-21-1-2-3-1001"
	member := s.As(&Account{SID: "S-1-5-21-1-2-3-1000", Groups: []winid.SID{winid.SIDEveryone, group}})
	addAccess(t, s, volume, group)
	addAccess(t, s, volume, group)
	must(t, member.WriteFile(volume+"new", []byte("new")))
	must(t, s.WriteFile(volume+"of SYSTEM", nil))
	must(t, member.WriteFile(volume+"of SYSTEM", nil))
	must(t, member.MkdirAll(volume+`sub\sub`))
	must(t, member.WriteFile(volume+`sub\sub\file`, nil))
	must(t, member.Remove(volume+"of SYSTEM"))
	wantErr(t, "write to what was there", member.WriteFile(volume+"before", nil), winerr.ErrorAccessDenied)
	wantErr(t, "remove it", member.Remove(volume+"before"), winerr.ErrorAccessDenied)
	wantErr(t, "write in a directory that was there", member.WriteFile(volume+`directory\new`, nil), winerr.ErrorAccessDenied)
	must(t, s.Rename(volume+`sub\sub\file`, volume+`directory\file`, false))
	must(t, member.WriteFile(volume+`directory\file`, nil)) // it keeps its list
	wantErr(t, "write at the root as ContainerUser", s.As(ContainerUser).WriteFile(volume+"x", nil), winerr.ErrorAccessDenied)

	f, err := s.OpenFile(t.Context(), volume, existing(win.ReadControl, win.FileDirectoryFile))
	must(t, err)
	defer closeHandle(t, f)
	list, err := f.AccessList(t.Context())
	must(t, err)
	if n := len(list); n != 8 || list[n-1].SID != group || list[0].SID != winid.SIDAdministrators {
		t.Errorf("the list is %+v", list)
	}
	wantErr(t, "add without the right", f.AddAccess(t.Context(), nil), winerr.ErrorAccessDenied)
	must(t, denyCreation(t.Context(), s, volume+`sub`, true))
	wantErr(t, "write where creation is denied", member.WriteFile(volume+`sub\x`, nil), winerr.ErrorAccessDenied)
	if list := s.accessOf(t, volume+`sub`); list[0].Type != win.AccessDenied || slices.ContainsFunc(list[1:], func(e win.ACE) bool {
		return e.Type == win.AccessDenied || e.Flags&win.InheritedACE == 0
	}) {
		t.Errorf("the list is %+v", list)
	}
}

func (s *System) accessOf(t *testing.T, path string) []win.ACE {
	t.Helper()
	f, err := s.OpenFile(t.Context(), path, existing(win.ReadControl, paths.OpenLink))
	must(t, err)
	defer closeHandle(t, f)
	list, err := f.AccessList(t.Context())
	must(t, err)
	return list
}
