// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// secondNode is a node beside the first one, with its own kubelet, CSI Proxy and driver. The disks of
// both are those of one cloud.
type secondNode struct {
	*node
	*kubelet
	stops []func() error
}

// startSecond starts it for a scenario.
func (l *lab) startSecond(s *scenario) {
	second := &secondNode{}
	s.second = second
	after := func(stop func() error) { second.stops = append(second.stops, stop) }
	dir := filepath.Join(l.dir, fmt.Sprintf("node-%d-b", l.nodes))
	s.must(os.MkdirAll(dir, 0o700))
	o, at := l.options, addresses{driver: "unix://" + filepath.Join(dir, "csi.sock")}
	var err error
	if l.windows {
		o.wine = filepath.Join(dir, "wine")
		after(o.removeWindows)
		s.must(o.makeWindows(l.driveC()))
		var command *exec.Cmd
		command, at, err = o.relay()
		s.must(err)
		relay, err := controlplane.Start(dir, "relay", command)
		s.must(err)
		after(func() error { relay.Kill(); return nil })
	}
	second.node, err = newNode(secondName, dir, at, o)
	s.must(err)
	after(second.node.stop)
	s.must(second.begin(s.ctx))
	w := &wire{
		record: l.wire.record, name: secondName, node: func() *node { return second.node }, driver: at.driver, root: o.kubeletRoot(dir),
		socket: filepath.Join(dir, "controller.sock"), windows: l.windows,
	}
	stopWire, err := w.serve(l.driver)
	after(func() error { stopWire(); return nil })
	s.must(err)
	after(func() error { return l.cluster.forget(secondName) })
	second.kubelet, err = l.cluster.newKubelet(s.ctx, secondName, dir, o)
	after(func() error { second.stopKubelet(); return nil })
	s.must(err)
	s.must(l.cluster.awaitDriver(s.ctx, secondName, l.driver))
}

// stop ends all that was started, the last one first.
func (n *secondNode) stop() (err error) {
	for _, stop := range slices.Backward(n.stops) {
		err = errors.Join(err, stop())
	}
	return err
}

// forget removes a node from the cluster.
func (c *cluster) forget(name string) error {
	ctx := context.Background()
	for _, err := range []error{
		c.StorageV1().CSINodes().Delete(ctx, name, metav1.DeleteOptions{}),
		c.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// awaitDriver returns when the kubelet of a node knows the driver.
func (c *cluster) awaitDriver(ctx context.Context, name, driver string) error {
	return c.await(ctx, "the kubelet of "+name+" has registered the driver", func() (bool, error) {
		node, err := c.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver }), nil
	})
}

// moves has a claim move from node to node ten times. Each time the next pod is made before the one
// before has gone, as a Deployment does.
func moves(s *scenario) {
	v, p, text := s.startWriter(volumeOptions{})
	for i := range 10 {
		s.sees(p, "data", text)
		text = s.text()
		s.write(p, "data", text)
		to := s.node
		if i%2 == 0 {
			to = s.second.node
		}
		if s.planted == plantTwo {
			_ = invoke(s.ctx, s.wire.address, csi.Controller_ControllerPublishVolume_FullMethodName, // what it says is noted
				&csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: to.name}, &csi.ControllerPublishVolumeResponse{})
		}
		s.deletePod(p)
		before := p
		p = s.newPodOn(to, v)
		s.awaitRunning(p)
		if _, err := s.read(before, v, "data"); err == nil {
			s.wrong("%s still sees its volume, which is on %s now", before.name, to.name)
		}
	}
	s.endReader(p, text)
}

// outOfService has a node lose its power while a pod runs there, and says that it is out of service. Its
// pod's volume comes to the second node by force. Then the first one returns.
func outOfService(s *scenario) {
	v, p, text := s.startWriter(volumeOptions{})
	s.endLast(p) // what it wrote was flushed
	p = s.startPod(v)
	s.sees(p, "data", text)
	lost := p
	s.write(p, "later", s.text())
	yes := true
	askOn[simv1.Empty](s, s.node, "SetVolume", &simv1.SetVolumeRequest{Volume: s.volumeOf(v).VolumeId, Dirty: &yes})

	s.note("%s loses power", s.node.name)
	s.off = true
	s.cluster.stopKubelet()
	if !s.inProcess { // or the simulated node goes with it
		s.driver.Kill()
	}
	askOn[simv1.Empty](s, s.node, "PowerLoss", &simv1.Empty{}) // the hardware can be asked until it returns
	s.outOfService(true)
	s.deletePod(p) // or the taint's eviction would
	p = s.newPodOn(s.second.node, v)
	s.await("the volume is detached from "+s.node.name, func() (bool, error) {
		return !slices.ContainsFunc(s.attachments(v), func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName == nodeName }), nil
	})
	if err := s.tryWrite(lost, "later"); err == nil {
		s.wrong("%s writes after its disk was detached", lost.name)
	}
	s.awaitRunning(p)
	s.sees(p, "data", text)
	if !slices.ContainsFunc(askOn[simv1.ListVolumesResponse](s, s.second.node, "ListVolumes", &simv1.Empty{}).Volumes,
		func(on *simv1.Volume) bool { return on.Dirty }) {
		s.wrong("the volume isn't dirty on %s: not what this is about", s.second.node.name)
	}
	text = s.text()
	s.write(p, "data", text)

	s.note("%s returns", s.node.name)
	s.driver.Kill()
	s.daemon.Kill()
	s.off, s.booted = false, time.Now()
	s.must(s.node.begin(s.ctx))
	s.must(s.cluster.startKubelet())
	s.outOfService(false)
	s.await("the first node has nothing of the volume", func() (bool, error) {
		return len(s.linksBelow(s.node, `C:`+windowsRoot)) == 0, nil
	})
	if err := s.tryWrite(lost, "later"); err == nil {
		s.wrong("%s writes after its disk was detached", lost.name)
	}
	s.sees(p, "data", text)
	s.endLast(p)
	p = s.startPod(v)
	s.endReader(p, text)
}

// outOfService says that the first node isn't ready and out of service, as the controller of nodes and
// an administrator do, or that it is back.
func (s *scenario) outOfService(out bool) {
	taints := "[]"
	if out {
		taints = `[{"key": "` + corev1.TaintNodeOutOfService + `", "value": "nodeshutdown", "effect": "NoExecute"}]`
		s.patchNode(`{"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}`, "status")
	}
	s.patchNode(`{"spec": {"taints": ` + taints + `}}`)
}

func (s *scenario) patchNode(patch string, parts ...string) {
	s.succeeds(s.cluster.CoreV1().Nodes().Patch(s.ctx, nodeName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, parts...))
}
