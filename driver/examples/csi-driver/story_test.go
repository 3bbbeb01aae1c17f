// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

const gib = 1 << 30

// The life of a volume as docs/test-your-driver.md tells it: what a pod has written
// is there after the pod has moved, the volume has grown, CSI Proxy and the driver
// were upgraded, and the node has started again.
func TestLifeOfAVolume(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		v := r.create("pvc-1", 2*gib, nil)
		r.start(v, "pod-a")
		r.write(v, "pod-a", "written by a pod")

		// The pod moves: the disk leaves the node with all that was written, comes
		// back, and another pod gets it.
		disks := r.Operations().Disk
		number := r.diskOf(v)
		r.must(r.unpublish(v, "pod-a"))
		r.must(r.unstage(v))
		if online, err := disks.GetDiskState(t.Context(), number); err != nil || online {
			t.Errorf("after unstaging: the disk is online %t, %v", online, err)
		}
		r.end(v, "pod-a")
		if id, err := r.Operations().Volume.GetVolumeIDFromTargetPath(t.Context(), v.stagingPath()); !errors.Is(err,
			csiproxy.ErrNotFound) {
			t.Errorf("after unstaging: volume %s, %v", id, err)
		}
		r.start(v, "pod-b")
		r.read(v, "pod-b", "written by a pod")

		// The claim grows while the pod runs.
		for range 2 {
			grown, err := r.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId: v.VolumeId, CapacityRange: &csi.CapacityRange{RequiredBytes: 5 * gib},
			})
			r.must(err)
			if grown.CapacityBytes != 5*gib || !grown.NodeExpansionRequired {
				t.Errorf("grown to %v", grown)
			}
			onNode, err := r.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
				VolumeId: v.VolumeId, VolumePath: v.targetPath("pod-b"), CapacityRange: &csi.CapacityRange{RequiredBytes: 5 * gib},
			})
			r.must(err)
			if onNode.CapacityBytes <= 5*gib-37<<20 || onNode.CapacityBytes > 5*gib {
				t.Errorf("grown to %v on the node", onNode)
			}
		}
		r.usage(v, "pod-b", 5*gib)

		// Upgrades, with the pod running.
		r.RestartDaemon()
		r.read(v, "pod-b", "written by a pod")
		r.usage(v, "pod-b", 5*gib)
		r.restartDriver()
		r.usage(v, "pod-b", 5*gib)
		r.write(v, "pod-b", "written after the upgrades")

		// The node starts again. Kubelet doesn't take for granted that anything is
		// as it was.
		r.Reboot()
		r.restartDriver()
		r.must(r.stage(v))
		r.must(r.publish(v, "pod-b"))
		r.read(v, "pod-b", "written after the upgrades")
		r.usage(v, "pod-b", 5*gib)
		r.healthIs(v)

		r.end(v, "pod-b")
		if _, err := r.ReadFile(v.targetPath("pod-b") + `\hello.txt`); err == nil {
			t.Error("the file is still there when the volume has gone")
		}
		for range 2 {
			_, err := r.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.VolumeId})
			r.must(err)
		}
		if disks := r.Disks(); len(disks) != 1 {
			t.Errorf("disks %+v, want Windows' own", disks)
		}
	})
}

// usage fails the test unless the volume's file system has about the size of its
// disk and something in it.
func (r *rig) usage(v *volume, pod string, diskBytes int64) {
	r.t.Helper()
	stats, err := r.NodeGetVolumeStats(r.t.Context(),
		&csi.NodeGetVolumeStatsRequest{VolumeId: v.VolumeId, VolumePath: v.targetPath(pod)})
	r.must(err)
	const tables = 32 << 20 // the partition table and Windows' reserved partition
	u := stats.Usage[0]
	if u.Total > diskBytes || u.Total < diskBytes-tables || u.Used <= 0 || u.Available != u.Total-u.Used {
		r.t.Errorf("usage %v of a disk with %d bytes", u, diskBytes)
	}
}

// A crash may come between any two calls to Windows. Here each of them fails once in
// turn, as if it were the one before which the driver or CSI Proxy died, and what
// kubelet does next is to call again.
func TestEveryCallFailsOnce(t *testing.T) {
	life := func(r *rig) {
		v := r.create("pvc", gib, nil)
		try := func(call func(*volume) error) {
			r.t.Helper()
			if call(v) != nil {
				r.must(call(v))
			}
		}
		inPod := func(call func(*volume, string) error) func(*volume) error {
			return func(v *volume) error { return call(v, "pod") }
		}
		try(r.attach)
		try(r.stage)
		try(inPod(r.publish))
		r.write(v, "pod", "precious")
		try(inPod(r.unpublish))
		try(r.unstage)
		try(r.detach)
		r.ClearFaults()
		r.start(v, "other")
		r.read(v, "other", "precious")
		r.end(v, "other")
		_, err := r.DeleteVolume(r.t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.VolumeId})
		r.must(err)
	}
	r := newRig(t, viaInProcess)
	before := r.Calls()
	life(r)
	for call, count := range r.Calls() {
		if count == before[call] {
			continue // this life doesn't need it
		}
		t.Run(call, func(t *testing.T) {
			r := newRig(t, viaInProcess)
			const ioDeviceError = 1117
			fail := r.Fail
			switch call {
			case "CM_Register_Notification", "FindFirstVolumeW", "IOCTL_DISK_ARE_VOLUMES_READY": // made only if a volume comes late
				fail = r.FailIfCalled
			}
			fail(call, ioDeviceError, 1)
			life(r)
		})
	}
}
