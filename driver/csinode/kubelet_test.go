// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// sent is a call of kubelet, or of a helper of the Controller, as "make test-kubelet" recorded it.
type sent struct {
	Scenario, Call, Patience string
	Code                     string // what kubelet got; "" if the call succeeded
	Request                  json.RawMessage
}

// What kubelet really sends leads to volumes that pods can use, and leaves nothing, also if each
// call comes twice. Kubelet v1.34, v1.36 and v1.37 send the same. test/kubernetes/kubelet/run -table … -update records it.
func TestAsKubeletCalls(t *testing.T) {
	const file = "testdata/kubelet.jsonl"
	content, err := os.ReadFile(file)
	must(t, err)
	scenarios := map[string][]sent{}
	for line := range bytes.Lines(content) {
		var s sent
		must(t, json.Unmarshal(line, &s))
		scenarios[s.Scenario] = append(scenarios[s.Scenario], s)
	}
	if len(scenarios) < 5 {
		t.Errorf("%s has only %d scenarios", file, len(scenarios))
	}
	for name, calls := range scenarios {
		for times, repeated := range map[int]string{1: "once", 2: "twice"} {
			t.Run(name+"/"+repeated, func(t *testing.T) { // a refused format is repeated for 30 seconds
				synctest.Test(t, func(t *testing.T) { newReplay(t).run(calls, times) })
			})
		}
	}
}

// replay is a node on which calls are made again.
type replay struct {
	*testing.T
	*simnode.Node
	server  *csinode.Server
	written bool // a pod has written its file
}

func newReplay(t *testing.T) *replay {
	r := &replay{T: t, Node: simnode.New(t)}
	var err error
	r.server, err = csinode.New(csinode.Options{
		Name: "disk.example.com", NodeID: "node-1", Storage: r.Client().Storage, StateDir: t.TempDir(), Wait: time.Second,
		Source: func(_ context.Context, r *csi.NodeStageVolumeRequest) (csinode.Source, error) {
			return csinode.Source{
				Disk: csiproxy.Selector{SerialNumber: r.VolumeId}, ReadOnly: r.PublishContext["readOnly"] == "true",
			}, nil
		},
	})
	must(t, err)
	return r
}

func (r *replay) run(calls []sent, times int) {
	for _, c := range calls {
		if r.hardware(c) {
			continue
		}
		const accessDenied = 5
		if c.Code == codes.PermissionDenied.String() { // in "refused": Windows doesn't format the disk
			r.Fail("MSFT_Volume.Format", accessDenied, 0)
		}
		var request proto.Message
		for range times {
			request = r.call(c)
		}
		if publish, ok := request.(*csi.NodePublishVolumeRequest); ok {
			r.use(publish.TargetPath)
		}
	}
	published := slices.ContainsFunc(calls, func(c sent) bool { return c.Call == "NodePublishVolume" })
	if r.written != published {
		r.Errorf("a pod has used the volume: %t", r.written)
	}
	if n := len(r.Volumes()); n != 1 {
		r.Errorf("after the last call there are %d volumes, not only that of Windows", n)
	}
}

// call makes a call of kubelet, and returns its request.
func (r *replay) call(c sent) (request proto.Message) {
	i := slices.IndexFunc(csi.Node_ServiceDesc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == c.Call })
	if i < 0 {
		r.Fatalf("%s is no call of the Node service", c.Call)
	}
	patience, err := time.ParseDuration(c.Patience)
	must(r.T, err)
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	decode := func(m any) error {
		request = m.(proto.Message)
		return protojson.Unmarshal(c.Request, request)
	}
	_, err = csi.Node_ServiceDesc.Methods[i].Handler(r.server, ctx, decode, r.server.Intercept)
	want := c.Code
	if want == "" || want == codes.Unavailable.String() { // in "in-doubt" the answer was lost
		want = codes.OK.String()
	}
	if got := status.Code(err); got.String() != want {
		r.Fatalf("%s: %v, %v, and not %s", c.Call, got, err, want)
	}
	return request
}

// use does what a pod does with its volume: the first writes a file, and all see it.
func (r *replay) use(target string) {
	file := target + `\data`
	if !r.written {
		must(r.T, r.WriteFile(file, []byte("kept")))
		r.written = true
	}
	if data, err := r.ReadFile(file); err != nil || string(data) != "kept" {
		r.Errorf("the pod at %s sees %q, %v", target, data, err)
	}
}

// hardware does what the cloud does in a call of the Controller, and reports whether it is one. A
// disk must be offline before it leaves.
func (r *replay) hardware(c sent) bool {
	const serial = "volume-1"
	find := func() simnode.DiskInfo {
		disks := r.Disks()
		return disks[slices.IndexFunc(disks, func(d simnode.DiskInfo) bool { return d.Serial == serial })]
	}
	switch c.Call {
	case "ControllerPublishVolume":
		r.AttachDisk(simnode.Disk{Serial: serial, SizeBytes: 1 << 30})
	case "ControllerExpandVolume":
		var request csi.ControllerExpandVolumeRequest
		must(r.T, protojson.Unmarshal(c.Request, &request))
		r.GrowDisk(find().Number, request.CapacityRange.RequiredBytes)
	case "ControllerUnpublishVolume":
		d := find()
		if !d.Offline {
			r.Errorf("the disk is detached while it is online: %+v", d)
		}
		r.DetachDisk(d.Number)
	case "DeleteVolume":
		r.DeleteDisk(serial)
	default:
		return false
	}
	return true
}
