// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storagelife

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
)

// testNode is what plays the cloud and the pods.
type testNode struct {
	operations rpc.Operations
	kubelet    string
	attach     func(t *testing.T) testDisk // of 1 GiB, raw
	write      func(path, text string) error
	read       func(path string) (string, error)
	hold       func(t *testing.T, path string) (release func()) // a process has the file open
	letter     func(t *testing.T, id csiproxy.VolumeID)         // gives the volume a drive letter
	// step runs a step of a test, as a subtest where that is possible.
	step func(t *testing.T, name string, f func(t *testing.T)) (ok bool)
	skip []string // steps that aren't run
	// listen and dial are where the daemon serves.
	listen func(name string) (net.Listener, error)
	dial   client.Dialer
}

// testDisk is a disk of a test, which nobody uses when it is cloned or detached.
type testDisk interface {
	number() csiproxy.DiskNumber // now
	grow(t *testing.T, size uint64)
	detach(t *testing.T)
	// copy returns a disk with the contents that it has now, whose clone attaches that.
	copy(t *testing.T) (clone func(t *testing.T) testDisk)
}

const gib = 1 << 30

// patience bounds what takes a moment.
const patience = time.Minute

// serve serves the node and returns a client.
func serve(t *testing.T, n testNode) *client.Client {
	t.Helper()
	s, err := daemon.New(daemon.Config{Operations: n.operations, Listen: n.listen, GracePeriod: patience})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	c := client.New(client.WithDialer(n.dial))
	t.Cleanup(func() {
		err := c.Close()
		stop()
		if err := errors.Join(err, <-served); err != nil {
			t.Error(err)
		}
	})
	return c
}

// live leads volumes through their lives. Each step needs those before it.
func live(t *testing.T, n testNode) {
	api := serve(t, n).Storage
	ctx := t.Context()
	csi := n.kubelet + `\plugins\kubernetes.io\csi\life.example.com\`
	staging, second, target := csi+`1\globalmount`, csi+`2\globalmount`, n.kubelet+`\pods\life`
	d := n.attach(t)
	var staged csiproxy.StagedVolume
	number := func(d testDisk) csiproxy.Selector { n := d.number(); return csiproxy.Selector{Number: &n} }
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stage := func(t *testing.T, r csiproxy.StageVolumeRequest) csiproxy.StagedVolume {
		t.Helper()
		v, err := api.StageVolume(ctx, r)
		must(t, err)
		return v
	}
	unstage := func(t *testing.T, path string) {
		t.Helper()
		done, err := api.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: path})
		if err != nil || !done.Unmounted || !done.DiskOffline {
			t.Fatalf("unstage: %+v, %v", done, err)
		}
	}
	wantText := func(t *testing.T, path string) {
		t.Helper()
		if text, err := n.read(path + `\file`); err != nil || text != "text" {
			t.Errorf("%s has %q, %v", path, text, err)
		}
	}
	failed := false
	step := func(name string, f func(t *testing.T)) {
		if failed || slices.Contains(n.skip, name) {
			return
		}
		failed = !n.step(t, name, f)
	}

	step("stage", func(t *testing.T) {
		staged = stage(t, csiproxy.StageVolumeRequest{Disk: number(d), StagingPath: staging})
		if !staged.Partitioned || !staged.Formatted || staged.FileSystem != "NTFS" {
			t.Errorf("staged: %+v", staged)
		}
		must(t, n.write(staging+`\file`, "text"))
		again := stage(t, csiproxy.StageVolumeRequest{Disk: number(d), StagingPath: staging})
		if again.Partitioned || again.Formatted || again.VolumeID != staged.VolumeID {
			t.Errorf("staged again: %+v", again)
		}
		wantText(t, staging)
	})
	step("publish", func(t *testing.T) {
		for range 2 {
			must(t, api.PublishVolume(ctx, staging, target))
		}
		wantText(t, target)
		v, err := api.GetVolume(ctx, target)
		if err != nil || v.VolumeID != staged.VolumeID || len(v.Conditions) > 0 {
			t.Errorf("the published volume: %+v, %v", v, err)
		}
	})
	step("expand", func(t *testing.T) {
		d.grow(t, 2*gib)
		grown, err := api.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: staging, DiskSizeBytes: 2 * gib})
		if err != nil || !grown.Grown || grown.SizeBytes < 2*gib-64<<20 {
			t.Errorf("expanded: %+v, %v", grown, err)
		}
		wantText(t, target)
	})
	step("unstage in use", func(t *testing.T) {
		for range 2 {
			must(t, api.UnpublishVolume(ctx, target))
		}
		release := n.hold(t, staging+`\file`)
		_, err := api.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
		if !errors.Is(err, csiproxy.ErrFailedPrecondition) {
			t.Errorf("unstage while a process has a file open: %v", err)
		}
		t.Logf("unstage while a process has a file open: %v", err)
		release()
		wantText(t, staging)
	})
	step("unstage", func(t *testing.T) {
		unstage(t, staging)
		if _, err := n.read(staging + `\file`); err == nil {
			t.Error("the volume's file is still there")
		}
		_, err := api.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: number(d)})
		must(t, err)
	})
	step("letter", func(t *testing.T) {
		r := csiproxy.StageVolumeRequest{Disk: number(d), StagingPath: staging}
		stage(t, r)
		n.letter(t, staged.VolumeID) // Windows remembers it
		unstage(t, staging)
		stage(t, r)
		disks, err := api.ListDisks(ctx, number(d))
		must(t, err)
		for _, p := range disks[0].Partitions {
			if p.VolumeID == staged.VolumeID && len(p.Paths) != 1 {
				t.Errorf("the staged volume is at %q", p.Paths)
			}
		}
		unstage(t, staging)
	})
	step("read-only", func(t *testing.T) {
		stage(t, csiproxy.StageVolumeRequest{Disk: number(d), StagingPath: staging, ReadOnly: true})
		wantText(t, staging)
		if err := n.write(staging+`\new`, "text"); err == nil {
			t.Error("a file can be written to the volume that is staged read-only")
		}
		unstage(t, staging)
	})
	var copied testDisk
	step("clone", func(t *testing.T) {
		clone := d.copy(t)
		staged = stage(t, csiproxy.StageVolumeRequest{Disk: number(d), StagingPath: staging})
		wantText(t, staging)
		must(t, n.write(staging+`\new`, "text")) // it isn't read-only any more
		copied = clone(t)
		disks, err := api.ListDisks(ctx, number(copied))
		if err != nil || len(disks) != 1 {
			t.Fatalf("the clone: %+v, %v", disks, err)
		}
		t.Logf("the clone is online: %v; why it isn't: %q", disks[0].Online, disks[0].OfflineReason)
		_, err = api.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: number(copied), StagingPath: second, ReadOnly: true})
		if !errors.Is(err, csiproxy.ErrFailedPrecondition) {
			t.Errorf("staging the clone read-only: %v", err)
		}
	})
	step("new ids", func(t *testing.T) {
		v := stage(t, csiproxy.StageVolumeRequest{Disk: number(copied), StagingPath: second})
		if v.Formatted || v.VolumeID == staged.VolumeID {
			t.Errorf("the clone: %+v; its original is %s", v, staged.VolumeID)
		}
		wantText(t, staging)
		wantText(t, second)
		unstage(t, second)
	})
	step("clean up", func(t *testing.T) {
		copied.detach(t) // of a disk that is offline nobody knows which volumes it has
		d.detach(t)
		gone := func() bool {
			left, err := api.CleanUp(ctx, false)
			must(t, err)
			return slices.ContainsFunc(left.Mounts, func(l csiproxy.Leftover) bool { return strings.EqualFold(l.Path, staging) })
		}
		for deadline := time.Now().Add(patience); !gone(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				list, err := api.ListVolumes(ctx)
				t.Fatalf("what is left of a disk that was pulled out isn't found: %+v, %v", list, err)
			}
		}
		left, err := api.CleanUp(ctx, true)
		if err != nil || len(left.Mounts) != 1 || !left.Mounts[0].Removed {
			t.Errorf("the leftovers: %+v, %v", left, err)
		}
		if gone() {
			t.Error("the leftover is still there")
		}
	})
	step("watch", func(t *testing.T) {
		watching, stop := context.WithTimeout(ctx, patience)
		defer stop()
		var added testDisk
		for changes, err := range api.WatchDisks(watching, csiproxy.Selector{}) {
			must(t, err)
			has := func(disks []csiproxy.Disk) bool {
				return slices.ContainsFunc(disks, func(one csiproxy.Disk) bool { return one.Number == added.number() })
			}
			switch {
			case added == nil:
				added = n.attach(t)
			case has(changes.Added):
				added.detach(t)
			case has(changes.Removed):
				return
			}
		}
	})
}
