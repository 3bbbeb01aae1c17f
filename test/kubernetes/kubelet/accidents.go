// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// This file has what a driver must refuse, and the accidents of kubelet's directory.

// volumeData is the file without which kubelet doesn't unpublish a volume. It is beside the target path.
const volumeData = "vol_data.json"

// twice has a pod use a claim by two names.
func twice(s *scenario) {
	v := s.newVolume(volumeOptions{})
	given := podWith(v)
	again := given.Spec.Volumes[0]
	again.Name = "again"
	given.Spec.Volumes = append(given.Spec.Volumes, again)
	app := &given.Spec.Containers[0]
	app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: again.Name, MountPath: "/again"})
	s.useAndEnd(s.makePod(s.node, given, v))
}

// block has a pod ask for a block device.
func block(s *scenario) {
	v := s.newVolume(volumeOptions{})
	s.rebind(v, func(pv *corev1.PersistentVolume) {
		pv.Spec.VolumeMode, pv.Spec.CSI.FSType = new(corev1.PersistentVolumeBlock), ""
	})
	given := podWith(v)
	app := &given.Spec.Containers[0]
	app.VolumeMounts, app.VolumeDevices = nil, []corev1.VolumeDevice{{Name: v.claim, DevicePath: "/dev/data"}}
	s.isRefused(s.makePod(s.node, given, v), "block")
}

// ext4 has a pod use a volume with a file system that Windows hasn't got.
func ext4(s *scenario) {
	v := s.newVolume(volumeOptions{})
	s.rebind(v, func(pv *corev1.PersistentVolume) { pv.Spec.CSI.FSType = "ext4" })
	s.isRefused(s.newPod(v), "ext4")
}

// inline has a pod ask for an inline volume (volumes[].csi), which kubelet asks the driver for if its
// CSIDriver says so.
func inline(s *scenario) {
	s.replaceDriver(storagev1.CSIDriverSpec{
		AttachRequired: &s.attaches, PodInfoOnMount: new(true),
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
	})
	defer s.replaceDriver(storagev1.CSIDriverSpec{AttachRequired: &s.attaches})
	given := podWith()
	given.Spec.Volumes = []corev1.Volume{{Name: "inline", VolumeSource: corev1.VolumeSource{
		CSI: &corev1.CSIVolumeSource{Driver: s.driverName},
	}}}
	given.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "inline", MountPath: "/inline"}}
	s.isRefused(s.makePod(s.node, given), "inline")
}

// replaceDriver makes the driver's CSIDriver anew: most of it can't be changed.
func (s *scenario) replaceDriver(spec storagev1.CSIDriverSpec) {
	drivers := s.cluster.StorageV1().CSIDrivers()
	s.must(drivers.Delete(s.ctx, s.driverName, metav1.DeleteOptions{}))
	s.succeeds(drivers.Create(s.ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: s.driverName}, Spec: spec}, metav1.CreateOptions{}))
}

// isRefused returns when a pod that can't have its volume has an event that says why, with a word of what
// it wants, and is gone. A driver may refuse it when the volume is to be attached, or later.
func (s *scenario) isRefused(p *pod, word string) {
	s.await("an event says that "+word+" is refused", func() (bool, error) {
		for _, e := range s.events() {
			if e.InvolvedObject.Name == p.name && strings.Contains(strings.ToLower(e.Message), word) {
				return true, nil
			}
		}
		return false, nil
	})
	s.endLast(p)
}

// forgotten is the scenario in which kubelet loses what it needs to unpublish the volume of a pod that
// goes. The next pod must get the volume, on the same node and then on another one.
func forgotten(lose func(s *scenario, p *pod)) func(s *scenario) {
	return func(s *scenario) {
		v, lost, text := s.startWriter(volumeOptions{})
		s.wire.watch(nil) // an administrator unpublishes the volume, of which the calls tell nothing
		s.cluster.stopKubelet()
		s.deletePod(lost)
		lose(s, lost)
		p := s.newPod(v) // kubelet knows the volume by this one, else it would be detached
		s.must(s.cluster.startKubelet())
		s.awaitRunning(p)
		s.sees(p, "data", text)
		s.endPod(p)
		s.awaitCall(unstage, v, "says why it can't be", func(c call) bool {
			return c.code == codes.FailedPrecondition && strings.Contains(strings.ToLower(c.message), lost.uid)
		})

		c := s.client()
		defer c.Close()
		found, err := c.Storage.CleanUp(s.ctx, true)
		s.must(err)
		if len(found.Mounts) != 1 || found.Mounts[0].ForgottenPod != lost.uid || found.Mounts[0].Removed {
			s.wrong("clean-up finds %+v, and should find the link of the pod %s", found, lost.uid)
		}
		for _, m := range found.Mounts { // what clean-up and the error tell an administrator to do
			s.must(c.Storage.UnpublishVolume(s.ctx, m.Path))
		}
		s.must(os.RemoveAll(filepath.Join(s.cluster.root, "pods", lost.uid)))
		s.awaitDetached(v)

		p = s.newPodOn(s.second.node, v)
		s.awaitRunning(p)
		s.endReader(p, text)
	}
}

// loseDirectory removes kubelet's directories of pods, of which the node has a mirror.
func loseDirectory(s *scenario, p *pod) {
	s.must(os.RemoveAll(filepath.Join(s.cluster.root, "pods")))
	ask[simv1.Empty](s, "Remove", &simv1.Path{Path: p.volumeData()})
}

// emptyVolumeData has a file of kubelet's be empty, as a loss of power may leave it.
func emptyVolumeData(s *scenario, p *pod) {
	s.must(os.Truncate(filepath.Join(s.cluster.root, "pods", p.uid, "volumes", "kubernetes.io~csi", p.volumes[0].pv, volumeData), 0))
	ask[simv1.Empty](s, "WriteFile", &simv1.WriteFileRequest{Path: p.volumeData()})
}

// volumeData is the path of the mirror of kubelet's file about the pod's first volume.
func (p *pod) volumeData() string {
	return strings.TrimSuffix(p.target(p.volumes[0]), "mount") + volumeData
}

// renamed has the node come back under another name while its pod's volume is staged, as after a change
// of the host's name. Kubelet then cleans up what it has of a pod that it doesn't know.
func renamed(s *scenario) {
	const name = "node-renamed"
	v, p, text := s.startWriter(volumeOptions{})
	s.cluster.stopKubelet()
	s.must(s.cluster.CoreV1().Pods(s.name).Delete(s.ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	s.must(s.cluster.startKubelet("-node=" + name))
	defer func() { // for the next scenario
		s.must(s.cluster.startKubelet())
		s.must(s.cluster.awaitDriver(s.ctx, nodeName, s.driverName))
		s.must(s.cluster.forget(name))
	}()
	s.must(s.cluster.awaitDriver(s.ctx, name, s.driverName))
	s.awaitUnstaged(v)
	s.outOfService(true) // else Kubernetes waits for six minutes
	s.awaitDetached(v)
	s.must(s.cluster.forget(nodeName)) // as an administrator does, or the cloud's controller

	on := *s.node
	on.name = name
	p = s.newPodOn(&on, v)
	s.awaitRunning(p)
	s.endReader(p, text)
}
