// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// client calls the service of a node.
type client struct {
	t    *testing.T
	conn grpc.ClientConnInterface
}

// try makes a call, and returns its error.
func (c client) try(method string, request ...proto.Message) error {
	_, err := call[simv1.Empty](c, method, request)
	return err
}

// do makes a call that a test can't go on without.
func (c client) do(method string, request ...proto.Message) {
	c.t.Helper()
	if err := c.try(method, request...); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
}

// get is do of a call with a response.
func get[Response any, Message interface {
	*Response
	proto.Message
}](c client, method string, request ...proto.Message) Message {
	c.t.Helper()
	response, err := call[Response, Message](c, method, request)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	return response
}

func call[Response any, Message interface {
	*Response
	proto.Message
}](c client, method string, request []proto.Message) (Message, error) {
	if len(request) == 0 {
		request = []proto.Message{&simv1.Empty{}}
	}
	return simv1.Call[Response, Message](c.t.Context(), c.conn, method, request[0])
}

// start returns a new node and a client of its service.
func start(t *testing.T) (*winsim.System, client) {
	t.Helper()
	sys, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(64 << 10)
	server := grpc.NewServer()
	New(sys).Register(server)
	go server.Serve(listener) // ends with the server
	conn, err := grpc.NewClient("passthrough:///"+simv1.EndpointName,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := conn.Close()
		server.Stop()
		if err := errors.Join(err, sys.Close()); err != nil {
			t.Error(err)
		}
	})
	return sys, client{t, conn}
}

// refused makes a call with each request, and wants an error of a class.
func (c client) refused(want error, method string, requests ...proto.Message) {
	c.t.Helper()
	for _, request := range requests {
		if err := wire.FromStatus(c.try(method, request)); !errors.Is(err, want) {
			c.t.Errorf("%s(%v): error %v, want %v", method, request, err, want)
		}
	}
}

func TestDiskBytes(t *testing.T) {
	_, sim := start(t)
	sim.do("AttachDisk", &simv1.DiskHardware{SizeBytes: 4 << 20})
	planted := bytes.Repeat([]byte("LUKS"), simv1.MaxData/4)
	sim.do("WriteDisk", &simv1.WriteDiskRequest{DiskNumber: 1, Offset: 1 << 20, Data: planted})
	read := get[simv1.Data](sim, "ReadDisk",
		&simv1.ReadDiskRequest{DiskNumber: 1, Offset: 1 << 20, Length: simv1.MaxData})
	if !bytes.Equal(read.Data, planted) {
		t.Error("what is read isn't what was written")
	}

	file := filepath.Join(t.TempDir(), "disk")
	sim.do("ExportDisk", &simv1.ExportDiskRequest{DiskNumber: 1, File: file})
	image, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 4<<20)
	copy(want[1<<20:], planted)
	if !bytes.Equal(image, want) {
		t.Error("the exported image isn't the disk")
	}
}

func TestLargeFile(t *testing.T) {
	sys, sim := start(t)
	largest := bytes.Repeat([]byte{7}, simv1.MaxData)
	sim.do("WriteFile", &simv1.WriteFileRequest{Path: `C:\a`, Data: largest})
	if data := get[simv1.Data](sim, "ReadFile", &simv1.Path{Path: `C:\a`}).Data; !bytes.Equal(data, largest) {
		t.Errorf("the file has %d other bytes", len(data))
	}
	if err := sys.WriteFile(`C:\a`, append(largest, 0)); err != nil {
		t.Fatal(err)
	}
	sim.do("Rename", &simv1.RenameRequest{OldPath: `C:\a`, NewPath: `C:\b`})
	sim.refused(csiproxy.ErrNotFound, "ReadFile", &simv1.Path{Path: `C:\a`})
	sim.refused(csiproxy.ErrFailedPrecondition, "ReadFile", &simv1.Path{Path: `C:\b`})
}

func TestRules(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	fail := &simv1.Rule{Call: "FindFirstVolumeW", Skip: 1, Count: 1, Effect: &simv1.Rule_WindowsError{WindowsError: 5}}
	delay := &simv1.Rule{
		Call: "DeleteVolumeMountPointW", Object: "C:",
		Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Hour)},
	}
	for _, rule := range []*simv1.Rule{fail, delay} {
		sim.do("AddRule", rule)
	}
	for i, want := range []error{nil, winerr.ErrorAccessDenied, nil} {
		if _, err := sys.FindVolumes(ctx); !errors.Is(err, want) {
			t.Errorf("call %d: error %v, want %v", i, err, want)
		}
	}
	impatient, cancel := context.WithCancel(ctx)
	sys.OnCall(func(winsim.Call) { cancel() }) // before the delay
	if err := sys.DeleteVolumeMountPoint(impatient, `C:\x\`); !errors.Is(err, context.Canceled) {
		t.Errorf("delayed call: %v", err)
	}
	sys.OnCall(nil)

	rules := get[simv1.ListRulesResponse](sim, "ListRules").Rules
	fail.Hits, delay.Hits = 1, 1
	if diff := cmp.Diff([]*simv1.Rule{fail, delay}, rules, protocmp.Transform()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	sim.do("ClearRules")
	if rules := get[simv1.ListRulesResponse](sim, "ListRules").Rules; len(rules) != 0 {
		t.Errorf("after clearing there are %v", rules)
	}
	if err := sys.DeleteVolumeMountPoint(ctx, `C:\x\`); !errors.Is(err, winerr.ErrorFileNotFound) {
		t.Errorf("after clearing, the call gives %v", err)
	}

	sim.do("AddRule", &simv1.Rule{
		Call: "DeleteVolumeMountPointW", Uncancellable: true,
		Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Millisecond)},
	})
	impatient, cancel = context.WithCancel(ctx)
	sys.OnCall(func(winsim.Call) { cancel() }) // before the delay
	if err := sys.DeleteVolumeMountPoint(impatient, `C:\x\`); !errors.Is(err, winerr.ErrorFileNotFound) {
		t.Errorf("a call that nothing interrupts: %v", err)
	}
	sys.OnCall(nil)
	sim.do("ClearRules")

	counts := get[simv1.ListCallsResponse](sim, "ListCalls").Counts
	if counts["FindFirstVolumeW"] != 3 || counts["DeleteVolumeMountPointW"] != 3 {
		t.Errorf("counts %v", counts)
	}
	if n, ok := counts["MSFT_Volume.Format"]; !ok || n != 0 {
		t.Errorf("the call that was never made has %d, %v", n, ok)
	}
}

func TestErrors(t *testing.T) {
	_, sim := start(t)
	existing := filepath.Join(t.TempDir(), "existing")
	if err := os.WriteFile(existing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sim.do("AttachDisk", &simv1.DiskHardware{SizeBytes: 1 << 30})
	tooMuch := make([]byte, simv1.MaxData+1)
	fails := func(number uint32) *simv1.Rule_WindowsError { return &simv1.Rule_WindowsError{WindowsError: number} }
	delays := func(ns int64) *simv1.Rule_DelayNs { return &simv1.Rule_DelayNs{DelayNs: ns} }

	sim.refused(csiproxy.ErrNotFound, "DetachDisk",
		&simv1.DiskNumber{DiskNumber: proto.Uint32(9)}, &simv1.DiskNumber{DiskNumber: proto.Uint32(win.NoNumber)})
	sim.refused(csiproxy.ErrPermissionDenied, "DetachDisk", &simv1.DiskNumber{}) // the system disk
	sim.refused(csiproxy.ErrInvalidArgument, "AttachDisk",
		&simv1.DiskHardware{}, &simv1.DiskHardware{SizeBytes: -1 << 30},
		&simv1.DiskHardware{SizeBytes: 1 << 30, Address: &simv1.ScsiAddress{Lun: 256}})
	sim.refused(csiproxy.ErrInvalidArgument, "CloneDisk",
		&simv1.CloneDiskRequest{DiskNumber: 1, Disk: &simv1.DiskHardware{Address: &simv1.ScsiAddress{Lun: 256}}})
	sim.refused(csiproxy.ErrInvalidArgument, "SetDiskAttributes",
		&simv1.SetDiskAttributesRequest{DiskNumber: 1},
		&simv1.SetDiskAttributesRequest{DiskNumber: 1, Offline: proto.Bool(false), OfflineReason: 6},
		&simv1.SetDiskAttributesRequest{DiskNumber: 1, Offline: proto.Bool(true), Persist: true, OfflineReason: 6},
		&simv1.SetDiskAttributesRequest{DiskNumber: 1, Offline: proto.Bool(true), ReadOnly: proto.Bool(true),
			OfflineReason: 6},
		&simv1.SetDiskAttributesRequest{DiskNumber: 1, Offline: proto.Bool(true), OfflineReason: 1 << 16})
	sim.refused(csiproxy.ErrInvalidArgument, "ReadDisk",
		&simv1.ReadDiskRequest{Length: simv1.MaxData + 1}, &simv1.ReadDiskRequest{Length: -1},
		&simv1.ReadDiskRequest{Offset: -1, Length: 1}, &simv1.ReadDiskRequest{DiskNumber: 1, Offset: 1 << 30, Length: 1})
	sim.refused(csiproxy.ErrInvalidArgument, "WriteDisk",
		&simv1.WriteDiskRequest{DiskNumber: 1, Data: tooMuch},
		&simv1.WriteDiskRequest{DiskNumber: 1, Offset: 1 << 30, Data: []byte{1}})
	sim.refused(csiproxy.ErrInvalidArgument, "ExportDisk", &simv1.ExportDiskRequest{DiskNumber: 1, File: "disk"})
	sim.refused(csiproxy.ErrInvalidArgument, "TakeDisk", &simv1.TakeDiskRequest{SerialNumber: "none", File: "disk"})
	sim.refused(csiproxy.ErrNotFound, "TakeDisk", &simv1.TakeDiskRequest{SerialNumber: "none", File: existing})
	sim.refused(csiproxy.ErrInvalidArgument, "GiveDisk", &simv1.DiskFile{File: "disk"})
	sim.refused(csiproxy.ErrNotFound, "GiveDisk", &simv1.DiskFile{File: existing + "s/disk"})
	sim.refused(csiproxy.ErrAlreadyExists, "ExportDisk", &simv1.ExportDiskRequest{DiskNumber: 1, File: existing})
	sim.refused(csiproxy.ErrNotFound, "ExportDisk", &simv1.ExportDiskRequest{DiskNumber: 1, File: existing + "s/disk"})
	sim.refused(csiproxy.ErrInvalidArgument, "WriteFile", &simv1.WriteFileRequest{Path: `C:\a`, Data: tooMuch})
	sim.refused(csiproxy.ErrInvalidArgument, "SetVolume",
		&simv1.SetVolumeRequest{Volume: `C:\`}, &simv1.SetVolumeRequest{Volume: `C:\`, Damage: 9})
	sim.refused(csiproxy.ErrNotFound, "AddRule", &simv1.Rule{Call: "x", Effect: fails(5)})
	sim.refused(csiproxy.ErrInvalidArgument, "AddRule",
		&simv1.Rule{}, &simv1.Rule{Call: "FindFirstVolumeW", Effect: fails(0)},
		&simv1.Rule{Call: "FindFirstVolumeW", Effect: delays(-1)},
		&simv1.Rule{Call: "FindFirstVolumeW", Count: -1, Effect: delays(1)})
	if rules := get[simv1.ListRulesResponse](sim, "ListRules").Rules; len(rules) != 0 {
		t.Errorf("there are the rules %v, none of which was accepted", rules)
	}
	if content, err := os.ReadFile(existing); err != nil || len(content) != 0 {
		t.Errorf("the existing file holds %d bytes (%v)", len(content), err)
	}
}

func TestDescriptors(t *testing.T) {
	files, err := New(nil).Files()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.FindDescriptorByName("csiproxy.sim.v1.Sim"); err != nil {
		t.Error(err)
	}
}
