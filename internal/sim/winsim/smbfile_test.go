// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestSMBFiles(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	newMapping(t, s)
	link := kubelet + `\plugins\link`
	must(t, s.Symlink(link, share+`\`, true))
	must(t, s.Symlink(kubelet+`\plugins\dir`, `\\SERVER\share\Dir`, true))
	must(t, s.MkdirAll(link+`\dir\sub`))
	must(t, s.WriteFile(share+`\Dir\file`, []byte("content")))
	shareFiles(t, s).DropUnflushed() // the server has nothing to lose
	for _, path := range []string{
		`\\SERVER\SHARE\DIR\FILE`, `//server/share/dir/./sub/../file`, `\\?\UNC\server\share\dir\file`, `\\?\unc\server\share\dir\file`,
		`\\server\share\..\..\dir\file`, link + `\dir\file`, kubelet + `\plugins\dir\file`,
	} {
		wantText(t, s, path, "content")
	}
	must(t, s.Rename(link+`\dir\file`, share+`\renamed`, false))
	entries, err := s.ReadDir(link)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	if diff := cmp.Diff([]string{"dir", "renamed"}, names); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	wantErr(t, "rename to the volume", s.Rename(share+`\renamed`, kubelet+`\renamed`, false), winerr.ErrorNotSameDevice)
	wantErr(t, "remove a full directory", s.Remove(share+`\dir`), winerr.ErrorDirNotEmpty)
	must(t, s.Remove(link+`\dir\sub`))
	must(t, s.Remove(share+`\dir`))

	must(t, s.Symlink(share+`\relative`, `renamed`, false))
	must(t, s.Symlink(share+`\away`, kubelet, true))
	for path, want := range map[string]winerr.Errno{
		share:                        0,
		share + `\`:                  0,
		link:                         0,
		share + `\renamed`:           0,
		share + `\missing`:           winerr.ErrorFileNotFound,
		share + `\missing\dir`:       winerr.ErrorPathNotFound,
		share + `\a*`:                winerr.ErrorInvalidName,
		share + `\away`:              0, // the link itself
		share + `\away\pods`:         errorSymlinkClassDisabled,
		`\\server`:                   winerr.ErrorInvalidName,
		`\\server\`:                  winerr.ErrorInvalidName,
		`\\?\UNC\server`:             winerr.ErrorInvalidName,
		`\\?\UNC\server\share\..\x`:  winerr.ErrorInvalidName,
		`\\server\other`:             winerr.ErrorAccessDenied,
		`\\other\share`:              winerr.ErrorBadNetPath,
		`\\.\UNC\server\share`:       winerr.ErrorFileNotFound,
		kubelet + `\plugins\missing`: winerr.ErrorFileNotFound,
	} {
		wantErr(t, "attributes of "+path, errorOf(s.FileAttributes(ctx, path)), want)
	}
	wantErr(t, "follow a link on the share", errorOf(s.ReadFile(share+`\relative`)), errorSymlinkClassDisabled)
}

// TestSMBRestart: the servers stand outside of the node.
func TestSMBRestart(t *testing.T) {
	for name, restart := range map[string]func(*System) error{"reboot": (*System).Reboot,
		"loss of power": (*System).PowerLoss} {
		t.Run(name, func(t *testing.T) {
			s := newNode(t, Delays{})
			newMapping(t, s)
			must(t, s.WriteFile(share+`\file`, []byte("content")))
			want := s.SMB().Servers()
			must(t, restart(s))
			wantMappings(t, s)
			wantErr(t, "read without a mapping", errorOf(s.ReadFile(share+`\file`)), winerr.ErrorAccessDenied)
			if diff := cmp.Diff(want, s.SMB().Servers()); diff != "" {
				t.Errorf("servers (-before +after):\n%s", diff)
			}
			must(t, s.CreateSMBGlobalMapping(t.Context(), share, credentials))
			wantText(t, s, share+`\file`, "content")
		})
	}
}
