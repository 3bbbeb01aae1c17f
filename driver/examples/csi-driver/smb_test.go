// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const (
	server = "files.example"
	user   = "driver"
)

// shares puts a server with a share into the node's network.
func shares(r *rig) {
	r.AddSMBShare(simnode.SMBShare{Server: server, Name: "data"})
	r.SetSMBUser(server, user, csiproxy.NewSecret("first password"))
}

// shareVolume is a volume as an administrator has made it for a share.
func shareVolume(id, directory, password string) *volume {
	return &volume{
		Volume: &csi.Volume{VolumeId: id, VolumeContext: map[string]string{
			"type": "smb", "source": "//" + server + "/data" + directory,
		}},
		capability: mount(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER),
		secrets:    map[string]string{"username": user, "password": password},
	}
}

// up and down are a volume's ways to a pod and back if nothing has to be attached.
func (r *rig) up(v *volume, pod string) {
	r.t.Helper()
	for range 2 {
		r.must(r.stage(v))
	}
	for range 2 {
		r.must(r.publish(v, pod))
	}
}

func (r *rig) down(v *volume, pod string) {
	r.t.Helper()
	for range 2 {
		r.must(r.unpublish(v, pod))
	}
	for range 2 {
		r.must(r.unstage(v))
	}
}

func TestShare(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		shares(r)
		v := shareVolume("share", "", "first password")
		r.up(v, "pod-a")
		r.write(v, "pod-a", "written by a pod")
		r.must(r.publish(v, "pod-b"))
		r.read(v, "pod-b", "written by a pod")
		stats, err := r.NodeGetVolumeStats(t.Context(),
			&csi.NodeGetVolumeStatsRequest{VolumeId: v.VolumeId, VolumePath: v.targetPath("pod-b")})
		r.must(err)
		if u := stats.Usage[0]; u.Total == 0 || u.Available == 0 || u.Available > u.Total {
			t.Errorf("usage %v", u)
		}
		r.must(r.unpublish(v, "pod-b"))

		r.Reboot() // Windows forgets the connection
		r.restartDriver()
		r.refused("publish after the mapping has gone", r.publish(v, "pod-b"), codes.FailedPrecondition)
		r.must(r.unpublish(v, "pod-b"))
		r.must(r.stage(v))
		r.must(r.publish(v, "pod-a"))
		r.read(v, "pod-a", "written by a pod")
		r.down(v, "pod-a")

		if _, err := r.ReadFile(`\\` + server + `\data\hello.txt`); err == nil {
			t.Error("the node is still connected to the share")
		}
	})
}

// A mistake with one volume's path isn't another's end.
func TestOnePathForTwoShares(t *testing.T) {
	r := newRig(t, viaInProcess)
	shares(r)
	v := shareVolume("one", "", "first password")
	r.up(v, "pod")
	r.write(v, "pod", "of one")
	other := shareVolume("other", "/elsewhere", "first password")
	for _, path := range []string{v.stagingPath(), "C:" + v.stagingPath()} {
		_, err := r.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
			VolumeId: other.VolumeId, StagingTargetPath: path, VolumeCapability: other.capability,
			VolumeContext: other.VolumeContext, Secrets: other.secrets,
		})
		r.refused("stage at "+path, err, codes.FailedPrecondition)
	}
	r.read(v, "pod", "of one")

	// Also if the record is lost: what is undone names the other share.
	r.must(r.MkdirAll(v.targetPath("pod") + `\elsewhere`))
	for _, file := range r.recordFiles() {
		r.must(os.Remove(file))
	}
	r.must(r.unpublish(v, "pod")) // what is published isn't unstaged
	_, err := r.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: other.VolumeId, StagingTargetPath: v.stagingPath(), VolumeCapability: other.capability,
		VolumeContext: other.VolumeContext, Secrets: other.secrets,
	})
	r.refused("stage at the same path without its record", err, codes.AlreadyExists)
	if data, err := r.ReadFile("C:" + v.stagingPath() + `\hello.txt`); string(data) != "of one" {
		t.Errorf("at the staging path is %q, %v", data, err)
	}
	r.must(r.unstage(v))
}

func TestShareRefuses(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		shares(r)
		r.refused("a wrong password", r.stage(shareVolume("a", "", "guessed")), codes.Unauthenticated)
		r.must(r.unstage(shareVolume("a", "", "")))
		r.refused("a directory that isn't there", r.stage(shareVolume("b", "/nowhere", "first password")), codes.NotFound)
		if err := r.WriteFile(`\\`+server+`\data\hello.txt`, nil); err == nil {
			t.Error("the node is connected to the share after a staging that was refused")
		}
		r.must(r.unstage(shareVolume("b", "", "")))

		v := shareVolume("c", "", "first password")
		r.up(v, "pod")
		// The password is changed on the server, then in the secret.
		r.SetSMBUser(server, user, csiproxy.NewSecret("second password"))
		r.healthIs(v, "INACCESSIBLE ShareRefused") // with the old password
		r.refused("the old password", r.stage(v), codes.Unauthenticated)
		if files := r.recordFiles(); len(files) != 1 {
			t.Errorf("records %v: the volume that a pod uses was given up", files)
		}
		v.secrets["password"] = "second password"
		r.up(v, "pod")
		r.write(v, "pod", "with the new password")

		r.SetSMBServer(server, simnode.SMBServer{Unreachable: true})
		r.healthIs(v, "INACCESSIBLE ShareUnreachable")
		r.down(v, "pod") // also then
		r.SetSMBServer(server, simnode.SMBServer{})
		_, err := r.NodeExpandVolume(t.Context(),
			&csi.NodeExpandVolumeRequest{VolumeId: v.VolumeId, VolumePath: v.targetPath("pod")})
		r.refused("grow a share that isn't staged", err, codes.NotFound)
	})
}
