// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// secondNode starts it for a scenario, with the cloud. stop must be called if there is no error.
func (l *lab) secondNode(ctx context.Context, s *scenario) (_ *secondNode, err error) {
	dir := filepath.Join(l.dir, fmt.Sprintf("node-%d-b", l.nodes))
	second := &secondNode{}
	defer func() {
		if err != nil {
			err = errors.Join(err, second.stop())
		}
	}()
	o, at := l.options, addresses{driver: "unix://" + filepath.Join(dir, "csi.sock")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if l.windows {
		o.wine = filepath.Join(dir, "wine")
		second.stops = append(second.stops, o.removeWindows)
		if err = o.makeWindows(l.driveC()); err != nil {
			return nil, err
		}
		var command *exec.Cmd
		if command, at, err = o.relay(); err != nil {
			return nil, err
		}
		relay, err := controlplane.Start(dir, "relay", command)
		if err != nil {
			return nil, err
		}
		second.stops = append(second.stops, func() error { relay.Kill(); return nil })
	}
	if second.node, err = newNode(secondName, dir, at, o); err != nil {
		return nil, err
	}
	second.stops = append(second.stops, second.node.stop)
	if err := second.begin(ctx); err != nil {
		return nil, err
	}
	w := &wire{
		record: l.wire.record, name: secondName, node: func() *node { return second.node }, driver: at.driver, root: o.kubeletRoot(dir),
		socket: filepath.Join(dir, "controller.sock"), windows: l.windows,
	}
	stopWire, err := w.serve(l.driver)
	second.stops = append(second.stops, func() error { stopWire(); return nil })
	if err != nil {
		return nil, err
	}
	second.stops = append(second.stops, func() error { return l.cluster.forget(secondName) })
	second.kubelet, err = l.cluster.newKubelet(ctx, secondName, dir, o)
	second.stops = append(second.stops, func() error { second.stopKubelet(); return nil })
	if err != nil {
		return nil, err
	}
	before := l.wire.instead()
	cloudOf := &sharedCloud{
		dir: dir, wrong: s.wrong, nodes: map[string]*node{nodeName: s.node, secondName: second.node},
		disks: map[string]*sharedDisk{}, lies: s.planted.name == plantLie, nodeOf: l.wire.nodeOf,
	}
	cloudOf.made, _ = before.(*cloud)
	l.wire.control(cloudOf)
	second.stops = append(second.stops, func() error { l.wire.control(before); return nil })
	return second, l.cluster.awaitDriver(ctx, secondName, l.driver)
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

// sharedCloud is a cloud with two nodes, whose disks move between them with their data. Without -cloud, the
// serial number of a disk is the id of the volume.
type sharedCloud struct {
	dir    string // for disks on their way
	made   *cloud // that of -cloud, which makes and attaches them; nil: this does
	nodes  map[string]*node
	nodeOf func(id string) string
	wrong  func(format string, a ...any)
	lies   bool // it says that it has detached a disk, and hasn't: a planted fault

	mu    sync.Mutex
	moves int
	disks map[string]*sharedDisk // by the id of the volume
}

type sharedDisk struct {
	size     int64
	attached string // the node; "" if none
	last     string // the node that has its data; "" if it was never attached
}

// call is [controller]'s.
func (c *sharedCloud) call(ctx context.Context, request, response proto.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r := request.(type) {
	case *csi.CreateVolumeRequest:
		volume := &csi.Volume{VolumeId: r.Name, VolumeContext: r.Parameters, CapacityBytes: r.CapacityRange.RequiredBytes}
		if c.made != nil {
			var err error
			if volume, err = c.made.create(ctx, c.nodes[nodeName], c.dir, r); err != nil {
				return err
			}
		}
		if c.disks[volume.VolumeId] == nil {
			c.disks[volume.VolumeId] = &sharedDisk{size: r.CapacityRange.RequiredBytes}
		}
		response.(*csi.CreateVolumeResponse).Volume = volume
	case *csi.ControllerPublishVolumeRequest:
		return c.attach(ctx, r, response.(*csi.ControllerPublishVolumeResponse))
	case *csi.ControllerUnpublishVolumeRequest:
		return c.detach(ctx, r.VolumeId, c.nodeOf(r.NodeId))
	case *csi.DeleteVolumeRequest:
		return c.delete(ctx, r.VolumeId)
	case *csi.ListVolumesRequest: // the attacher asks if the driver's Controller has it
		for _, id := range slices.Sorted(maps.Keys(c.disks)) {
			at := &csi.ListVolumesResponse_VolumeStatus{}
			if d := c.disks[id]; d.attached != "" {
				at.PublishedNodeIds = []string{d.attached}
			}
			list := response.(*csi.ListVolumesResponse)
			list.Entries = append(list.Entries, &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: id}, Status: at})
		}
	default:
		return tell(request, response)
	}
	return nil
}

// attach attaches a disk to a node. That it is attached to another one must never be.
func (c *sharedCloud) attach(ctx context.Context, r *csi.ControllerPublishVolumeRequest, response *csi.ControllerPublishVolumeResponse) error {
	id, name := r.VolumeId, c.nodeOf(r.NodeId)
	d, n, serial := c.disks[id], c.nodes[name], c.serialNumber(id)
	switch {
	case d == nil || n == nil:
		return status.Errorf(codes.NotFound, "no volume %s or no node %s", id, r.NodeId)
	case d.attached != "" && d.attached != name:
		c.wrong("the disk of %s is asked for on two nodes: it is attached to %s, not detached, and should be to %s", id, d.attached, name)
		return status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s", id, d.attached)
	}
	if d.last != "" && d.last != name {
		c.moves++
		file := filepath.Join(c.dir, fmt.Sprintf("move-%d", c.moves))
		_, err := sim[simv1.Empty](ctx, c.nodes[d.last], "TakeDisk", &simv1.TakeDiskRequest{SerialNumber: serial, File: n.inNode(file)})
		if err == nil {
			_, err = sim[simv1.Empty](ctx, n, "GiveDisk", &simv1.DiskFile{File: n.inNode(file)})
		}
		if err != nil {
			c.wrong("the disk of %s doesn't move from %s to %s: %v", id, d.last, name, err)
			return err
		}
	}
	d.last = name
	if c.made != nil {
		if err := c.made.attach(ctx, n, c.dir, r, response); err != nil {
			return err
		}
		d.attached = name
		return nil
	}
	// What the driver is told when it stages the volume: this is for the example driver.
	response.PublishContext = map[string]string{"readOnly": fmt.Sprint(r.Readonly)}
	if d.attached == name {
		return nil
	}
	if _, err := sim[simv1.DiskNumber](ctx, n, "AttachDisk", &simv1.DiskHardware{SerialNumber: serial, SizeBytes: d.size}); err != nil {
		return err
	}
	d.attached = name
	return nil
}

// serialNumber is [controller]'s.
func (c *sharedCloud) serialNumber(volume string) string {
	if c.made != nil {
		return c.made.serialNumber(volume)
	}
	return volume
}

// detach detaches a disk from a node, if it is attached there.
func (c *sharedCloud) detach(ctx context.Context, id, name string) error {
	d := c.disks[id]
	if d == nil || d.attached != name || c.lies {
		return nil
	}
	disks, err := sim[simv1.ListDisksResponse](ctx, c.nodes[name], "ListDisks", &simv1.Empty{})
	if err != nil {
		return err
	}
	for _, on := range disks.Disks {
		if on.SerialNumber == c.serialNumber(id) && on.DiskNumber != nil {
			if _, err := sim[simv1.Empty](ctx, c.nodes[name], "DetachDisk", &simv1.DiskNumber{DiskNumber: on.DiskNumber}); err != nil {
				return err
			}
		}
	}
	d.attached = ""
	return nil
}

func (c *sharedCloud) delete(ctx context.Context, id string) error {
	d := c.disks[id]
	switch {
	case d == nil:
		return nil
	case d.attached != "":
		return status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s", id, d.attached)
	case d.last != "":
		if _, err := sim[simv1.Empty](ctx, c.nodes[d.last], "DeleteDisk", &simv1.SerialNumber{SerialNumber: c.serialNumber(id)}); err != nil {
			return err
		}
	}
	delete(c.disks, id)
	return nil
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
		if s.planted.name == plantTwo {
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
	lost := &pod{name: p.name, node: p.node, uid: p.uid, volumes: p.volumes}
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
	s.await("the volume is detached from "+s.node.name, func() (bool, error) { return s.attachedTo(v) != nodeName, nil })
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

// tryWrite has a pod write to its first volume, if it still can.
func (s *scenario) tryWrite(p *pod, name string) error {
	_, err := sim[simv1.Empty](s.ctx, p.node, "WriteFile",
		&simv1.WriteFileRequest{Path: p.file(p.volumes[0], name), Data: []byte("other")})
	return err
}

// attachedTo returns the node to which the cluster has a volume attached, or is attaching it; "" if none.
func (s *scenario) attachedTo(v *volume) string {
	all, err := s.cluster.StorageV1().VolumeAttachments().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	node := ""
	for _, va := range all.Items {
		if *va.Spec.Source.PersistentVolumeName != v.pv {
			continue
		}
		if node = va.Spec.NodeName; node == nodeName {
			return node
		}
	}
	return node
}

// outOfService says that the first node isn't ready and out of service, as the controller of nodes and
// an administrator do, or that it is back.
func (s *scenario) outOfService(out bool) {
	nodes := s.cluster.CoreV1().Nodes()
	s.await("the node's taint is changed", func() (bool, error) {
		n, err := nodes.Get(s.ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		if out {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
				Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute,
			})
		}
		if n, err = nodes.Update(s.ctx, n, metav1.UpdateOptions{}); err == nil && out {
			for i := range n.Status.Conditions {
				if n.Status.Conditions[i].Type == corev1.NodeReady {
					n.Status.Conditions[i].Status = corev1.ConditionUnknown
				}
			}
			_, err = nodes.UpdateStatus(s.ctx, n, metav1.UpdateOptions{})
		}
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return true, err
	})
}
