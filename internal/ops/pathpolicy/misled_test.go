// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// misled is a node on which a path leads elsewhere when it is opened as a whole.
type misled struct {
	pathpolicy.System
	path, to string
}

func (m misled) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	if strings.EqualFold(path, m.path) {
		path = m.to
	}
	return m.System.OpenFile(ctx, path, o)
}

// Behind a bind filter, files are opened by their whole paths. What comes must have the very path of the
// entry: a path that begins or ends like it is another one.
func TestOpenByPathProvesTheWholePath(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.SetSettings(winsim.Settings{BindFilter: true}))
	const path = kubelet + `\a\b\x`
	for to, want := range map[string]error{
		path:                     nil,
		path + `-longer`:         winerr.ErrorReparsePointEncountered,
		path + `\below`:          winerr.ErrorReparsePointEncountered,
		kubelet + `\a\b-other\x`: winerr.ErrorReparsePointEncountered,
		kubelet + `\a\x`:         winerr.ErrorReparsePointEncountered,
		kubelet + `\b\x`:         winerr.ErrorReparsePointEncountered,
		`C:\a\b\x`:               winerr.ErrorReparsePointEncountered,
	} {
		must(t, sys.MkdirAll(path))
		must(t, sys.MkdirAll(to))
		node := misled{sys, path, to}
		err := p.Reach(t.Context(), node, mustParse(t, p, path), func(e pathpolicy.Entry) error {
			_, err := e.Open(t.Context(), pathpolicy.ForAttributes)
			return err
		})
		simtest.WantErrorOf(t, to, err, want)
	}
}

// Lookup tells what a path leads to by way of a link, too.
func TestLookupFollowsLinksOnTheWay(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	volume, _ := newVolume(t, sys)
	must(t, sys.MkdirAll(kubelet+`\a\b`))
	mount(t, sys, kubelet+`\a\b\mnt`, volume)
	must(t, sys.Symlink(kubelet+`\a\b\share`, `\\server\share`, true))
	must(t, sys.Symlink(kubelet+`\way`, kubelet+`\a`, true))
	for path, want := range map[string]pathpolicy.Resolved{
		kubelet + `\way\b\mnt`:   {Kind: pathpolicy.MountedVolume, Volume: volume, Target: volume},
		kubelet + `\way\b\share`: {Kind: pathpolicy.SharedDirectory, Target: `\\server\share`},
	} {
		got, err := p.Lookup(t.Context(), sys, mustParse(t, p, path))
		must(t, err)
		simtest.Want(t, path, got, want)
	}
}

// A directory that becomes a link when Links is about to enter it isn't entered: the link is found, what
// is behind it isn't looked at, and nothing is missing.
func TestLinksDontEnterWhatBecomesALink(t *testing.T) {
	for name, make := range map[string]func(sys *winsim.System, path, target string) error{
		"link":     func(sys *winsim.System, path, target string) error { return sys.Symlink(path, target, true) },
		"junction": (*winsim.System).Junction,
	} {
		t.Run(name, func(t *testing.T) {
			sys, p := newNode(t), newPolicy(t)
			must(t, sys.MkdirAll(kubelet+`\dir`))
			must(t, sys.MkdirAll(`C:\outside`))
			must(t, sys.Symlink(`C:\outside\link`, `C:\Windows`, true))
			read := 0
			sys.OnCall(func(c winsim.Call) {
				switch {
				case c.Name == win.CallOpenAt && strings.HasSuffix(c.Object, `dir`):
					must(t, sys.Remove(kubelet+`\dir`))
					must(t, make(sys, kubelet+`\dir`, `C:\outside`))
				case c.Name == win.CallReadDir && strings.HasSuffix(c.Object, `dir`):
					read++
				}
			})
			all, incomplete, err := p.Links(t.Context(), sys)
			sys.OnCall(nil)
			must(t, err)
			must(t, incomplete)
			if _, err := sys.ReadLink(kubelet + `\dir`); err != nil || len(all) != 1 || read > 0 {
				t.Errorf("%v; it finds %v, and reads the directory %d times", err, all, read)
			}
		})
	}
}
