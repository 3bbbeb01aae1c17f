// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const staging = `\var\lib\kubelet\plugins\kubernetes.io\csi\disk.example.com\0123\globalmount`

// newServer returns a service on a simulated node, on which a disk is attached.
func newServer(t *testing.T, change func(*csinode.Options)) (*csinode.Server, *simnode.Node) {
	t.Helper()
	n := simnode.New(t)
	n.AttachDisk(simnode.Disk{Serial: "vol-1", SizeBytes: 1 << 30})
	o := csinode.Options{
		Name: "disk.example.com", NodeID: "node-1", Storage: n.Client().Storage, StateDir: t.TempDir(),
		Wait: time.Millisecond,
		Source: func(_ context.Context, r *csi.NodeStageVolumeRequest) (csinode.Source, error) {
			return csinode.Source{Disk: csiproxy.Selector{SerialNumber: r.VolumeId}}, nil
		},
	}
	if change != nil {
		change(&o)
	}
	s, err := csinode.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, n
}

func capability(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func stage(t *testing.T, s *csinode.Server, fsType string) error {
	_, err := s.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: staging, VolumeCapability: capability(fsType),
	})
	return err
}

func unstage(t *testing.T, s *csinode.Server) error {
	_, err := s.NodeUnstageVolume(t.Context(),
		&csi.NodeUnstageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: staging})
	return err
}

// target is where a pod has the volume, as kubelet spells it.
func target(pod string) string {
	return `C:\var\lib\kubelet\pods\` + pod + `\volumes\kubernetes.io~csi\pv\mount`
}

func publish(t *testing.T, s *csinode.Server, pod string, c *csi.VolumeCapability) error {
	_, err := s.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: staging, TargetPath: target(pod), VolumeCapability: c,
	})
	return err
}

func unpublish(t *testing.T, s *csinode.Server, pod string) error {
	_, err := s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: target(pod)})
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMissingOptions(t *testing.T) {
	for name, clear := range map[string]func(*csinode.Options){
		"Name": func(o *csinode.Options) { o.Name = "" }, "NodeID": func(o *csinode.Options) { o.NodeID = "" },
		"Storage": func(o *csinode.Options) { o.Storage = nil }, "Source": func(o *csinode.Options) { o.Source = nil },
		"StateDir": func(o *csinode.Options) { o.StateDir = "" },
		// The storage of a client that isn't there is missing, too.
		"Options.Storage": func(o *csinode.Options) { o.Storage = (*client.Storage)(nil) },
	} {
		o := csinode.Options{
			Name: "n", NodeID: "n", Storage: simnode.New(t).Client().Storage, StateDir: t.TempDir(),
			Source: func(context.Context, *csi.NodeStageVolumeRequest) (csinode.Source, error) {
				return csinode.Source{}, nil
			},
		}
		clear(&o)
		if _, err := csinode.New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// Kubelet must not restart the driver when only CSI Proxy is away: Probe says that it is ready.
func TestProbeWithoutCSIProxy(t *testing.T) {
	s, n := newServer(t, nil)
	n.StopDaemon()
	if probe, err := s.Probe(t.Context(), &csi.ProbeRequest{}); err != nil || !probe.Ready.GetValue() {
		t.Errorf("%v, %v", probe, err)
	}
}

func TestReFS(t *testing.T) {
	s, n := newServer(t, nil)
	must(t, stage(t, s, "refs"))
	v, err := n.Client().Storage.GetVolume(t.Context(), staging)
	if err != nil || v.FileSystem != string(csiproxy.ReFS) {
		t.Errorf("%+v, %v", v, err)
	}
	stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "vol-1", VolumePath: staging})
	if err != nil || stats.Usage[0].Total < 1<<29 {
		t.Errorf("%v, %v", stats, err)
	}
}

// events keeps what a driver would write to the cluster.
type events []string

func (e *events) Warn(_ context.Context, reason, message string) error {
	*e = append(*e, reason+": "+message)
	return nil
}

// Kubelet makes no event of an unstage that is refused, so the driver does, with the process
// that keeps the volume.
func TestEventOfARefusedUnstage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it waits for the process
		var got events
		s, n := newServer(t, func(o *csinode.Options) { o.Events = &got })
		must(t, stage(t, s, ""))
		must(t, n.WriteFile(`C:`+staging+`\open.txt`, []byte("x")))
		process := n.StartProcess(`C:\app\app.exe`, `C:`+staging+`\open.txt`)
		if err := unstage(t, s); err == nil {
			t.Error("a volume that a process uses was unstaged")
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], "VolumeUnstageRefused: volume vol-1 ") ||
			!strings.Contains(got[0], `C:\app\app.exe`) {
			t.Errorf("events: %q", got)
		}
		n.EndProcess(process)
		must(t, unstage(t, s))
		if len(got) != 1 {
			t.Errorf("events of a success: %q", got)
		}
	})
}

// A kubelet that ends in the middle of it doesn't ask again.
func TestUnstageGoesOnWithoutItsCaller(t *testing.T) {
	s, n := newServer(t, nil)
	must(t, stage(t, s, "ntfs"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	cancel()
	_, err := s.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: staging})
	must(t, err)
	if d := n.Disks()[1]; !d.Offline {
		t.Errorf("the disk is online: %+v", d)
	}

	must(t, stage(t, s, "ntfs"))
	ctx, cancel = context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err = s.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: staging})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after its deadline: %v", err)
	}
}

// A second call with another source of the same volume is refused while a pod has the volume; secrets
// don't count.
func TestAnotherSource(t *testing.T) {
	readOnly := false
	s, n := newServer(t, func(o *csinode.Options) {
		o.Source = func(_ context.Context, r *csi.NodeStageVolumeRequest) (csinode.Source, error) {
			return csinode.Source{Disk: csiproxy.Selector{SerialNumber: r.VolumeId}, ReadOnly: readOnly}, nil
		}
	})
	must(t, stage(t, s, ""))
	must(t, stage(t, s, ""))
	must(t, publish(t, s, "pod-a", capability("")))
	readOnly = true
	if err := stage(t, s, ""); status.Code(err) != codes.AlreadyExists {
		t.Errorf("staged read-only and writable: %v", err)
	}
	must(t, n.WriteFile(target("pod-a")+`\file`, nil))
}

// controller is one that offers what its list has.
type controller struct {
	csi.UnimplementedControllerServer
	offers []csi.ControllerServiceCapability_RPC_Type
}

func (c controller) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range c.offers {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

// A driver whose volumes can't grow doesn't offer it, by neither of its services.
func TestExpansion(t *testing.T) {
	const expand = csi.ControllerServiceCapability_RPC_EXPAND_VOLUME
	for name, test := range map[string]struct {
		change         func(*csinode.Options)
		onNode, plugin bool
	}{
		"without a Controller": {func(*csinode.Options) {}, true, false},
		"not":                  {func(o *csinode.Options) { o.NoExpansion = true }, false, false},
		"the Controller does": {func(o *csinode.Options) {
			o.Controller = controller{offers: []csi.ControllerServiceCapability_RPC_Type{expand}}
		}, true, true},
		"the Controller doesn't": {func(o *csinode.Options) { o.Controller = controller{} }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newServer(t, test.change)
			node, err := s.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
			must(t, err)
			if got := slices.ContainsFunc(node.Capabilities, func(c *csi.NodeServiceCapability) bool {
				return c.GetRpc().GetType() == csi.NodeServiceCapability_RPC_EXPAND_VOLUME
			}); got != test.onNode {
				t.Errorf("NodeGetCapabilities offers it: %t", got)
			}
			plugin, err := s.GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
			must(t, err)
			if got := slices.ContainsFunc(plugin.Capabilities, func(c *csi.PluginCapability) bool {
				return c.GetVolumeExpansion() != nil
			}); got != test.plugin {
				t.Errorf("GetPluginCapabilities offers it: %t", got)
			}
			_, err = s.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: staging})
			want := codes.NotFound
			if !test.onNode {
				want = codes.Unimplemented
			}
			if status.Code(err) != want {
				t.Errorf("NodeExpandVolume: %v, want %v", err, want)
			}
		})
	}
}

// Who calls a method without the interceptor gets its code, and the error in it.
func TestCodesOfMethods(t *testing.T) {
	s, n := newServer(t, nil)
	must(t, stage(t, s, ""))
	must(t, publish(t, s, "pod", capability("")))
	n.StopDaemon()
	_, stats := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "vol-1", VolumePath: staging})
	_, health := s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: "vol-1"})
	_, expand := s.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "vol-1", VolumePath: staging})
	for call, err := range map[string]error{
		"NodeStageVolume": stage(t, s, ""), "NodeUnstageVolume": unstage(t, s), "NodeGetVolumeStats": stats,
		"NodePublishVolume": publish(t, s, "pod", capability("")), "NodeUnpublishVolume": unpublish(t, s, "pod"),
		"NodeGetVolumeHealth": health, "NodeExpandVolume": expand,
	} {
		if status.Code(err) != codes.Unavailable || !errors.Is(err, csiproxy.ErrUnavailable) {
			t.Errorf("%s: %v, want Unavailable", call, err)
		}
	}
}

func TestInfo(t *testing.T) {
	s, _ := newServer(t, func(o *csinode.Options) {
		o.MaxVolumes, o.Topology = 25, map[string]string{"zone": "a"}
	})
	info, err := s.NodeGetInfo(t.Context(), nil)
	if err != nil || info.NodeId != "node-1" || info.MaxVolumesPerNode != 25 ||
		info.AccessibleTopology.GetSegments()["zone"] != "a" {
		t.Errorf("%v, %v", info, err)
	}
	capabilities, err := s.GetPluginCapabilities(t.Context(), nil)
	if err != nil || len(capabilities.Capabilities) != 1 {
		t.Errorf("%v, %v", capabilities, err)
	}
}
