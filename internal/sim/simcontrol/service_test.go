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
	"github.com/csi-proxy/csi-proxy/internal/rpc"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wire"
)

// start returns a new node and a client of its service.
func start(t *testing.T) (*winsim.System, simv1.SimClient) {
	t.Helper()
	sys, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(64 << 10)
	server := grpc.NewServer(grpc.UnaryInterceptor(rpc.ErrorInterceptor))
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
	return sys, simv1.NewSimClient(conn)
}

// must returns the response of a call that a test can't go on without.
func must[Response any](response Response, err error) Response {
	if err != nil {
		panic(err)
	}
	return response
}

// errorOf returns the error of a call.
func errorOf[Response any](_ Response, err error) error { return err }

// wantError checks the class of a call's error.
func wantError(t *testing.T, err, want error) {
	t.Helper()
	if err := wire.FromStatus(err); !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func TestDisks(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	attach := &simv1.AttachDiskRequest{
		SizeBytes: 1 << 30, SectorSize: 4096, SerialNumber: "vol1", Page83: "id1",
		Address: &simv1.ScsiAddress{Adapter: 1, Bus: 2, Target: 3, Lun: 4}, Offline: true,
	}
	number := must(sim.AttachDisk(ctx, attach)).DiskNumber
	if number == nil || *number != 1 {
		t.Fatalf("disk number %v, want 1", number)
	}
	want := &simv1.Disk{
		DiskNumber: number, State: simv1.DiskState_DISK_STATE_PRESENT, SizeBytes: 1 << 30, SeenBytes: 1 << 30,
		SectorSize: 4096, SerialNumber: "vol1", Address: attach.Address, Offline: true, OfflineReason: uint32(win.OfflinePolicy),
	}
	check := func(when string) {
		t.Helper()
		disks := must(sim.ListDisks(ctx, &simv1.ListDisksRequest{})).Disks
		if len(disks) != 2 || !disks[0].System {
			t.Fatalf("%s: disks %v, want the system's and another one", when, disks)
		}
		if diff := cmp.Diff(want, disks[1], protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("attached")

	must(sim.SetDiskAttributes(ctx, &simv1.SetDiskAttributesRequest{
		DiskNumber: 1, Offline: proto.Bool(false), ReadOnly: proto.Bool(true), Persist: true,
	}))
	want.Offline, want.ReadOnly, want.OfflineReason = false, true, 0
	check("attributes set")

	must(sim.GrowDisk(ctx, &simv1.GrowDiskRequest{DiskNumber: 1, SizeBytes: 2 << 30}))
	want.SizeBytes = 2 << 30
	check("grown")

	must(sim.DetachDisk(ctx, &simv1.DetachDiskRequest{DiskNumber: 1}))
	want.DiskNumber, want.State = nil, simv1.DiskState_DISK_STATE_DETACHED
	check("detached")

	again := &simv1.AttachDiskRequest{SerialNumber: "vol1", Address: attach.Address, NeedsRescan: true}
	if want.DiskNumber = must(sim.AttachDisk(ctx, again)).DiskNumber; want.DiskNumber == nil || *want.DiskNumber != 1 {
		t.Errorf("a disk that needs a rescan will have the number %v", want.DiskNumber)
	}
	want.State = simv1.DiskState_DISK_STATE_ATTACHED
	check("attached again")
	wantError(t, errorOf(sim.DeleteDisk(ctx, &simv1.DeleteDiskRequest{SerialNumber: "vol1"})), csiproxy.ErrUnavailable)
}

func TestDeleteDisk(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	must(sim.AttachDisk(ctx, &simv1.AttachDiskRequest{SizeBytes: 1 << 30, SerialNumber: "vol1"}))
	must(sim.DetachDisk(ctx, &simv1.DetachDiskRequest{DiskNumber: 1}))
	must(sim.DeleteDisk(ctx, &simv1.DeleteDiskRequest{SerialNumber: "vol1"}))
	if disks := must(sim.ListDisks(ctx, &simv1.ListDisksRequest{})).Disks; len(disks) != 1 {
		t.Errorf("disks %v, want the system's", disks)
	}
}

func TestPage83(t *testing.T) {
	sys, sim := start(t)
	must(sim.AttachDisk(t.Context(), &simv1.AttachDiskRequest{SizeBytes: 1 << 30, Page83: "id1"}))
	got := sys.Disks()[1].Spec.Page83
	want := []win.Identifier{{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte("id1")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identifiers (-want +got):\n%s", diff)
	}
}

func TestDiskBytes(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	must(sim.AttachDisk(ctx, &simv1.AttachDiskRequest{SizeBytes: 4 << 20}))
	planted := bytes.Repeat([]byte("LUKS"), simv1.MaxData/4)
	must(sim.WriteDisk(ctx, &simv1.WriteDiskRequest{DiskNumber: 1, Offset: 1 << 20, Data: planted}))
	read := must(sim.ReadDisk(ctx, &simv1.ReadDiskRequest{DiskNumber: 1, Offset: 1 << 20, Length: simv1.MaxData}))
	if !bytes.Equal(read.Data, planted) {
		t.Error("what is read isn't what was written")
	}

	file := filepath.Join(t.TempDir(), "disk")
	must(sim.ExportDisk(ctx, &simv1.ExportDiskRequest{DiskNumber: 1, File: file}))
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

func TestFiles(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	const dir = `C:\var\lib\kubelet\pods\uid`
	must(sim.MakeDirectory(ctx, &simv1.MakeDirectoryRequest{Path: dir}))
	must(sim.CreateSymlink(ctx, &simv1.CreateSymlinkRequest{SourcePath: dir, TargetPath: `C:\link`}))
	if got := must(sim.ReadLink(ctx, &simv1.ReadLinkRequest{Path: `C:\link`})).Target; got != dir {
		t.Errorf("the link leads to %q, want %s", got, dir)
	}
	must(sim.WriteFile(ctx, &simv1.WriteFileRequest{Path: `C:\link\a`, Data: []byte("text")}))
	must(sim.CreateSymlink(ctx, &simv1.CreateSymlinkRequest{
		SourcePath: dir + `\a`, TargetPath: `C:\filelink`, File: true,
	}))
	must(sim.Rename(ctx, &simv1.RenameRequest{OldPath: `C:\filelink`, NewPath: dir + `\b`}))
	must(sim.MakeDirectory(ctx, &simv1.MakeDirectoryRequest{Path: dir + `\c`}))
	must(sim.CreateSymlink(ctx, &simv1.CreateSymlinkRequest{SourcePath: `C:\`, TargetPath: dir + `\d`}))
	if data := must(sim.ReadFile(ctx, &simv1.ReadFileRequest{Path: dir + `\b`})).Data; string(data) != "text" {
		t.Errorf("file holds %q", data)
	}
	got := must(sim.ListDirectory(ctx, &simv1.ListDirectoryRequest{Path: dir})).Entries
	want := []*simv1.DirectoryEntry{{Name: "a"}, {Name: "b", Reparse: true}, {Name: "c", Directory: true}, {Name: "d", Directory: true, Reparse: true}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	must(sim.Remove(ctx, &simv1.RemoveRequest{Path: dir + `\a`}))
	_, err := sim.ReadFile(ctx, &simv1.ReadFileRequest{Path: dir + `\a`})
	wantError(t, err, csiproxy.ErrNotFound)
}

func TestLargeFile(t *testing.T) {
	sys, sim := start(t)
	largest := bytes.Repeat([]byte{7}, simv1.MaxData)
	must(sim.WriteFile(t.Context(), &simv1.WriteFileRequest{Path: `C:\a`, Data: largest}))
	if data := must(sim.ReadFile(t.Context(), &simv1.ReadFileRequest{Path: `C:\a`})).Data; !bytes.Equal(data, largest) {
		t.Errorf("the file has %d other bytes", len(data))
	}
	if err := sys.TruncateFile(`C:\a`, simv1.MaxData+1); err != nil {
		t.Fatal(err)
	}
	_, err := sim.ReadFile(t.Context(), &simv1.ReadFileRequest{Path: `C:\a`})
	wantError(t, err, csiproxy.ErrFailedPrecondition)
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
		must(sim.AddRule(ctx, &simv1.AddRuleRequest{Rule: rule}))
	}
	for i, want := range []error{nil, win.ErrorAccessDenied, nil} {
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

	rules := must(sim.ListRules(ctx, &simv1.ListRulesRequest{})).Rules
	if diff := cmp.Diff([]*simv1.Rule{fail, delay}, rules, protocmp.Transform()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	must(sim.ClearRules(ctx, &simv1.ClearRulesRequest{}))
	if rules := must(sim.ListRules(ctx, &simv1.ListRulesRequest{})).Rules; len(rules) != 0 {
		t.Errorf("after clearing there are %v", rules)
	}
	if err := sys.DeleteVolumeMountPoint(ctx, `C:\x\`); !errors.Is(err, win.ErrorFileNotFound) {
		t.Errorf("after clearing, the call gives %v", err)
	}

	must(sim.AddRule(ctx, &simv1.AddRuleRequest{Rule: &simv1.Rule{
		Call: "DeleteVolumeMountPointW", Uncancellable: true,
		Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Millisecond)},
	}}))
	impatient, cancel = context.WithCancel(ctx)
	sys.OnCall(func(winsim.Call) { cancel() }) // before the delay
	if err := sys.DeleteVolumeMountPoint(impatient, `C:\x\`); !errors.Is(err, win.ErrorFileNotFound) {
		t.Errorf("a call that nothing interrupts: %v", err)
	}
	sys.OnCall(nil)
	must(sim.ClearRules(ctx, &simv1.ClearRulesRequest{}))

	counts := must(sim.ListCalls(ctx, &simv1.ListCallsRequest{})).Counts
	if counts["FindFirstVolumeW"] != 3 || counts["DeleteVolumeMountPointW"] != 3 {
		t.Errorf("counts %v", counts)
	}
	if n, ok := counts["MSFT_Volume.Format"]; !ok || n != 0 {
		t.Errorf("the call that was never made has %d, %v", n, ok)
	}
}

func TestPower(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	write := func(text string) {
		t.Helper()
		must(sim.WriteFile(ctx, &simv1.WriteFileRequest{Path: `C:\a`, Data: []byte(text)}))
	}
	read := func() string {
		t.Helper()
		return string(must(sim.ReadFile(ctx, &simv1.ReadFileRequest{Path: `C:\a`})).Data)
	}
	write("first")
	must(sim.Reboot(ctx, &simv1.RebootRequest{}))
	if got := read(); got != "first" {
		t.Errorf("after a reboot the file holds %q", got)
	}
	if err := sys.FlushFile(`C:\a`); err != nil {
		t.Fatal(err)
	}
	write("second")
	must(sim.PowerLoss(ctx, &simv1.PowerLossRequest{}))
	if got := read(); got == "second" {
		t.Errorf("after a power loss the file holds %q", got)
	}
}

func TestErrors(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	existing := filepath.Join(t.TempDir(), "existing")
	if err := os.WriteFile(existing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	must(sim.AttachDisk(ctx, &simv1.AttachDiskRequest{SizeBytes: 1 << 30, SerialNumber: "taken"}))
	tooMuch := make([]byte, simv1.MaxData+1)

	for name, test := range map[string]struct {
		err, want error
	}{
		"no such disk":      {errorOf(sim.DetachDisk(ctx, &simv1.DetachDiskRequest{DiskNumber: 9})), csiproxy.ErrNotFound},
		"no disk number":    {errorOf(sim.DetachDisk(ctx, &simv1.DetachDiskRequest{DiskNumber: win.NoNumber})), csiproxy.ErrNotFound},
		"system disk":       {errorOf(sim.DetachDisk(ctx, &simv1.DetachDiskRequest{})), csiproxy.ErrPermissionDenied},
		"delete system":     {errorOf(sim.DeleteDisk(ctx, &simv1.DeleteDiskRequest{SerialNumber: "SIMSYSTEM"})), csiproxy.ErrUnavailable},
		"delete no disk":    {errorOf(sim.DeleteDisk(ctx, &simv1.DeleteDiskRequest{SerialNumber: "none"})), csiproxy.ErrNotFound},
		"delete no name":    {errorOf(sim.DeleteDisk(ctx, &simv1.DeleteDiskRequest{})), csiproxy.ErrNotFound},
		"no size":           {errorOf(sim.AttachDisk(ctx, &simv1.AttachDiskRequest{})), csiproxy.ErrInvalidArgument},
		"negative size":     {errorOf(sim.AttachDisk(ctx, &simv1.AttachDiskRequest{SizeBytes: -1 << 30})), csiproxy.ErrInvalidArgument},
		"address":           {errorOf(sim.AttachDisk(ctx, &simv1.AttachDiskRequest{SizeBytes: 1 << 30, Address: &simv1.ScsiAddress{Lun: 256}})), csiproxy.ErrInvalidArgument},
		"serial is taken":   {errorOf(sim.AttachDisk(ctx, &simv1.AttachDiskRequest{SizeBytes: 1 << 30, SerialNumber: "taken"})), csiproxy.ErrAlreadyExists},
		"shrinking":         {errorOf(sim.GrowDisk(ctx, &simv1.GrowDiskRequest{DiskNumber: 1, SizeBytes: 1 << 20})), csiproxy.ErrInvalidArgument},
		"nothing to change": {errorOf(sim.SetDiskAttributes(ctx, &simv1.SetDiskAttributesRequest{DiskNumber: 1})), csiproxy.ErrInvalidArgument},
		"long read":         {errorOf(sim.ReadDisk(ctx, &simv1.ReadDiskRequest{Length: simv1.MaxData + 1})), csiproxy.ErrInvalidArgument},
		"negative length":   {errorOf(sim.ReadDisk(ctx, &simv1.ReadDiskRequest{Length: -1})), csiproxy.ErrInvalidArgument},
		"negative offset":   {errorOf(sim.ReadDisk(ctx, &simv1.ReadDiskRequest{Offset: -1, Length: 1})), csiproxy.ErrInvalidArgument},
		"beyond the end":    {errorOf(sim.ReadDisk(ctx, &simv1.ReadDiskRequest{DiskNumber: 1, Offset: 1 << 30, Length: 1})), csiproxy.ErrInvalidArgument},
		"long write":        {errorOf(sim.WriteDisk(ctx, &simv1.WriteDiskRequest{DiskNumber: 1, Data: tooMuch})), csiproxy.ErrInvalidArgument},
		"write beyond":      {errorOf(sim.WriteDisk(ctx, &simv1.WriteDiskRequest{DiskNumber: 1, Offset: 1 << 30, Data: []byte{1}})), csiproxy.ErrInvalidArgument},
		"relative file":     {errorOf(sim.ExportDisk(ctx, &simv1.ExportDiskRequest{DiskNumber: 1, File: "disk"})), csiproxy.ErrInvalidArgument},
		"existing file":     {errorOf(sim.ExportDisk(ctx, &simv1.ExportDiskRequest{DiskNumber: 1, File: existing})), csiproxy.ErrAlreadyExists},
		"directory missing": {errorOf(sim.ExportDisk(ctx, &simv1.ExportDiskRequest{DiskNumber: 1, File: existing + "s/disk"})), csiproxy.ErrNotFound},
		"long file":         {errorOf(sim.WriteFile(ctx, &simv1.WriteFileRequest{Path: `C:\a`, Data: tooMuch})), csiproxy.ErrInvalidArgument},
		"no such file":      {errorOf(sim.ReadFile(ctx, &simv1.ReadFileRequest{Path: `C:\a`})), csiproxy.ErrNotFound},
		"no path":           {errorOf(sim.ReadFile(ctx, &simv1.ReadFileRequest{})), csiproxy.ErrInvalidArgument},
		"no rule":           {errorOf(sim.AddRule(ctx, &simv1.AddRuleRequest{})), csiproxy.ErrInvalidArgument},
		"unknown call":      {errorOf(sim.AddRule(ctx, &simv1.AddRuleRequest{Rule: &simv1.Rule{Call: "x", Effect: &simv1.Rule_WindowsError{WindowsError: 5}}})), csiproxy.ErrNotFound},
		"no error":          {errorOf(sim.AddRule(ctx, &simv1.AddRuleRequest{Rule: &simv1.Rule{Call: "FindFirstVolumeW", Effect: &simv1.Rule_WindowsError{}}})), csiproxy.ErrInvalidArgument},
		"no delay":          {errorOf(sim.AddRule(ctx, &simv1.AddRuleRequest{Rule: &simv1.Rule{Call: "FindFirstVolumeW", Effect: &simv1.Rule_DelayNs{DelayNs: -1}}})), csiproxy.ErrInvalidArgument},
		"negative count":    {errorOf(sim.AddRule(ctx, &simv1.AddRuleRequest{Rule: &simv1.Rule{Call: "FindFirstVolumeW", Count: -1, Effect: &simv1.Rule_DelayNs{DelayNs: 1}}})), csiproxy.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, test.err, test.want) })
	}
	if rules := must(sim.ListRules(ctx, &simv1.ListRulesRequest{})).Rules; len(rules) != 0 {
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
