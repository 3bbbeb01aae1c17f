// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/onsi/ginkgo/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/cloud"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/cloud/hardware"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/driver"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// rig is a simulated node with CSI Proxy and the driver on it, and the driver's
// clients, which play the CO.
type rig struct {
	*simnode.Node
	csi.ControllerClient
	csi.NodeClient
	t    *testing.T
	via  string
	dir  string // of the driver
	stop func()
}

// eachWay runs a test with the driver over the pipe and in process.
func eachWay(t *testing.T, test func(t *testing.T, r *rig)) {
	for _, via := range []string{viaPipe, viaInProcess} {
		t.Run(via, func(t *testing.T) { test(t, newRig(t, via)) })
	}
}

func newRig(t *testing.T, via string) *rig {
	n := simnode.New(t)
	r := &rig{Node: n, t: t, via: via, dir: shortDir(t)}
	r.startDriver()
	t.Cleanup(func() { r.stop() })
	return r
}

const nodeID = "node-1"

// diskWait is short, since the disks that tests wait for in vain never come.
const diskWait = 200 * time.Millisecond

func (r *rig) socket() string { return filepath.Join(r.dir, "csi.sock") }

// startDriver starts a driver, which finds what one before it has left.
func (r *rig) startDriver() {
	var storage csinode.Storage = r.Client().Storage
	if r.via == viaInProcess {
		storage = r.Operations().Storage
	}
	plugs, err := hardware.InProcess(r.Node)
	r.must(err)
	volumes, err := cloud.Open(filepath.Join(r.dir, "cloud.json"), nodeID, plugs)
	r.must(err)
	d, err := driver.New(driver.Options{
		Version: "test", NodeID: nodeID, Storage: storage, StateDir: filepath.Join(r.dir, "volumes"), Cloud: volumes,
		DiskWait: diskWait,
		Logger:   slog.New(slog.NewTextHandler(ginkgo.GinkgoWriter, nil)),
	})
	r.must(err)
	l, err := net.Listen("unix", r.socket()) // before the first call, which then need not wait
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, l) }()
	conn := dial(r.t, "unix:"+r.socket())
	r.ControllerClient, r.NodeClient = csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	r.stop = func() {
		cancel()
		if err := errors.Join(<-ended, plugs.Close()); err != nil {
			r.t.Error(err)
		}
	}
}

// restartDriver ends the driver and starts it again.
func (r *rig) restartDriver() {
	r.stop()
	r.startDriver()
}

// volume is a volume with what kubelet keeps of it between its calls.
type volume struct {
	*csi.Volume
	capability *csi.VolumeCapability
	readOnly   bool
	secrets    map[string]string
	published  map[string]string // publish context
}

func mount(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

// create is what a claim leads to.
func (r *rig) create(name string, sizeBytes int64, parameters map[string]string) *volume {
	r.t.Helper()
	c := mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)
	response, err := r.CreateVolume(r.t.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: sizeBytes},
		VolumeCapabilities: []*csi.VolumeCapability{c}, Parameters: parameters,
	})
	r.must(err)
	return &volume{Volume: response.Volume, capability: c}
}

const (
	plugins = `\var\lib\kubelet\plugins\kubernetes.io\csi\` + driver.Name + `\`
	pods    = `C:\var\lib\kubelet\pods\`
)

// stagingPath is the volume's on the node, as kubelet spells it.
func (v *volume) stagingPath() string { return plugins + v.VolumeId + `\globalmount` }

// targetPath is where a pod sees the volume.
func (v *volume) targetPath(pod string) string {
	return pods + pod + `\volumes\kubernetes.io~csi\` + v.VolumeId + `\mount`
}

func (r *rig) attach(v *volume) error {
	response, err := r.ControllerPublishVolume(r.t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: v.VolumeId, NodeId: nodeID, VolumeCapability: v.capability, VolumeContext: v.VolumeContext,
		Readonly: v.readOnly,
	})
	v.published = response.GetPublishContext()
	return err
}

func (r *rig) detach(v *volume) error {
	_, err := r.ControllerUnpublishVolume(r.t.Context(),
		&csi.ControllerUnpublishVolumeRequest{VolumeId: v.VolumeId, NodeId: nodeID})
	return err
}

func (r *rig) stage(v *volume) error {
	_, err := r.NodeStageVolume(r.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.VolumeId, StagingTargetPath: v.stagingPath(), VolumeCapability: v.capability,
		VolumeContext: v.VolumeContext, PublishContext: v.published, Secrets: v.secrets,
	})
	return err
}

func (r *rig) unstage(v *volume) error {
	_, err := r.NodeUnstageVolume(r.t.Context(),
		&csi.NodeUnstageVolumeRequest{VolumeId: v.VolumeId, StagingTargetPath: v.stagingPath()})
	return err
}

func (r *rig) publish(v *volume, pod string) error {
	_, err := r.NodePublishVolume(r.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: v.VolumeId, StagingTargetPath: v.stagingPath(), TargetPath: v.targetPath(pod),
		VolumeCapability: v.capability,
		VolumeContext:    v.VolumeContext, PublishContext: v.published, Readonly: v.readOnly,
	})
	return err
}

func (r *rig) unpublish(v *volume, pod string) error {
	_, err := r.NodeUnpublishVolume(r.t.Context(),
		&csi.NodeUnpublishVolumeRequest{VolumeId: v.VolumeId, TargetPath: v.targetPath(pod)})
	return err
}

// start is what happens until a pod sees a volume, stop the way back. Kubelet repeats
// what it isn't sure of, so everything comes twice.
func (r *rig) start(v *volume, pod string) {
	r.t.Helper()
	for range 2 {
		r.must(r.attach(v))
	}
	r.up(v, pod)
}

func (r *rig) end(v *volume, pod string) {
	r.t.Helper()
	r.down(v, pod)
	for range 2 {
		r.must(r.detach(v))
	}
}

// diskOf returns the number of a volume's disk.
func (r *rig) diskOf(v *volume) csiproxy.DiskNumber {
	r.t.Helper()
	disks, err := r.Operations().Disk.ListDiskIDs(r.t.Context())
	r.must(err)
	for number, ids := range disks {
		if ids.SerialNumber == v.VolumeId {
			return number
		}
	}
	r.t.Fatalf("volume %s has no disk", v.VolumeId)
	return 0
}

// healthIs fails the test unless these are the reasons why a volume isn't well.
func (r *rig) healthIs(v *volume, want ...string) {
	r.t.Helper()
	var reasons []string
	response, err := r.NodeGetVolumeHealth(r.t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v.VolumeId})
	r.must(err)
	for _, entry := range response.VolumeHealth.HealthStatuses {
		reasons = append(reasons, entry.Status.String()+" "+entry.Reason)
	}
	if !slices.Equal(reasons, want) {
		r.t.Errorf("health %q, want %q", reasons, want)
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// refused fails the test unless err has the code.
func (r *rig) refused(what string, err error, want codes.Code) {
	r.t.Helper()
	if code := status.Code(err); code != want {
		r.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// write and read are what a pod does.
func (r *rig) write(v *volume, pod, text string) {
	r.t.Helper()
	r.must(r.WriteFile(v.targetPath(pod)+`\hello.txt`, []byte(text)))
}

func (r *rig) read(v *volume, pod, want string) {
	r.t.Helper()
	data, err := r.ReadFile(v.targetPath(pod) + `\hello.txt`)
	if err == nil && string(data) != want {
		err = fmt.Errorf("it reads %q", data)
	}
	r.must(err)
}
