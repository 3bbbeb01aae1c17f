// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// storageOf is a node's storage whose StageVolume, UnstageVolume and ExpandVolume a test may replace.
type storageOf struct {
	csinode.Storage
	stageVolume              func(csiproxy.StageVolumeRequest) error
	unstageVolume            func() error
	expandVolume             func() error
	stageCalls, unstageCalls int
}

func (s *storageOf) StageVolume(ctx context.Context, r csiproxy.StageVolumeRequest) (csiproxy.StagedVolume, error) {
	s.stageCalls++
	if s.stageVolume != nil {
		if err := s.stageVolume(r); err != nil {
			return csiproxy.StagedVolume{}, err
		}
	}
	return s.Storage.StageVolume(ctx, r)
}

func (s *storageOf) UnstageVolume(ctx context.Context, r csiproxy.UnstageVolumeRequest) (csiproxy.UnstagedVolume, error) {
	s.unstageCalls++
	if s.unstageVolume != nil {
		if err := s.unstageVolume(); err != nil {
			return csiproxy.UnstagedVolume{}, err
		}
	}
	return s.Storage.UnstageVolume(ctx, r)
}

func (s *storageOf) ExpandVolume(ctx context.Context, r csiproxy.ExpandVolumeRequest) (csiproxy.ExpandedVolume, error) {
	if s.expandVolume != nil {
		if err := s.expandVolume(); err != nil {
			return csiproxy.ExpandedVolume{}, err
		}
	}
	return s.Storage.ExpandVolume(ctx, r)
}

// newServerOn returns a service on a simulated node with the disks vol-1 and vol-2, the storage that it
// calls, and the directory of its records.
func newServerOn(t *testing.T) (*csinode.Server, *simnode.Node, *storageOf, string) {
	t.Helper()
	calls, dir := &storageOf{}, ""
	s, n := newServer(t, func(o *csinode.Options) {
		calls.Storage, dir = o.Storage, o.StateDir
		o.Storage = calls
	})
	n.AttachDisk(simnode.Disk{Serial: "vol-2", SizeBytes: 1 << 30})
	return s, n, calls, dir
}

func stageAs(t *testing.T, s *csinode.Server, volumeID string) error {
	_, err := s.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: volumeID, StagingTargetPath: staging, VolumeCapability: capability(""),
	})
	return err
}

func records(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	must(t, err)
	return len(files)
}

func refused(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// Kubelet unstages only if an error leaves in doubt whether the volume is staged. So these errors, and no
// others, leave the staging and its record to NodeUnstageVolume.
func TestFailedStagingIsUndone(t *testing.T) {
	for _, test := range []struct {
		err     error
		inDoubt bool
	}{
		{context.Canceled, true},
		{context.DeadlineExceeded, true},
		{csiproxy.ErrUnavailable, true},
		{csiproxy.ErrResourceExhausted, true},
		{status.Error(codes.Aborted, "another call is under way"), true},
		{csiproxy.ErrNotFound, false},
		{csiproxy.ErrFailedPrecondition, false},
		{csiproxy.ErrInvalidArgument, false},
		{csiproxy.ErrPermissionDenied, false},
		{csiproxy.ErrUnauthenticated, false},
		{csiproxy.ErrUnimplemented, false},
		{csiproxy.ErrInternal, false},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			s, _, calls, dir := newServerOn(t)
			calls.stageVolume = func(csiproxy.StageVolumeRequest) error { return test.err }
			if err := stage(t, s, ""); err == nil {
				t.Fatal("the staging succeeded")
			}
			if undone := calls.unstageCalls == 1; undone == test.inDoubt {
				t.Errorf("the staging was undone: %t", undone)
			}
			if left := records(t, dir) == 1; left != test.inDoubt {
				t.Errorf("the record is left: %t", left)
			}
			calls.stageVolume = nil
			must(t, stage(t, s, ""))
			must(t, unstage(t, s))
		})
	}
}

// What pods use is left to them, whatever a repeated staging says.
func TestFailedStagingOfAPublishedVolume(t *testing.T) {
	s, n, calls, dir := newServerOn(t)
	must(t, stage(t, s, ""))
	must(t, publish(t, s, "pod", capability("")))
	calls.stageVolume = func(csiproxy.StageVolumeRequest) error { return csiproxy.ErrNotFound }
	refused(t, "stage a disk that isn't found", stage(t, s, ""), codes.NotFound)
	if calls.unstageCalls != 0 || records(t, dir) != 1 {
		t.Errorf("%d calls of UnstageVolume, %d records", calls.unstageCalls, records(t, dir))
	}
	must(t, n.WriteFile(target("pod")+`\file`, nil))
}

// A volume is staged only when its record is kept: without it, a crash leaves a disk that nobody
// knows.
func TestStagingWithoutARecord(t *testing.T) {
	s, n, calls, dir := newServerOn(t)
	must(t, os.RemoveAll(dir))
	must(t, os.Symlink("nowhere", dir)) // nothing is there, and nothing can be made
	if err := stage(t, s, ""); err == nil {
		t.Error("staged without a record")
	}
	if calls.stageCalls != 0 || len(n.Volumes()) != 1 {
		t.Errorf("%d calls of StageVolume, volumes %+v", calls.stageCalls, n.Volumes())
	}
}

// The record stays until the volume is unstaged.
func TestRecordStaysUntilUnstaged(t *testing.T) {
	s, _, calls, dir := newServerOn(t)
	must(t, stage(t, s, ""))
	calls.unstageVolume = func() error { return csiproxy.ErrUnavailable }
	refused(t, "unstage", unstage(t, s), codes.Unavailable)
	if records(t, dir) != 1 {
		t.Error("the record is gone, and the volume is staged")
	}
	calls.unstageVolume = nil
	must(t, unstage(t, s))
	if records(t, dir) != 0 {
		t.Error("the record is left")
	}
}

// A mistake with one volume's path isn't another's end.
func TestTwoVolumesAtOnePath(t *testing.T) {
	s, n, _, dir := newServerOn(t)
	must(t, stage(t, s, ""))
	must(t, publish(t, s, "pod", capability("")))
	must(t, n.WriteFile(target("pod")+`\file`, []byte("of one")))
	isThere := func() {
		t.Helper()
		if data, err := n.ReadFile(target("pod") + `\file`); err != nil || string(data) != "of one" {
			t.Errorf("the pod reads %q, %v", data, err)
		}
	}
	refused(t, "stage another volume there", stageAs(t, s, "vol-2"), codes.FailedPrecondition)
	_, err := s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "vol-2", StagingTargetPath: staging})
	must(t, err)
	isThere()

	// Also if the records are lost, as long as the other volume is mounted.
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o700))
	refused(t, "stage another volume there", stageAs(t, s, "vol-2"), codes.FailedPrecondition)
	isThere()
	must(t, unpublish(t, s, "pod"))
	must(t, stage(t, s, ""))
	must(t, publish(t, s, "pod", capability("")))
	isThere()
}

// The other volume's record is void if nothing is mounted there, unless a call is about to change that.
func TestAnotherVolumeAtThePathUnderWay(t *testing.T) {
	s, _, calls, _ := newServerOn(t)
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	calls.stageVolume = func(r csiproxy.StageVolumeRequest) error {
		if r.Disk.SerialNumber == "vol-2" {
			close(begun)
			<-end
		}
		return nil
	}
	go func() { ended <- stageAs(t, s, "vol-2") }()
	<-begun
	refused(t, "stage where another volume is about to be", stageAs(t, s, "vol-1"), codes.Aborted)
	close(end)
	must(t, <-ended)
	refused(t, "stage where another volume is", stageAs(t, s, "vol-1"), codes.FailedPrecondition)
}

// A disk restored from a snapshot of a smaller one has a volume that doesn't fill it, and kubelet asks only for the staging.
func TestStagingGrowsVolume(t *testing.T) {
	s, n, calls, _ := newServerOn(t)
	must(t, stage(t, s, ""))
	must(t, unstage(t, s))
	disks, err := n.Client().Disk.ListDiskIDs(t.Context())
	must(t, err)
	for disk, ids := range disks {
		if ids.SerialNumber == "vol-1" {
			n.GrowDisk(disk, 3<<30)
		}
	}
	size := func() int64 {
		must(t, stage(t, s, ""))
		v, err := calls.GetVolume(t.Context(), staging)
		must(t, err)
		return v.SizeBytes
	}
	calls.expandVolume = func() error { return csiproxy.ErrResourceExhausted }
	if small := size(); small > 1<<30 {
		t.Errorf("a volume that can't grow has %d bytes", small)
	}
	calls.expandVolume = nil
	if large := size(); large < 5<<29 {
		t.Errorf("the volume has %d bytes", large)
	}
}
