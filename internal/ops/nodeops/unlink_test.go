// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Only a symbolic link goes, and what PublishVolume leaves of one.
func TestUnlink(t *testing.T) {
	errNotNow := errors.New("not now")
	for name, c := range map[string]struct {
		unlink, unlinkIf error
		stays            bool
	}{
		"link":     {},
		"dangling": {},
		"empty":    {unlinkIf: csiproxy.ErrFailedPrecondition},
		"missing":  {},
		"full":     {unlink: csiproxy.ErrFailedPrecondition, unlinkIf: csiproxy.ErrFailedPrecondition, stays: true},
		"file":     {unlink: csiproxy.ErrFailedPrecondition, unlinkIf: csiproxy.ErrFailedPrecondition, stays: true},
		"junction": {unlink: csiproxy.ErrFailedPrecondition, unlinkIf: csiproxy.ErrFailedPrecondition, stays: true},
		"mount":    {unlink: csiproxy.ErrFailedPrecondition, unlinkIf: csiproxy.ErrFailedPrecondition, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			sys := newFileNode(t)
			f := newFilesystem(t, sys)
			id, _ := newVolume(t, sys)
			mount(t, sys, kubelet+`\mount`, id)
			must(t, sys.MkdirAll(kubelet+`\full\x`))
			must(t, sys.MkdirAll(kubelet+`\empty`))
			must(t, sys.WriteFile(kubelet+`\file`, nil))
			must(t, sys.Symlink(kubelet+`\link`, kubelet+`\full`, true))
			must(t, sys.Symlink(kubelet+`\dangling`, kubelet+`\nowhere`, true))
			must(t, sys.Junction(kubelet+`\junction`, kubelet+`\full`))
			path := parse(kubelet + `\` + name)
			is := func() bool { return tree(t, sys, kubelet)[path.String()] != "" }
			was := is()
			for _, says := range []error{nil, errNotNow} { // that it isn't meant, or an error
				removed, err := f.UnlinkIf(t.Context(), path, func(context.Context, pathpolicy.Link) (bool, error) { return false, says })
				if c.unlinkIf == nil && was && says != nil {
					simtest.WantError(t, err, says)
				} else {
					simtest.WantError(t, err, c.unlinkIf)
				}
				if removed || is() != was {
					t.Errorf("it was removed, as it is said: %v", removed)
				}
			}
			simtest.WantError(t, f.Unlink(t.Context(), path), c.unlink)
			simtest.Want(t, "it stays", is(), c.stays)
			simtest.Want(t, "entries of what it led to", len(tree(t, sys, kubelet+`\full`)), 2)
		})
	}
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubelet))
	must(t, sys.Symlink(kubelet+`\link`, kubelet, true))
	for _, want := range []bool{true, false} {
		removed, err := f.UnlinkIf(t.Context(), parse(kubelet+`\link`), func(context.Context, pathpolicy.Link) (bool, error) { return true, nil })
		if err != nil || removed != want {
			t.Errorf("removed: %v, %v", removed, err)
		}
	}
}

// newUnmapped returns a node with a link to a share, whose mapping a driver has asked to remove; a
// function that reports whether the mapping is gone; and the operations.
func newUnmapped(t *testing.T, log *slog.Logger) (*winsim.System, func() bool, *nodeops.Filesystem) {
	t.Helper()
	sys := newFileNode(t)
	newFileShares(t, sys, "server")
	must(t, sys.MkdirAll(kubelet+`\dir`))
	must(t, sys.Symlink(kubelet+`\share`, `\\server\data\sub`, true))
	g := groupsOf(t, sys, nodeops.Options{Logger: log})
	must(t, g.Mappings.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
	return sys, func() bool {
		mapped, err := sys.SMBGlobalMappings(t.Context())
		must(t, err)
		return len(mapped) == 0
	}, g.Files
}

// A mapping that a driver has asked to remove goes with the last link to its share, and with no other
// link.
func TestRmdirOfALinkToAShare(t *testing.T) {
	sys, unmapped, f := newUnmapped(t, nil)
	must(t, sys.Symlink(kubelet+`\local`, kubelet+`\dir`, true))
	relative := win.ReparsePoint{Tag: win.TagSymlink, SubstituteName: `\\server\other`, Relative: true} // to nothing
	must(t, sys.SetReparsePoint(mustDir(t, sys, kubelet+`\relative`), relative))
	for _, name := range []string{"dir", "local", "relative", "share"} {
		must(t, f.Rmdir(t.Context(), kubelet+`\`+name, false))
		simtest.Want(t, "the mapping is gone after "+name, unmapped(), name == "share")
	}
}

// Who can't see whether a link leads to a share doesn't remove it: its mapping would stay. If the
// mapping itself can't be removed, that is logged.
func TestRmdirOfALinkThatCannotBeRead(t *testing.T) {
	operations := make(map[string]func(t *testing.T) simtest.Attempt)
	for _, force := range []bool{false, true} {
		operations[fmt.Sprint("force: ", force)] = func(t *testing.T) simtest.Attempt {
			var log bytes.Buffer
			sys, unmapped, f := newUnmapped(t, slog.New(slog.NewTextHandler(&log, nil)))
			return simtest.Attempt{Sys: sys, Want: "<nil>: true",
				Run: func(ctx context.Context) (any, error) { return nil, f.Rmdir(ctx, kubelet+`\share`, force) },
				State: func() any {
					told := unmapped() || strings.Contains(log.String(), "can't remove")
					return told && tree(t, sys, kubelet)[kubelet+`\share`] == ""
				}}
		}
	}
	simtest.ErrorAtEachCall(t, operations)
}

// newLocked returns a node, its locker, and the operations.
func newLocked(t *testing.T) (*winsim.System, *usage.Locker, *nodeops.Filesystem) {
	t.Helper()
	sys := newFileNode(t)
	g := groupsOf(t, sys, nodeops.Options{})
	return sys, g.Locks, g.Files
}

// CleanUp removes a link while another call makes the same one: in the end, it is there.
func TestLinkIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, _, f := newLocked(t)
		must(t, sys.MkdirAll(kubelet+`\x`))
		must(t, sys.Symlink(kubelet+`\link`, kubelet+`\x`, true))
		made := make(chan error, 1)
		removed, err := f.UnlinkIf(t.Context(), parse(kubelet+`\link`), func(context.Context, pathpolicy.Link) (bool, error) {
			go func() { made <- f.CreateSymlink(context.Background(), kubelet+`\x`, kubelet+`\link`) }()
			synctest.Wait()
			return true, nil
		})
		must(t, err)
		must(t, <-made)
		simtest.Want(t, "removed", removed, true)
		if to := tree(t, sys, kubelet)[kubelet+`\link`]; to != "link to "+kubelet+`\x` {
			t.Errorf("it is %q", to)
		}
	})
}

// Another volume is mounted in the place of the first one while that is locked. It is
// unmounted only while it is locked itself.
func TestRmdirWhereAnotherVolumeIsMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, locker, f := newLocked(t)
		first, _ := newVolume(t, sys)
		second, _ := newVolume(t, sys)
		const dir = kubelet + `\x`
		mount(t, sys, dir, first)
		lockedVolume, err := locker.LockVolumeOnly(t.Context(), csiproxy.VolumeID(second))
		must(t, err)
		defer lockedVolume.Release()
		looks := 0
		sys.OnCall(func(c winsim.Call) {
			if c.Name == win.FsctlGetReparsePoint.String() && c.Object == dir {
				if looks++; looks == 2 {
					must(t, sys.SetReparsePoint(dir, win.NewMountPoint(second)))
				}
			}
		})
		err = f.Rmdir(t.Context(), dir, true)
		sys.OnCall(nil)
		simtest.WantError(t, err, csiproxy.ErrUnavailable)
		if got, err := sys.VolumeNameForMountPoint(t.Context(), dir+`\`); err != nil || got != second {
			t.Errorf("mounted is %q, %v", got, err)
		}
	})
}
