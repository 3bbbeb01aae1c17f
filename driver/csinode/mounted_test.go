// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// accident is a node on which records and mounts don't agree any more.
type accident struct {
	*simnode.Node
	t        *testing.T
	options  csinode.Options
	server   *csinode.Server
	readOnly bool // how the volume is asked for
}

// eachAccident runs a test with the driver running on after the accident, and started again.
func eachAccident(t *testing.T, test func(a *accident, restart func())) {
	for name, restarts := range map[string]bool{"the driver runs on": false, "the driver restarts": true} {
		t.Run(name, func(t *testing.T) {
			a := &accident{t: t}
			a.server, a.Node = newServer(t, func(o *csinode.Options) {
				o.Source = func(_ context.Context, r *csi.NodeStageVolumeRequest) (csinode.Source, error) {
					return csinode.Source{Disk: csiproxy.Selector{SerialNumber: r.VolumeId}, ReadOnly: a.readOnly}, nil
				}
				a.options = *o
			})
			test(a, func() {
				if restarts {
					must(t, a.server.Close())
					var err error
					a.server, err = csinode.New(a.options)
					must(t, err)
				}
			})
		})
	}
}

// ends fails the test unless the volume comes free.
func (a *accident) ends(pods ...string) {
	a.t.Helper()
	for _, pod := range pods {
		must(a.t, unpublish(a.t, a.server, pod))
	}
	must(a.t, unstage(a.t, a.server))
	if d := a.Disks()[1]; !d.Offline {
		a.t.Errorf("the disk is online: %+v", d)
	}
	if files := a.recordFiles(); len(files) != 0 {
		a.t.Errorf("records %v are left", files)
	}
}

func (a *accident) recordFiles() []string {
	files, err := filepath.Glob(filepath.Join(a.options.StateDir, "*.json"))
	must(a.t, err)
	return files
}

func multiWriter() *csi.VolumeCapability {
	c := capability("")
	c.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	return c
}

// Kubelet forgets an unstage, the volume is detached, and comes again to be read only, as it was
// before or with another number.
func TestForgottenUnstage(t *testing.T) {
	eachAccident(t, func(a *accident, restart func()) {
		must(a.t, stage(a.t, a.server, ""))
		must(a.t, publish(a.t, a.server, "pod-a", capability("")))
		must(a.t, a.WriteFile(target("pod-a")+`\file`, []byte("kept")))
		must(a.t, unpublish(a.t, a.server, "pod-a"))
		a.DetachDisk(a.Disks()[1].Number)
		restart()
		a.readOnly = true
		a.AttachDisk(simnode.Disk{Serial: "vol-1", SizeBytes: 1 << 30, Offline: true}) // else its volume comes at any moment
		must(a.t, stage(a.t, a.server, ""))
		must(a.t, publish(a.t, a.server, "pod-b", capability("")))
		if data, err := a.ReadFile(target("pod-b") + `\file`); err != nil || string(data) != "kept" {
			a.t.Errorf("the pod reads %q, %v", data, err)
		}
		if err := a.WriteFile(target("pod-b")+`\file`, []byte("changed")); err == nil {
			a.t.Error("what is staged read-only can be written to")
		}
		a.ends("pod-b")
	})
}

// A staging that failed half-way, whose record says that the volume is writable, and whose disk has
// left since, is no reason to refuse anything.
func TestRecordWithoutItsMount(t *testing.T) {
	eachAccident(t, func(a *accident, restart func()) {
		must(a.t, stage(a.t, a.server, ""))
		must(a.t, a.Remove(`C:`+staging))
		restart()
		if err := publish(a.t, a.server, "pod-a", capability("")); status.Code(err) != codes.FailedPrecondition {
			a.t.Errorf("published what isn't mounted: %v", err)
		}
		a.readOnly = true
		must(a.t, stage(a.t, a.server, ""))
		must(a.t, publish(a.t, a.server, "pod-a", capability("")))
		a.ends("pod-a")
	})
}

// Records that are lost or damaged while a pod has the volume keep nobody from it: neither the next
// pod, nor its usage and its growth, nor the way back.
func TestLostRecords(t *testing.T) {
	for name, lose := range map[string]func(a *accident, file string) error{
		"deleted":          func(_ *accident, file string) error { return os.Remove(file) },
		"with directory":   func(a *accident, _ string) error { return os.RemoveAll(a.options.StateDir) },
		"empty":            func(_ *accident, file string) error { return os.WriteFile(file, nil, 0o600) },
		"half":             func(_ *accident, file string) error { return os.WriteFile(file, []byte(`{"volumeID":"vol`), 0o600) },
		"null":             func(_ *accident, file string) error { return os.WriteFile(file, []byte("null"), 0o600) },
		"another volume's": func(_ *accident, file string) error { return rewrite(file, "vol-1", "vol-2") },
		"of another disk": func(_ *accident, file string) error {
			return rewrite(file, `"SerialNumber": "vol-1"`, `"SerialNumber": "x"`)
		},
		"of another path":   func(_ *accident, file string) error { return rewrite(file, "globalmount", "elsewhere") },
		"without the links": func(_ *accident, file string) error { return rewrite(file, `pods`, `lost`) },
	} {
		t.Run(name, func(t *testing.T) {
			eachAccident(t, func(a *accident, restart func()) {
				must(a.t, stage(a.t, a.server, ""))
				must(a.t, publish(a.t, a.server, "pod-a", multiWriter()))
				must(a.t, lose(a, a.recordFiles()[0]))
				restart()
				must(a.t, publish(a.t, a.server, "pod-b", multiWriter()))
				must(a.t, publish(a.t, a.server, "pod-a", multiWriter())) // a repetition
				must(a.t, a.WriteFile(target("pod-b")+`\file`, []byte("of both")))
				if data, err := a.ReadFile(target("pod-a") + `\file`); err != nil || string(data) != "of both" {
					a.t.Errorf("the first pod reads %q, %v", data, err)
				}
				must(a.t, stage(a.t, a.server, ""))
				a.ends("pod-a", "pod-b")
			})
		})
		t.Run(name+", and kubelet only ends the pod", func(t *testing.T) {
			eachAccident(t, func(a *accident, restart func()) {
				must(a.t, stage(a.t, a.server, ""))
				must(a.t, publish(a.t, a.server, "pod-a", multiWriter()))
				must(a.t, lose(a, a.recordFiles()[0]))
				restart()
				a.ends("pod-a")
			})
		})
	}
}

// A record that says that another volume is staged at the path keeps nothing there, unless that volume is.
func TestRecordOfAnotherVolume(t *testing.T) {
	eachAccident(t, func(a *accident, restart func()) {
		must(a.t, stage(a.t, a.server, ""))
		file := a.recordFiles()[0]
		must(a.t, rewrite(file, "vol-1", "vol-2"))
		sum := sha256.Sum256([]byte("vol-2"))
		must(a.t, os.Rename(file, filepath.Join(a.options.StateDir, hex.EncodeToString(sum[:16])+".json")))
		restart()
		for _, there := range []bool{false, true} {
			if there {
				a.AttachDisk(simnode.Disk{Serial: "vol-2", SizeBytes: 1 << 30})
				_, err := a.Client().Storage.StageVolume(a.t.Context(), csiproxy.StageVolumeRequest{
					Disk: csiproxy.Selector{SerialNumber: "vol-2"}, StagingPath: staging, Wait: time.Millisecond})
				must(a.t, err)
			}
			must(a.t, unstage(a.t, a.server))
			disks := a.Disks()
			if !disks[1].Offline || there && disks[2].Offline {
				a.t.Errorf("the other volume is there: %t, and the disks are %+v", there, disks)
			}
		}
	})
}

// rewrite replaces text in a file.
func rewrite(file, text, by string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(data), text, by)), 0o600)
}

// Without its record, a volume isn't taken for what somebody else has mounted at its staging path.
func TestAnotherVolumeIsMounted(t *testing.T) {
	s, n := newServer(t, nil)
	n.AttachDisk(simnode.Disk{Serial: "other", SizeBytes: 1 << 30})
	_, err := n.Client().Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: "other"}, StagingPath: staging, Wait: time.Millisecond})
	must(t, err)
	if err := publish(t, s, "pod", capability("")); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another volume was published: %v", err)
	}
	if _, err := n.ReadDir(target("pod")); err == nil {
		t.Error("the pod has a link")
	}
}

// A volume for one pod isn't refused to it for a link that isn't there any more, as after the loss of
// kubelet's directory; and it is refused for a link that is there, also if the record is lost.
func TestOneWriter(t *testing.T) {
	eachAccident(t, func(a *accident, restart func()) {
		must(a.t, stage(a.t, a.server, ""))
		must(a.t, publish(a.t, a.server, "pod-a", capability("")))
		must(a.t, a.Remove(target("pod-a")))
		restart()
		must(a.t, publish(a.t, a.server, "pod-b", capability("")))
		refused := func() {
			a.t.Helper()
			if err := publish(a.t, a.server, "pod-c", capability("")); status.Code(err) != codes.FailedPrecondition {
				a.t.Errorf("published for a second pod: %v", err)
			}
		}
		refused()
		for _, file := range a.recordFiles() {
			must(a.t, os.Remove(file))
		}
		refused()
		must(a.t, publish(a.t, a.server, "pod-b", capability("")))
		a.ends("pod-b")
	})
}

// Kubelet asks for the usage and the growth of a volume without saying where its data are. Its own
// paths tell what is mounted where. The path is the one that testdata/kubelet.jsonl has.
func TestUsageWithoutARecord(t *testing.T) {
	sum := sha256.Sum256([]byte("vol-1"))
	hashed := `\var\lib\kubelet\plugins\kubernetes.io\csi\disk.example.com\` + hex.EncodeToString(sum[:]) + `\globalmount`
	s, n := newServer(t, nil)
	_, err := s.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: hashed, VolumeCapability: capability("")})
	must(t, err)
	must(t, n.Client().Storage.PublishVolume(t.Context(), hashed, target("pod"))) // there is no record of that
	usage := func(id, path string) error {
		_, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
		return err
	}
	must(t, usage("vol-1", target("pod")))
	_, err = s.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "vol-1", VolumePath: target("pod")})
	must(t, err)
	for id, path := range map[string]string{
		"vol-2": target("pod"), "vol-1": target("other"), "vol-1 ": `C:\var\lib\kubelet\pods`, "": target("pod"),
	} {
		if err := usage(id, path); err == nil {
			t.Errorf("volume %q is at %s", id, path)
		}
	}
}

// What is refused for its capability leaves no disk online, and what a pod has stays.
func TestRefusedCapability(t *testing.T) {
	block := capability("")
	block.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	options := capability("")
	options.GetMount().MountFlags = []string{"noatime"}
	for name, c := range map[string]*csi.VolumeCapability{"block": block, "mount options": options, "ext4": capability("ext4")} {
		t.Run(name, func(t *testing.T) {
			s, n := newServer(t, nil)
			refused := func() {
				t.Helper()
				_, err := s.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
					VolumeId: "vol-1", StagingTargetPath: staging, VolumeCapability: c})
				if status.Code(err) != codes.FailedPrecondition {
					t.Errorf("%v, want FailedPrecondition", err)
				}
			}
			if n.Disks()[1].Offline {
				t.Fatal("the disk has not come online by itself, so this shows nothing")
			}
			refused()
			if d := n.Disks()[1]; !d.Offline {
				t.Errorf("the disk is online: %+v", d)
			}
			must(t, stage(t, s, ""))
			refused()
			must(t, publish(t, s, "pod", capability("")))
			must(t, n.WriteFile(target("pod")+`\file`, nil))
		})
	}
}

func TestInlineVolume(t *testing.T) {
	s, _ := newServer(t, nil)
	_, err := s.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: "csi-0123", TargetPath: target("pod"), VolumeCapability: capability(""),
		VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true"},
	})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "inline volume") {
		t.Errorf("%v", err)
	}
}
