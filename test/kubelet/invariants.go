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
func (s *scenario) mounted(volume string) {
	staged, targets := "", map[string]bool{}
	for _, c := range s.wire.list()[s.first:] {
		switch {
		case c.volume() != volume || c.took == 0:
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
	var disks *simv1.ListDisksResponse
	if err := s.cluster.await(s.ctx, "CSI Proxy lists the disks", func() (_ bool, err error) {
		disks, err = sim[simv1.ListDisksResponse](s.ctx, s.node, "ListDisks", &simv1.Empty{})
		if status.Code(err) == codes.Unavailable { // it has just been killed
			return false, nil
		}
		return err == nil, err
	}); err != nil {
		s.wrong("%v", err)
		return
	}
	for _, d := range disks.Disks {
		if d.SerialNumber == volume && d.DiskNumber != nil && !d.Offline {
			s.wrong("volume %s is detached while its disk is online", volume)
		}
	}
}

// finish checks what must be so after the last pod, and deletes the volumes.
func (s *scenario) finish() {
	s.counts()
	s.warnings()
	s.nothingOnTheNode()
	s.nothingOfKubelet()
	for _, v := range s.volumes {
		s.unbind(v)
		if v.deletes {
			s.awaitCall("DeleteVolume", v, "has succeeded", func(c call) bool { return c.code == codes.OK && c.took != 0 })
			continue
		}
		_, err := callController[csi.DeleteVolumeResponse](s.ctx, s.wire, "DeleteVolume", &csi.DeleteVolumeRequest{VolumeId: v.id})
		s.must(err)
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
	for _, method := range append([]string{grow}, cycle...) {
		n, repeated := s.expected.calls[method], slices.Contains(s.expected.repeated, method)
		if succeeded[method] < n || succeeded[method] > n && !repeated {
			s.wrong("%s succeeds %d times: not as often as it should, %d times", method, succeeded[method], n)
		}
	}
}

// warnings notes events of type Warning that the scenario doesn't lead to.
func (s *scenario) warnings() {
	for _, e := range s.events() {
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
func (s *scenario) nothingOnTheNode() {
	disks := ask[simv1.ListDisksResponse](s, "ListDisks", &simv1.Empty{})
	for _, d := range disks.Disks {
		if d.DiskNumber != nil && !d.System {
			s.wrong("disk %d, %s, is left", *d.DiskNumber, d.SerialNumber)
		}
	}
	volumes := ask[simv1.ListVolumesResponse](s, "ListVolumes", &simv1.Empty{})
	for _, v := range volumes.Volumes {
		for _, p := range v.Paths {
			if strings.Contains(strings.ToLower(p), `\kubelet\`) {
				s.wrong("the mount point %s is left", p)
			}
		}
	}
	s.nothingBelow(`C:` + windowsRoot)
}

// nothingBelow notes the links and mount points below a directory of the node.
func (s *scenario) nothingBelow(directory string) {
	list := ask[simv1.ListDirectoryResponse](s, "ListDirectory", &simv1.Path{Path: directory})
	for _, e := range list.Entries {
		path := directory + `\` + e.Name
		switch {
		case e.Reparse:
			s.wrong("the link %s is left", path)
		case e.Directory:
			s.nothingBelow(path)
		}
	}
}

// nothingOfKubelet notes what kubelet keeps of volumes and pods. It removes the directories of pods
// some seconds after them.
func (s *scenario) nothingOfKubelet() {
	of := func(pattern string) []string {
		found, err := filepath.Glob(filepath.Join(s.cluster.root, pattern))
		s.must(err)
		return found
	}
	if left := of(s.kubeletsVolumes() + "/*"); len(left) > 0 {
		s.wrong("kubelet keeps volumes: %q are left", left)
	}
	for _, p := range s.pods {
		s.await("kubelet has removed the directory of "+p.name, func() (bool, error) {
			_, err := os.Stat(filepath.Join(s.cluster.root, "pods", p.uid))
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
