// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// foundLinks returns the paths of the links that Links finds.
func foundLinks(t *testing.T, sys *winsim.System, p *pathpolicy.Policy) (paths []string) {
	t.Helper()
	links, incomplete, err := p.Links(t.Context(), sys)
	must(t, err)
	must(t, incomplete)
	for _, l := range links {
		paths = append(paths, l.Path.String())
	}
	return paths
}

// CheckSearched accepts a path if, and only if, Links finds a link there. Links to shares are made
// nowhere else.
func TestCheckSearched(t *testing.T) {
	const (
		pod      = kubelet + `\pods\uid`
		emptyDir = pod + `\volumes\kubernetes.io~empty-dir`
		csi      = pod + `\volumes\kubernetes.io~csi`
		subpaths = pod + `\volume-subpaths`
	)
	deep := strings.Repeat(`\d`, 7)
	for path, searched := range map[string]bool{
		kubelet + `\link`:                 true,
		kubelet + deep + `\link`:          true,
		kubelet + deep + `\d\link`:        false,
		emptyDir:                          true, // which is no directory then
		emptyDir + `\link`:                false,
		emptyDir + `\cache\link`:          false,
		kubelet + `\mnt\link`:             false,
		pod:                               true,
		pod + `\link`:                     false, // kubelet has no volume there
		pod + `\volumes\link`:             true,
		pod + `\plugins\a\link`:           false,
		pod + `\volumes\a~b\link`:         true,
		pod + `\volumes\a~b\pv\link`:      false, // in the volume
		csi + `\link`:                     true,
		csi + `\pv\mount`:                 true,
		csi + `\pv\mount\link`:            false,
		subpaths + `\link`:                true,
		subpaths + `\pv\container\0`:      true,
		subpaths + `\pv\container\0\link`: false,
		pod + `\volumes\kubernetes.io~configmap\c\link`:    false,
		pod + `\volumes\kubernetes.io~projected\link`:      false,
		pod + `\volumes\kubernetes.io~configmap\link`:      false,
		pod + `\volumes\kubernetes.io~downward-api\link`:   false,
		pod + `\volumes\KUBERNETES.IO~SECRET\link`:         false,
		pod + `\volumes\kubernetes.io~downward-api\d\link`: false,
		`C:\link`:                          true,
		`C:` + deep + `\link`:              true,
		`C:` + deep + `\d\link`:            false,
		`C:\a\b\c\d\work\link`:             true, // on the way to an allowed directory, and in it
		`C:\a\b\c\d\work` + deep + `\link`: true,
	} {
		t.Run(path, func(t *testing.T) {
			sys, p := newNode(t), newPolicy(t)
			if !strings.HasPrefix(path, kubelet) {
				p = newPolicy(t, `C:\`, `C:\a\b\c\d\work`)
			}
			volume, _ := newVolume(t, sys)
			mount(t, sys, kubelet+`\mnt`, volume)
			var checked, made error
			must(t, p.ReachOrMake(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) error {
				checked = e.CheckSearched()
				_, made = e.MakeSymlink(t.Context(), `\\server\share\`, false, func(pathpolicy.Link) bool { return true })
				return nil
			}))
			if searched {
				must(t, checked)
				must(t, made)
			} else {
				simtest.WantErrorOf(t, "the check", checked, csiproxy.ErrFailedPrecondition, "doesn't search for links")
				simtest.WantErrorOf(t, "a link to a share", made, csiproxy.ErrFailedPrecondition, "doesn't search for links")
				must(t, sys.Symlink(path, `\\server\share\`, true))
			}
			if found := slices.Contains(foundLinks(t, sys, p), path); found != searched {
				t.Errorf("the link is found: %v", found)
			}
		})
	}
}

// TestIsOfPod has what is a pod's own, and what kubelet and drivers have beside it.
func TestIsOfPod(t *testing.T) {
	p := newPolicy(t)
	for path, isOfPod := range map[string]bool{
		`plugins\driver\kubernetes.io~empty-dir`:              false,
		`pods\uid`:                                            false,
		`pods\uid\volumes\kubernetes.io~csi\pv\mount`:         false,
		`pods\uid\volumes\kubernetes.io~csi\pv\mount\x`:       true,
		`pods\uid\volumes\kubernetes.io~csi\pv\other`:         false,
		`pods\uid\volumes\kubernetes.io~csi\pv\other\x`:       true,
		`pods\uid\volumes\kubernetes.io~local-volume\pv`:      false,
		`pods\uid\volumes\kubernetes.io~local-volume\pv\x`:    true,
		`pods\uid\volumes\kubernetes.io~empty-dir\cache`:      true,
		`pods\uid\volumes\Kubernetes.IO~Secret\cache\x`:       true,
		`pods\uid\containers\x`:                               true,
		`pods\uid\volume-subpaths\name\container\0`:           false,
		`pods\uid\volume-subpaths\name\container\0\directory`: true,
	} {
		parsed, err := p.Parse(kubelet+`\`+path, pathpolicy.MaxPath)
		must(t, err)
		if got := p.IsOfPod(parsed); got != isOfPod {
			t.Errorf("%s: %t", path, got)
		}
	}
}

// A link to a file leads to no volume and no share.
func TestLinksToFilesAreLeftOut(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.MkdirAll(kubelet+`\directory`))
	must(t, sys.WriteFile(kubelet+`\file`, nil))
	must(t, sys.Symlink(kubelet+`\to-directory`, kubelet+`\directory`, true))
	must(t, sys.Symlink(kubelet+`\to-file`, kubelet+`\file`, false))
	if found := foundLinks(t, sys, p); !slices.Equal(found, []string{kubelet + `\to-directory`}) {
		t.Errorf("the links are %q", found)
	}
}

// A link is one of a forgotten pod only where kubelet has the links of pods, and if what it needs to
// unpublish one isn't beside it, or has no contents.
func TestForgottenPods(t *testing.T) {
	const pods = kubelet + `\pods\`
	sys, p := newNode(t), newPolicy(t, kubelet, `C:\work`)
	want := map[string]string{
		pods + `lost\volumes\kubernetes.io~csi\pv\mount`:          "lost",
		pods + `empty\volumes\kubernetes.io~csi\pv\mount`:         "empty",
		pods + `UPPER\volumes\Kubernetes.io~CSI\pv\Mount`:         "UPPER",
		pods + `whole\volumes\kubernetes.io~csi\pv\mount`:         "",
		pods + `other\volumes\kubernetes.io~csi\pv\link`:          "",
		pods + `flex\volumes\example~driver\mount`:                "",
		kubelet + `\plugins\a\volumes\kubernetes.io~csi\pv\mount`: "",
		`C:\work\pods\a\volumes\kubernetes.io~csi\pv\mount`:       "",
	}
	must(t, sys.MkdirAll(kubelet+`\staged`))
	for path := range want {
		path = strings.Replace(path, `UPPER\volumes`, `UPPER\VOLUMES`, 1)
		must(t, sys.MkdirAll(path[:strings.LastIndex(path, `\`)]))
		must(t, sys.Symlink(path, kubelet+`\staged`, true))
	}
	must(t, sys.WriteFile(pods+`whole\volumes\kubernetes.io~csi\pv\vol_data.json`, []byte("{}")))
	must(t, sys.WriteFile(pods+`empty\volumes\kubernetes.io~csi\pv\vol_data.json`, nil))
	links, incomplete, err := p.Links(t.Context(), sys)
	must(t, err)
	must(t, incomplete)
	got := map[string]string{}
	for _, l := range links {
		got[l.Path.String()] = l.ForgottenPod
	}
	if !maps.Equal(got, want) {
		t.Errorf("the links are of the pods %q, want %q", got, want)
	}
}
