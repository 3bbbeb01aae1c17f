// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// What must be so in each scenario: a pod sees its own data (scenario.sees); nothing is detached
// while it is mounted; nothing is left after the last pod; nothing fails and nothing is repeated
// unless the scenario says so.

// mounted notes it if a volume is mounted that is going to be detached: going by the calls, and by
// what the node has.
func (s *scenario) mounted(volume, node string) {
	on := s.nodeNamed(node)
	if on.off {
		return // what is mounted there has ended with the power
	}
	staged, targets := "", map[string]bool{}
	for _, c := range s.wire.list()[s.first:] {
		switch {
		case c.volume() != volume || c.node != node || c.began.Before(on.booted) || c.took == 0:
			continue
		case c.method == unstage && c.code == codes.Canceled:
			staged = "" // kubelet has ended, and the driver goes on: what the node has tells the rest
		case c.code != codes.OK:
			continue
		}
		switch c.method {
		case stage:
			staged = c.field("staging_target_path")
		case unstage:
			staged = ""
		case publish:
			targets[c.field("target_path")] = true
		case unpublish:
			delete(targets, c.field("target_path"))
		}
	}
	if staged != "" || len(targets) > 0 {
		s.wrong("volume %s is detached while it is staged at %q and published at %d paths", volume, staged, len(targets))
	}
	var disk *simv1.Disk
	if err := s.cluster.await(s.ctx, "CSI Proxy lists the disks", func() (_ bool, err error) {
		disk, err = on.disk(s.ctx, s.wire.cloud.serialNumber(volume))
		if status.Code(err) == codes.Unavailable { // it has just been killed
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		s.wrong("%v", err)
	} else if disk != nil && !disk.Offline {
		s.wrong("volume %s is detached while its disk is online", volume)
	}
}

// finish checks what must be so after the last pod, and deletes the volumes.
func (s *scenario) finish() {
	s.counts()
	s.warnings()
	s.nothingOnTheNode(s.node)
	s.nothingOfKubelet(s.cluster.root)
	if s.second != nil {
		s.nothingOnTheNode(s.second.node)
		s.nothingOfKubelet(s.second.root)
	}
	for _, v := range s.volumes {
		s.unbind(v)
		if v.retained && !s.shares {
			s.must(invoke(s.ctx, s.wire.address, csi.Controller_DeleteVolume_FullMethodName,
				&csi.DeleteVolumeRequest{VolumeId: v.id}, &csi.DeleteVolumeResponse{}))
		}
		if s.shares {
			continue
		}
		s.awaitCall("DeleteVolume", v, "has succeeded", func(c call) bool { return c.code == codes.OK && c.took != 0 })
		s.must(s.cluster.StorageV1().StorageClasses().Delete(s.ctx, v.class, metav1.DeleteOptions{}))
	}
}

// counts notes calls that came more or less often than the scenario leads to, or failed.
func (s *scenario) counts() {
	succeeded := map[string]int{}
	for _, v := range s.volumes {
		for _, c := range s.calls(v) {
			switch {
			case c.took == 0:
				s.wrong("%s is still under way", c.method)
			case c.code == codes.OK:
				succeeded[c.method]++
			case !slices.Contains(s.expected.failing, c.method):
				s.wrong("%s fails: %v: %s", c.method, c.code, c.message)
			}
		}
	}
	if s.expected.calls == nil {
		return
	}
	for _, method := range s.methods() {
		n, repeated := s.expected.calls[method], slices.Contains(s.expected.repeated, method)
		if succeeded[method] < n || succeeded[method] > n && !repeated {
			s.wrong("%s succeeds %d times: not as often as it should, %d times", method, succeeded[method], n)
		}
	}
}

// warnings notes events of type Warning that the scenario doesn't lead to.
func (s *scenario) warnings() {
	for _, e := range s.events() {
		if e.Reason == "ProvisioningFailed" && strings.HasSuffix(e.Message, "not found") {
			continue // the provisioner doesn't know the claim's new StorageClass yet
		}
		s.warned++
		if !slices.Contains(s.expected.events, e.Reason) {
			s.wrong("event %s of %s %s, %d times: %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Count, e.Message)
		}
	}
}

// events returns the warnings about what is the scenario's, and about the node.
func (s *scenario) events() (warnings []corev1.Event) {
	all, err := s.cluster.CoreV1().Events(metav1.NamespaceAll).List(s.ctx, metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
	s.must(err)
	for _, e := range all.Items {
		ours := e.InvolvedObject.Namespace == s.name ||
			e.InvolvedObject.Kind == "Node" && e.LastTimestamp.After(s.began) ||
			slices.ContainsFunc(s.volumes, func(v *volume) bool {
				return e.InvolvedObject.Kind == "PersistentVolume" && e.InvolvedObject.Name == v.pv
			})
		if ours {
			warnings = append(warnings, e)
		}
	}
	return warnings
}

// nothingOnTheNode notes what is left on the simulated node.
func (s *scenario) nothingOnTheNode(n *node) {
	disks := askOn[simv1.ListDisksResponse](s, n, "ListDisks", &simv1.Empty{})
	for _, d := range disks.Disks {
		if d.DiskNumber != nil && !d.System {
			s.wrong("disk %d, %s, is left", *d.DiskNumber, d.SerialNumber)
		}
	}
	volumes := askOn[simv1.ListVolumesResponse](s, n, "ListVolumes", &simv1.Empty{})
	for _, v := range volumes.Volumes {
		for _, p := range v.Paths {
			if strings.Contains(strings.ToLower(p), `\kubelet\`) {
				s.wrong("the mount point %s is left", p)
			}
		}
	}
	for _, link := range s.linksBelow(n, `C:`+windowsRoot) {
		s.wrong("the link %s is left", link)
	}
}

// linksBelow returns the links and mount points below a directory of a node.
func (s *scenario) linksBelow(n *node, directory string) (links []string) {
	list := askOn[simv1.ListDirectoryResponse](s, n, "ListDirectory", &simv1.Path{Path: directory})
	for _, e := range list.Entries {
		path := directory + `\` + e.Name
		switch {
		case e.Reparse:
			links = append(links, path)
		case e.Directory:
			links = append(links, s.linksBelow(n, path)...)
		}
	}
	return links
}

// nothingOfKubelet notes what a kubelet keeps of volumes and pods below its directory. It removes the
// directories of pods some seconds after them.
func (s *scenario) nothingOfKubelet(root string) {
	of := func(pattern string) []string {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		s.must(err)
		return found
	}
	if left := of(s.kubeletsVolumes() + "/*"); len(left) > 0 {
		s.wrong("kubelet keeps volumes: %q are left", left)
	}
	for _, p := range s.pods {
		s.await("kubelet has removed the directory of "+p.name, func() (bool, error) {
			_, err := os.Stat(filepath.Join(root, "pods", p.uid))
			return os.IsNotExist(err), nil
		})
	}
}

// kubeletsVolumes is where kubelet has volumes staged, below its directory.
func (s *scenario) kubeletsVolumes() string { return "plugins/kubernetes.io/csi/" + s.driverName }

// volumeOf returns the volume on the disk of a volume; nil if there is none.
func (s *scenario) volumeOf(v *volume) *simv1.Volume {
	d := s.disk(v)
	volumes := ask[simv1.ListVolumesResponse](s, "ListVolumes", &simv1.Empty{})
	for _, on := range volumes.Volumes {
		if d != nil && on.DiskNumber == *d.DiskNumber && on.FileSystem != "" {
			return on
		}
	}
	return nil
}
