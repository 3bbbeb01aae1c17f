// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Short names for what prepares a test.
var (
	must      = simtest.Must
	newVolume = simtest.Volume
	mount     = simtest.Mount
)

func newFileNode(t *testing.T) *winsim.System {
	t.Helper()
	sys := simtest.Open(t, winsim.Delays{})
	file, err := groupsOf(t, sys, nodeops.Options{}).Locks.KeepLockFile(t.Context()) // tests compare what is in C:\Windows
	must(t, err)
	must(t, file.Close())
	return sys
}

// newFilesystem returns the operations with the kubelet directory and the working
// directories allowed.
func newFilesystem(t *testing.T, sys win.System, workingDirs ...string) *nodeops.Filesystem {
	t.Helper()
	return groupsOf(t, sys, nodeops.Options{WorkingDirs: workingDirs}).Files
}

// groupsOf returns the groups of operations of a process that has just started on a node.
func groupsOf(t testing.TB, sys win.System, o nodeops.Options) nodeops.Groups {
	t.Helper()
	n, err := nodeops.New(sys, o)
	must(t, err)
	return nodeops.GroupsOf(n)
}

// parse parses a path in the kubelet directory.
func parse(path string) pathpolicy.Path {
	p, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubelet})
	if err == nil {
		var parsed pathpolicy.Path
		if parsed, err = p.Parse(path, pathpolicy.MaxPath); err == nil {
			return parsed
		}
	}
	panic(err)
}

// tree lists what is at and below a directory, without following links, each as
// its path and what it is. The directory may be missing.
func tree(t *testing.T, sys *winsim.System, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	var list func(dir string)
	list = func(dir string) {
		entries, err := sys.ReadDir(dir)
		if errors.Is(err, winerr.ErrorFileNotFound) || errors.Is(err, winerr.ErrorPathNotFound) {
			return
		}
		must(t, err)
		found[dir] = "directory"
		for _, e := range entries {
			path := dir + `\` + e.Name
			switch {
			case e.IsReparsePoint():
				found[path] = "link to " + linkTarget(t, sys, path)
				if strings.HasPrefix(found[path], `link to \\?\Volume{`) { // another name at each run
					found[path] = "link to a volume"
				}
			case e.IsDir():
				list(path)
			default:
				data, err := sys.ReadFile(path)
				must(t, err)
				found[path] = "file " + string(data)
			}
		}
	}
	list(dir)
	return found
}

// linkTarget reads a link.
func linkTarget(t *testing.T, sys *winsim.System, path string) string {
	t.Helper()
	f, err := sys.OpenFile(t.Context(), path,
		win.OpenOptions{Disposition: win.FileOpen, Options: win.FileOpenReparsePoint})
	must(t, err)
	defer f.Close()
	b := make([]byte, win.MaximumReparseDataSize)
	n, err := f.Control(t.Context(), win.FsctlGetReparsePoint, nil, b)
	must(t, err)
	r, err := win.DecodeReparsePoint(b[:n])
	must(t, err)
	return r.Target()
}

func TestFilesOnOtherWindows(t *testing.T) {
	simtest.OnOtherWindows(t, map[string]func(*testing.T){
		"TestPathExists":                  TestPathExists,
		"TestMkdir":                       TestMkdir,
		"TestIsSymlink":                   TestIsSymlink,
		"TestCreateSymlink":               TestCreateSymlink,
		"TestCreateSymlinkTwiceAtOneTime": TestCreateSymlinkTwiceAtOneTime,
		"TestRmdirForce":                  TestRmdirForce,
		"TestRmdir":                       TestRmdir,
		"TestRmdirWithoutMountManager":    TestRmdirWithoutMountManager,
		"TestRmdirChanged":                TestRmdirChanged,
	})
}

func TestAttacksAndFailuresOnOtherWindows(t *testing.T) {
	if simtest.Sampled() {
		t.Skip("it takes long; make test-resilience runs it")
	}
	simtest.OnWindows(t, winsim.Settings{MountManagerExclusive: true, BindFilter: true}, map[string]func(*testing.T){
		"TestSwappedLinks":           TestSwappedLinks,
		"TestErrorAtEachCallOfFiles": TestErrorAtEachCallOfFiles,
	})
}
