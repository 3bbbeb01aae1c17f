// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const share = `\\server\share`

var (
	password    = csiproxy.NewSecret("passw0rd-of-the-test")
	credentials = win.SMBMappingOptions{Username: "user", Password: password}
)

// newShare makes the share for the user of credentials.
func newShare(t *testing.T, s *System) {
	t.Helper()
	must(t, s.SMB().AddShare(smbserver.Share{Server: "Server", Name: "Share"}))
	must(t, s.SMB().SetUser("server", "User", password))
}

// newMapping makes the share and maps it.
func newMapping(t *testing.T, s *System) {
	t.Helper()
	newShare(t, s)
	must(t, s.CreateSMBGlobalMapping(t.Context(), share, credentials))
}

// shareFiles is the file system of the mapped share.
func shareFiles(t *testing.T, s *System) *ntfs.FS {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	fs, _, err := s.smb.Connect("server", "share")
	must(t, err)
	return fs
}

// wantMappings compares the mappings of the node.
func wantMappings(t *testing.T, s *System, want ...win.SMBMapping) {
	t.Helper()
	got, err := s.SMBGlobalMappings(t.Context())
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

func TestRemoveSMBGlobalMapping(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	newMapping(t, s)
	must(t, s.WriteFile(share+`\file`, nil))
	held, err := s.OpenFile(ctx, share+`\file`, win.OpenOptions{Access: win.GenericRead, Disposition: win.FileOpen})
	must(t, err)
	must(t, s.SMB().AddShare(smbserver.Share{Server: "server", Name: "second"}))
	must(t, s.CreateSMBGlobalMapping(ctx, `\\server\second`, credentials))
	other, err := s.OpenFile(ctx, `\\server\second`, win.OpenOptions{Disposition: win.FileOpen})
	must(t, err)
	for _, path := range []string{`\\server\other`, `\\other\share`, `\\server`, share + `\dir`, `x`, ``} {
		wantErr(t, "remove "+path, s.RemoveSMBGlobalMapping(ctx, path), winerr.ErrorNotConnected)
	}
	must(t, s.RemoveSMBGlobalMapping(ctx, `\\SERVER\Share`))
	wantErr(t, "remove it again", s.RemoveSMBGlobalMapping(ctx, share), winerr.ErrorNotConnected)
	wantMappings(t, s, win.SMBMapping{RemotePath: `\\server\second`})
	wantErr(t, "an open file", errorOf(held.Info(ctx)), winerr.ErrorNetNameDeleted)
	wantErr(t, "one on another share", errorOf(other.Info(ctx)), 0)
	closeHandle(t, held)
	closeHandle(t, other)
	wantErr(t, "read without a mapping", errorOf(s.ReadFile(share+`\file`)), winerr.ErrorAccessDenied)
	must(t, s.CreateSMBGlobalMapping(ctx, share, credentials))
	must(t, s.Remove(share+`\file`)) // nobody holds it any more
}

// TestSMBUse: what a mapping answers follows the server, what it says of itself
// follows its last use.
func TestSMBUse(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	newMapping(t, s)
	must(t, s.MkdirAll(share+`\dir`))
	for _, step := range []struct {
		what string
		do   func() error
		want winerr.Errno // of the next use
	}{
		{"nothing", func() error { return nil }, 0},
		{"down", func() error { return s.SMB().SetState("SERVER", smbserver.State{Unreachable: true}) }, winerr.ErrorBadNetPath},
		{"up", func() error { return s.SMB().SetState("server", smbserver.State{}) }, 0},
		{"no encryption", func() error { return s.SMB().SetState("server", smbserver.State{NoEncryption: true}) }, 0},
		{"the same password", func() error { return s.SMB().SetUser("server", "user", password) }, 0},
		{"another password", func() error { return s.SMB().SetUser("server", "user", csiproxy.NewSecret("other")) },
			winerr.ErrorLogonFailure},
		{"the old password", func() error { return s.SMB().SetUser("server", "user", password) }, 0},
		{"no user", func() error { return s.SMB().RemoveUser("server", "USER") }, winerr.ErrorLogonFailure},
		{"the user again", func() error { return s.SMB().SetUser("server", "user", password) }, 0},
		{"no share", func() error { return s.SMB().RemoveShare("server", "SHARE") }, winerr.ErrorBadNetName},
		{"a share for others", func() error {
			return s.SMB().AddShare(smbserver.Share{Server: "server", Name: "share", Users: []string{"other"}})
		}, winerr.ErrorAccessDenied},
	} {
		before, err := s.SMBGlobalMappings(ctx)
		must(t, err)
		must(t, step.do())
		wantMappings(t, s, before...) // not used yet
		wantErr(t, step.what+": attributes", errorOf(s.FileAttributes(ctx, share)), step.want)
		status := win.SMBMappingOK
		if step.want != 0 {
			status = win.SMBMappingDisconnected
		}
		wantMappings(t, s, win.SMBMapping{RemotePath: share, Status: status})
	}
}

// TestSMBIsNoVolume: the calls about volumes don't take shares.
func TestSMBIsNoVolume(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	_, name := newVolume(t, s, true)
	newMapping(t, s)
	must(t, s.MkdirAll(share+`\dir`))
	must(t, s.MkdirAll(share+`\mount`))
	must(t, s.SetReparsePoint(share+`\mount`, win.NewMountPoint(name)))
	must(t, s.Symlink(kubelet+`\link`, share, true))
	for _, path := range []string{share + `\`, share + `\dir\`, kubelet + `\link\dir\`, share + `\mount\`} {
		wantErr(t, "volume of "+path, errorOf(s.VolumeNameForMountPoint(ctx, path)), winerr.ErrorNotAReparsePoint)
		wantErr(t, "mount at "+path, s.SetVolumeMountPoint(ctx, path, name), winerr.ErrorNotAReparsePoint)
		wantErr(t, "unmount "+path, s.DeleteVolumeMountPoint(ctx, path), winerr.ErrorNotAReparsePoint)
	}
	for path, want := range map[string]winerr.Errno{share + `\`: 0, share + `\dir\`: 144, kubelet + `\link\`: 0} {
		info, err := s.VolumeInformation(ctx, path)
		if wantErr(t, "information of "+path, err, want); err == nil && info.FileSystem != "NTFS" {
			t.Errorf("information of %s: %+v", path, info)
		}
		space, err := s.DiskFreeSpace(ctx, path)
		if err != nil || space.Total != 1<<40 || space.Free == 0 || space.Free >= space.Total {
			t.Errorf("space of %s: %+v, %v", path, space, err)
		}
	}
	if n := shareFiles(t, s).Handles(); n != 0 {
		t.Errorf("%d handles are left open", n)
	}
}

// TestSMBFaults: rules go by the remote path.
func TestSMBFaults(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	newMapping(t, s)
	must(t, s.SMB().AddShare(smbserver.Share{Server: "server", Name: "share2"}))
	must(t, s.Fail(Match{Call: "msft_smbglobalmapping.create", Object: `\\SERVER\share2`, Count: 1}, winerr.ErrorNoSuchLogonSession))
	must(t, s.Fail(Match{Call: "MSFT_SmbGlobalMapping.Remove", Object: share}, winerr.ErrorDeviceInUse))
	must(t, s.Fail(Match{Call: "MSFT_SmbGlobalMapping", Count: 1}, winerr.ErrorRetry))
	wantErr(t, "create", s.CreateSMBGlobalMapping(ctx, share+"2", credentials), winerr.ErrorNoSuchLogonSession)
	wantErr(t, "create again", s.CreateSMBGlobalMapping(ctx, share+"2", credentials), 0)
	wantErr(t, "remove", s.RemoveSMBGlobalMapping(ctx, share), winerr.ErrorDeviceInUse)
	wantErr(t, "list", errorOf(s.SMBGlobalMappings(ctx)), winerr.ErrorRetry)
	wantMappings(t, s, win.SMBMapping{RemotePath: share}, win.SMBMapping{RemotePath: share + "2"})
}
