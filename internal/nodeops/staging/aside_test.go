// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

const asidePath = simtest.Kubelet + `\csi-proxy-moved-aside`

// aside returns what was moved aside from the staging path: the directories that have it.
func aside(t *testing.T, sim *winsim.System) (found []string) {
	t.Helper()
	times, _ := sim.ReadDir(asidePath)
	for _, e := range times {
		path := asidePath + `\` + e.Name + strings.TrimPrefix(stagingPath, simtest.Kubelet)
		if _, err := sim.ReadDir(path); err == nil {
			found = append(found, path)
		}
	}
	return found
}

// All that is in a directory is moved, as it is, and a volume can be staged there.
func TestMoveAside(t *testing.T) {
	sim, n := newNode(t)
	ctx := t.Context()
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	r := storage.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	simtest.Must(t, sim.MkdirAll(stagingPath+`\dir\sub`))
	simtest.Must(t, sim.WriteFile(stagingPath+`\dir\sub`+file, []byte("precious")))
	simtest.Must(t, sim.SetFileAttributes(stagingPath+`\dir\sub`+file, win.AttributeReadOnly))
	simtest.Must(t, sim.Symlink(stagingPath+`\a-link`, simtest.Kubelet+`\none`, true))
	for i := range 120 {
		simtest.Must(t, sim.WriteFile(fmt.Sprintf(`%s\file-%03d`, stagingPath, i), nil))
	}
	if _, err := n.Storage.StageVolume(ctx, r); csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition {
		t.Fatalf("staged before: %v", err)
	}
	moved, err := n.Storage.MoveAside(ctx, stagingPath)
	simtest.Must(t, err)
	if at := aside(t, sim); len(at) != 1 || at[0] != moved.MovedTo {
		t.Fatalf("it is at %q; told was %q", at, moved.MovedTo)
	}
	first := moved.Entries[0]
	if len(moved.Entries) != storage.MostMovedEntries || !moved.MoreEntries || first.Name != "a-link" || first.Created.IsZero() {
		t.Errorf("listed are %d entries, more %t: %+v", len(moved.Entries), moved.MoreEntries, first)
	}
	if data, err := sim.ReadFile(moved.MovedTo + `\dir\sub` + file); string(data) != "precious" || err != nil {
		t.Errorf("the file is %q, %v", data, err)
	}
	if to, err := sim.ReadLink(moved.MovedTo + `\a-link`); to != simtest.Kubelet+`\none` || err != nil {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if again, err := n.Storage.MoveAside(ctx, stagingPath); err != nil || again.MovedTo != "" {
		t.Errorf("again: %+v, %v", again, err)
	}
	stage(t, n, r)
	if list, err := n.Storage.ListVolumes(ctx); err != nil || len(list.Mounts) != 1 || list.IncompleteReason != "" {
		t.Errorf("mounted are %+v, %v", list, err)
	}
	// An administrator removes it.
	simtest.Must(t, n.Filesystem.Rmdir(ctx, asidePath, true))
}

// A link that a pod has planted counts for nothing once it is moved.
func TestMovedLinksAreNoLeftovers(t *testing.T) {
	sim, n := newNode(t)
	const path = simtest.Kubelet + `\plugins\pv` // not as deep as others, so that links are found
	simtest.Must(t, sim.MkdirAll(path))
	simtest.Must(t, sim.Symlink(path+`\link`, simtest.Kubelet+`\none`, true))
	for _, want := range []int{1, 0} {
		list, err := n.Storage.ListVolumes(t.Context())
		if err != nil || len(list.Mounts) != want {
			t.Errorf("%+v, %v; want %d", list, err, want)
		}
		_, err = n.Storage.MoveAside(t.Context(), path)
		simtest.Must(t, err)
	}
}

func TestMoveAsideOfNothing(t *testing.T) {
	sim, n := newNode(t)
	for range 2 {
		if moved, err := n.Storage.MoveAside(t.Context(), stagingPath); err != nil || moved.MovedTo != "" {
			t.Errorf("%+v, %v", moved, err)
		}
		simtest.Must(t, sim.MkdirAll(stagingPath))
	}
	if _, err := sim.ReadDir(asidePath); err == nil {
		t.Error("a directory was made for nothing")
	}
}

// What isn't somebody's leftover in an empty place stays where it is.
func TestMoveAsideRefuses(t *testing.T) {
	sim, n := newNode(t)
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stage(t, n, storage.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	simtest.Must(t, sim.MkdirAll(stagingPath+`\dir`))
	simtest.Must(t, sim.WriteFile(stagingPath+`\dir`+file, nil))
	simtest.Must(t, n.Storage.PublishVolume(t.Context(), stagingPath, targetPath))
	simtest.Must(t, sim.MkdirAll(otherPath))
	simtest.Must(t, sim.WriteFile(otherPath+file, nil))
	for path, want := range map[string]struct {
		kind error
		word string
	}{
		stagingPath:                        {csiproxy.ErrFailedPrecondition, "staged there"},
		targetPath:                         {csiproxy.ErrFailedPrecondition, "staged there"},
		stagingPath + `\dir`:               {csiproxy.ErrFailedPrecondition, "mounted volume"},
		otherPath + file:                   {csiproxy.ErrFailedPrecondition, "file and no directory"},
		simtest.Kubelet + `\plugins`:       {csiproxy.ErrFailedPrecondition, "mounted below it, at " + stagingPath},
		simtest.Kubelet:                    {csiproxy.ErrFailedPrecondition, "mounted below it"},
		`C:\Windows`:                       {csiproxy.ErrInvalidArgument, "not inside"},
		simtest.Kubelet + `\..\..\Windows`: {csiproxy.ErrInvalidArgument, ""},
	} {
		_, err := n.Storage.MoveAside(t.Context(), path)
		wantKind(t, path, err, want.kind, want.word)
	}
	h, err := sim.Hold(otherPath+file, win.OpenOptions{Access: win.FileListDirectory, Share: win.ShareRead, Disposition: win.FileOpen})
	simtest.Must(t, err)
	_, err = n.Storage.MoveAside(t.Context(), otherPath)
	wantKind(t, "while a file is open", err, csiproxy.ErrFailedPrecondition, "has a file in it open")
	simtest.Must(t, h.Close())
	unstage(t, n, storage.UnstageVolumeRequest{StagingPath: stagingPath, Force: true})
	_, err = n.Storage.MoveAside(t.Context(), simtest.Kubelet)
	wantKind(t, "the kubelet directory", err, csiproxy.ErrInvalidArgument, "allowed directory")
	if _, err := sim.ReadFile(otherPath + file); err != nil {
		t.Error(err)
	}
	if found := aside(t, sim); len(found) != 0 {
		t.Errorf("moved aside are %v", found)
	}
}

// MoveAside and StageVolume of the same path meet at each call to Windows of one of them, in
// two processes: the file is moved, not lost, and a volume isn't moved.
func TestMoveAsideMeetsStageVolume(t *testing.T) {
	r := storage.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	acts := []func(t *testing.T, n *nodeops.Node) error{
		func(t *testing.T, n *nodeops.Node) error {
			_, err := n.Storage.StageVolume(operation.Inline(t.Context()), r)
			return err
		},
		func(t *testing.T, n *nodeops.Node) error {
			_, err := n.Storage.MoveAside(operation.Inline(t.Context()), stagingPath)
			return err
		},
	}
	for first := range acts {
		for at, met := 0, true; met; at++ {
			synctest.Test(t, func(t *testing.T) {
				sim, n := newNode(t)
				other, err := nodeops.New(sim, nodeops.Options{})
				simtest.Must(t, err)
				simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
				simtest.Must(t, sim.MkdirAll(stagingPath))
				simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
				var errs [2]error
				calls := 0
				met = false
				sim.OnCall(func(winsim.Call) {
					if calls++; calls == at+1 {
						sim.OnCall(nil)
						met = true
						errs[1-first] = acts[1-first](t, other)
					}
				})
				errs[first] = acts[first](t, n)
				sim.OnCall(nil)
				if !met {
					return
				}
				for _, err := range errs {
					if kind := csiproxy.KindOf(err); err != nil && kind != csiproxy.ErrFailedPrecondition && kind != csiproxy.ErrUnavailable {
						t.Errorf("act %d, at call %d: %v", first, at, err)
					}
				}
				if errs[1] != nil { // StageVolume was refused then, too, since the file was there
					simtest.Must(t, acts[1](t, n))
				}
				simtest.Must(t, acts[0](t, n))
				if found := aside(t, sim); len(found) != 1 {
					t.Fatalf("act %d, at call %d: %v; moved aside are %v", first, at, errs, found)
				} else if data, err := sim.ReadFile(found[0] + file); string(data) != "precious" || err != nil {
					t.Errorf("act %d, at call %d: the file is %q, %v", first, at, data, err)
				}
			})
		}
	}
}
