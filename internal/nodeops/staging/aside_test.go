// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging_test

import (
	"fmt"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
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
	if len(moved.Entries) != storage.MostMovedEntries || !moved.MoreEntries || first.Name != "a-link" ||
		first.Created.IsZero() {
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
	sim, n, _ := newStaged(t)
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
		simtest.Kubelet + `\plugins`:       {csiproxy.ErrFailedPrecondition, "mounted below it"},
		simtest.Kubelet:                    {csiproxy.ErrInvalidArgument, "allowed directory"},
		`C:\Windows`:                       {csiproxy.ErrInvalidArgument, "not inside"},
		simtest.Kubelet + `\..\..\Windows`: {csiproxy.ErrInvalidArgument, ""},
	} {
		_, err := n.Storage.MoveAside(t.Context(), path)
		simtest.WantErrorOf(t, path, err, want.kind, want.word)
	}
	h, err := sim.Hold(otherPath+file,
		win.OpenOptions{Access: win.FileListDirectory, Share: win.ShareRead, Disposition: win.FileOpen})
	simtest.Must(t, err)
	_, err = n.Storage.MoveAside(t.Context(), otherPath)
	simtest.WantErrorOf(t, "while a file is open", err, csiproxy.ErrFailedPrecondition, "has a file in it open")
	simtest.Must(t, h.Close())
	unstage(t, n, storage.UnstageVolumeRequest{StagingPath: stagingPath, Force: true})
	_, err = n.Storage.MoveAside(t.Context(), simtest.Kubelet)
	simtest.WantErrorOf(t, "the kubelet directory", err, csiproxy.ErrInvalidArgument, "allowed directory")
	if _, err := sim.ReadFile(otherPath + file); err != nil {
		t.Error(err)
	}
	simtest.Want(t, "entries moved aside", len(aside(t, sim)), 0)
}

// A directory stays if something below it is used: a volume that is mounted there, however deep,
// or a volume or share by a link that a search for links finds. Once that is gone, it is moved.
func TestMoveAsideAboveUse(t *testing.T) {
	const dir = simtest.Kubelet + `\plugins\above`
	deep := dir + strings.Repeat(`\deep`, 8)
	emptyDir := dir + `\kubernetes.io~empty-dir\cache`
	link := func(to string) func(*testing.T, *winsim.System, *nodeops.Node, string) {
		return func(t *testing.T, sim *winsim.System, _ *nodeops.Node, path string) {
			simtest.Must(t, sim.Symlink(path, to, true))
		}
	}
	published := func(t *testing.T, _ *winsim.System, n *nodeops.Node, path string) {
		simtest.Must(t, n.Storage.PublishVolume(t.Context(), stagingPath, path))
	}
	for name, c := range map[string]struct {
		path string
		make func(t *testing.T, sim *winsim.System, n *nodeops.Node, path string)
		free bool
	}{
		"a published volume":                {dir + `\pod\mount`, published, false},
		"a published volume, deep":          {deep + `\mount`, published, false},
		"a published volume in an emptyDir": {emptyDir + `\mount`, published, false},
		"a driver's link": {dir + `\mount`, func(t *testing.T, _ *winsim.System, n *nodeops.Node, path string) {
			simtest.Must(t, n.Filesystem.CreateSymlink(t.Context(), stagingPath+`\sub`, path))
		}, false},
		"a staged volume": {dir + `\globalmount`, func(t *testing.T, sim *winsim.System, n *nodeops.Node, path string) {
			simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
			stage(t, n, storage.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: path})
		}, false},
		"a staged volume, deep": {deep + `\globalmount`, func(t *testing.T, sim *winsim.System, n *nodeops.Node, path string) {
			simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
			stage(t, n, storage.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: path})
		}, false},
		"a staged share": {dir + `\globalmount`, func(t *testing.T, _ *winsim.System, n *nodeops.Node, path string) {
			simtest.Must(t, n.Storage.StageShare(t.Context(), shareRequest(`\\filer\data`, path)))
		}, false},
		"a link to a volume":         {dir + `\link`, link(stagingPath), false},
		"a link into a volume":       {dir + `\link`, link(stagingPath + `\none`), false},
		"a link by way of another":   {dir + `\link`, link(targetPath), false},
		"a link to a share by a way": {dir + `\link`, link(otherPath), false},
		"a link that nobody follows": {dir + `\link`, link(simtest.Kubelet + `\outside\dir`), false},
		"a junction": {dir + `\link`, func(t *testing.T, sim *winsim.System, _ *nodeops.Node, path string) {
			simtest.Must(t, sim.Junction(path, stagingPath))
		}, false},

		"a link that a pod has planted deep":           {deep + `\link`, link(stagingPath), true},
		"a link that a pod has planted in an emptyDir": {emptyDir + `\link`, link(stagingPath), true},
		"a link to nothing":                            {dir + `\link`, link(dir + `-none`), true},
		"a link to a directory":                        {dir + `\link`, link(simtest.Kubelet + `\pods`), true},
		"a link within it":                             {dir + `\link`, link(dir + `\sub`), true},
		"a link to itself":                             {dir + `\link`, link(dir), true},
		"a link outside":                               {dir + `\link`, link(`C:\Windows`), true},
	} {
		t.Run(name, func(t *testing.T) {
			sim, n := newShares(t)
			simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
			stage(t, n, storage.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
			published(t, sim, n, targetPath)
			simtest.Must(t, n.Storage.StageShare(t.Context(), shareRequest(`\\filer\other`, otherPath)))
			simtest.Must(t, sim.Symlink(simtest.Kubelet+`\outside`, `C:\Windows`, true))
			simtest.Must(t, sim.Symlink(simtest.Kubelet+`\way`, simtest.Kubelet+`\plugins`, true))
			simtest.Must(t, sim.MkdirAll(c.path[:strings.LastIndex(c.path, `\`)]))
			c.make(t, sim, n, c.path)
			if !c.free {
				for _, path := range []string{dir, simtest.Kubelet + `\way\above`} {
					_, err := n.Storage.MoveAside(t.Context(), path)
					simtest.WantErrorOf(t, path, err, csiproxy.ErrFailedPrecondition, c.path, "name the staging directory itself")
				}
				if _, err := sim.ReadLink(c.path); err != nil {
					t.Error(err)
				}
				if _, err := n.Storage.UnstageVolume(t.Context(), storage.UnstageVolumeRequest{StagingPath: c.path}); err != nil {
					simtest.Must(t, n.Filesystem.Rmdir(t.Context(), c.path, false))
				} else if _, err := sim.ReadLink(c.path); err == nil {
					simtest.Must(t, n.Filesystem.Rmdir(t.Context(), c.path, false))
				}
				simtest.Must(t, sim.WriteFile(dir+file, nil))
			}
			if moved, err := n.Storage.MoveAside(t.Context(), dir); err != nil || moved.MovedTo == "" {
				t.Errorf("%+v, %v", moved, err)
			}
		})
	}
}

// A volume elsewhere whose disk leaves meanwhile has nothing to do with it.
func TestMoveAsideWhileADiskLeaves(t *testing.T) {
	const below = simtest.Kubelet + `\plugins\below`
	sim, n, number := newStaged(t)
	simtest.Must(t, sim.MkdirAll(below+`\dir`))
	volume, err := n.Storage.GetVolume(t.Context(), stagingPath)
	simtest.Must(t, err)
	left := false
	sim.OnCall(func(c winsim.Call) {
		if c.Name == "GetVolumePathNamesForVolumeNameW" && c.Object == string(volume.VolumeID) && !left {
			left = true
			simtest.Must(t, sim.DetachDisk(number))
		}
	})
	moved, err := n.Storage.MoveAside(t.Context(), below)
	if err != nil || moved.MovedTo == "" || !left {
		t.Errorf("%+v, %v; the disk has left: %t", moved, err, left)
	}
}

// A directory stays while it can't be found out whether something below it is used.
func TestMoveAsideAboveUnknown(t *testing.T) {
	const below, linked = simtest.Kubelet + `\plugins\below`, simtest.Kubelet + `\plugins\linked`
	sim, n, _ := newStaged(t)
	simtest.Must(t, sim.MkdirAll(below+`\sub`))
	simtest.Must(t, sim.MkdirAll(linked))
	simtest.Must(t, sim.Symlink(linked+`\link`, stagingPath+`\none`, true))
	for path, fails := range map[string]winsim.Match{
		below:  {Call: "NtCreateFile", Object: "sub"},
		linked: {Call: "CreateFileW", Object: `\\?\Volume`},
	} {
		simtest.Must(t, sim.Fail(fails, win.ErrorIODevice))
		_, err := n.Storage.MoveAside(t.Context(), path)
		simtest.WantErrorOf(t, path, err, csiproxy.ErrUnavailable, "can't be found out")
		sim.ResetRules()
	}
}
