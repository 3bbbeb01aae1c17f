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
func start(t *testing.T) (*winsim.System, grpc.ClientConnInterface) {
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
	return sys, conn
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
	attach := &simv1.DiskHardware{
		SizeBytes: 1 << 30, SectorSize: 4096, SerialNumber: "vol1", Page83: "id1",
		Address: &simv1.ScsiAddress{Adapter: 1, Bus: 2, Target: 3, Lun: 4}, Offline: true,
	}
	number := must(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk", attach)).DiskNumber
	if number == nil || *number != 1 {
		t.Fatalf("disk number %v, want 1", number)
	}
	want := &simv1.Disk{
		DiskNumber: number, State: simv1.DiskState_DISK_STATE_PRESENT, SizeBytes: 1 << 30, SeenBytes: 1 << 30,
		SectorSize: 4096, SerialNumber: "vol1", Address: attach.Address, Offline: true,
		OfflineReason: simv1.OfflineReason_OFFLINE_REASON_POLICY,
	}
	check := func(when string) {
		t.Helper()
		disks := must(simv1.Call[simv1.ListDisksResponse](ctx, sim, "ListDisks", &simv1.Empty{})).Disks
		if len(disks) != 2 || !disks[0].System {
			t.Fatalf("%s: disks %v, want the system's and another one", when, disks)
		}
		if diff := cmp.Diff(want, disks[1], protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("attached")

	must(simv1.Call[simv1.Empty](ctx, sim, "SetDiskAttributes", &simv1.SetDiskAttributesRequest{
		DiskNumber: 1, Offline: proto.Bool(false), ReadOnly: proto.Bool(true), Persist: true,
	}))
	want.Offline, want.ReadOnly, want.OfflineReason = false, true, 0
	check("attributes set")

	must(simv1.Call[simv1.Empty](ctx, sim, "GrowDisk", &simv1.GrowDiskRequest{DiskNumber: 1, SizeBytes: 2 << 30}))
	want.SizeBytes = 2 << 30
	check("grown")

	must(simv1.Call[simv1.Empty](ctx, sim, "DetachDisk", &simv1.DiskNumber{DiskNumber: proto.Uint32(1)}))
	want.DiskNumber, want.State = nil, simv1.DiskState_DISK_STATE_DETACHED
	check("detached")

	again := &simv1.DiskHardware{SerialNumber: "vol1", Address: attach.Address, NeedsRescan: true}
	if want.DiskNumber = must(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
		again)).DiskNumber; want.DiskNumber == nil || *want.DiskNumber != 1 {
		t.Errorf("a disk that needs a rescan will have the number %v", want.DiskNumber)
	}
	want.State = simv1.DiskState_DISK_STATE_ATTACHED
	check("attached again")
	wantError(t, errorOf(simv1.Call[simv1.Empty](ctx, sim, "DeleteDisk", &simv1.SerialNumber{SerialNumber: "vol1"})),
		csiproxy.ErrUnavailable)
}

func TestDeleteDisk(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	must(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
		&simv1.DiskHardware{SizeBytes: 1 << 30, SerialNumber: "vol1"}))
	must(simv1.Call[simv1.Empty](ctx, sim, "DetachDisk", &simv1.DiskNumber{DiskNumber: proto.Uint32(1)}))
	must(simv1.Call[simv1.Empty](ctx, sim, "DeleteDisk", &simv1.SerialNumber{SerialNumber: "vol1"}))
	if disks := must(simv1.Call[simv1.ListDisksResponse](ctx, sim, "ListDisks", &simv1.Empty{})).Disks; len(disks) != 1 {
		t.Errorf("disks %v, want the system's", disks)
	}
}

func TestPage83(t *testing.T) {
	sys, sim := start(t)
	must(simv1.Call[simv1.DiskNumber](t.Context(), sim, "AttachDisk",
		&simv1.DiskHardware{SizeBytes: 1 << 30, Page83: "id1"}))
	got := sys.Disks()[1].Spec.Page83
	want := []win.Identifier{{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte("id1")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identifiers (-want +got):\n%s", diff)
	}
}

func TestDiskBytes(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	must(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk", &simv1.DiskHardware{SizeBytes: 4 << 20}))
	planted := bytes.Repeat([]byte("LUKS"), simv1.MaxData/4)
	must(simv1.Call[simv1.Empty](ctx, sim, "WriteDisk",
		&simv1.WriteDiskRequest{DiskNumber: 1, Offset: 1 << 20, Data: planted}))
	read := must(simv1.Call[simv1.Data](ctx, sim, "ReadDisk",
		&simv1.ReadDiskRequest{DiskNumber: 1, Offset: 1 << 20, Length: simv1.MaxData}))
	if !bytes.Equal(read.Data, planted) {
		t.Error("what is read isn't what was written")
	}

	file := filepath.Join(t.TempDir(), "disk")
	must(simv1.Call[simv1.Empty](ctx, sim, "ExportDisk", &simv1.ExportDiskRequest{DiskNumber: 1, File: file}))
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
	must(simv1.Call[simv1.Empty](ctx, sim, "MakeDirectory", &simv1.Path{Path: dir}))
	must(simv1.Call[simv1.Empty](ctx, sim, "CreateSymlink", &simv1.CreateSymlinkRequest{SourcePath: dir, TargetPath: `C:\link`}))
	if got := must(simv1.Call[simv1.ReadLinkResponse](ctx, sim, "ReadLink", &simv1.Path{Path: `C:\link`})).Target; got != dir {
		t.Errorf("the link leads to %q, want %s", got, dir)
	}
	must(simv1.Call[simv1.Empty](ctx, sim, "WriteFile", &simv1.WriteFileRequest{Path: `C:\link\a`, Data: []byte("text")}))
	must(simv1.Call[simv1.Empty](ctx, sim, "CreateSymlink", &simv1.CreateSymlinkRequest{
		SourcePath: dir + `\a`, TargetPath: `C:\filelink`, File: true,
	}))
	must(simv1.Call[simv1.Empty](ctx, sim, "Rename", &simv1.RenameRequest{OldPath: `C:\filelink`, NewPath: dir + `\b`}))
	must(simv1.Call[simv1.Empty](ctx, sim, "MakeDirectory", &simv1.Path{Path: dir + `\c`}))
	must(simv1.Call[simv1.Empty](ctx, sim, "CreateSymlink", &simv1.CreateSymlinkRequest{SourcePath: `C:\`, TargetPath: dir + `\d`}))
	if data := must(simv1.Call[simv1.Data](ctx, sim, "ReadFile", &simv1.Path{Path: dir + `\b`})).Data; string(data) != "text" {
		t.Errorf("file holds %q", data)
	}
	got := must(simv1.Call[simv1.ListDirectoryResponse](ctx, sim, "ListDirectory", &simv1.Path{Path: dir})).Entries
	want := []*simv1.DirectoryEntry{{Name: "a"}, {Name: "b", Reparse: true}, {Name: "c", Directory: true},
		{Name: "d", Directory: true, Reparse: true}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	must(simv1.Call[simv1.Empty](ctx, sim, "Remove", &simv1.Path{Path: dir + `\a`}))
	_, err := simv1.Call[simv1.Data](ctx, sim, "ReadFile", &simv1.Path{Path: dir + `\a`})
	wantError(t, err, csiproxy.ErrNotFound)
}

func TestLargeFile(t *testing.T) {
	sys, sim := start(t)
	largest := bytes.Repeat([]byte{7}, simv1.MaxData)
	must(simv1.Call[simv1.Empty](t.Context(), sim, "WriteFile", &simv1.WriteFileRequest{Path: `C:\a`, Data: largest}))
	if data := must(simv1.Call[simv1.Data](t.Context(), sim, "ReadFile", &simv1.Path{Path: `C:\a`})).Data; !bytes.Equal(data, largest) {
		t.Errorf("the file has %d other bytes", len(data))
	}
	if err := sys.TruncateFile(`C:\a`, simv1.MaxData+1); err != nil {
		t.Fatal(err)
	}
	_, err := simv1.Call[simv1.Data](t.Context(), sim, "ReadFile", &simv1.Path{Path: `C:\a`})
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
		must(simv1.Call[simv1.Empty](ctx, sim, "AddRule", rule))
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

	rules := must(simv1.Call[simv1.ListRulesResponse](ctx, sim, "ListRules", &simv1.Empty{})).Rules
	if diff := cmp.Diff([]*simv1.Rule{fail, delay}, rules, protocmp.Transform()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	must(simv1.Call[simv1.Empty](ctx, sim, "ClearRules", &simv1.Empty{}))
	if rules := must(simv1.Call[simv1.ListRulesResponse](ctx, sim, "ListRules", &simv1.Empty{})).Rules; len(rules) != 0 {
		t.Errorf("after clearing there are %v", rules)
	}
	if err := sys.DeleteVolumeMountPoint(ctx, `C:\x\`); !errors.Is(err, win.ErrorFileNotFound) {
		t.Errorf("after clearing, the call gives %v", err)
	}

	must(simv1.Call[simv1.Empty](ctx, sim, "AddRule", &simv1.Rule{
		Call: "DeleteVolumeMountPointW", Uncancellable: true,
		Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Millisecond)},
	}))
	impatient, cancel = context.WithCancel(ctx)
	sys.OnCall(func(winsim.Call) { cancel() }) // before the delay
	if err := sys.DeleteVolumeMountPoint(impatient, `C:\x\`); !errors.Is(err, win.ErrorFileNotFound) {
		t.Errorf("a call that nothing interrupts: %v", err)
	}
	sys.OnCall(nil)
	must(simv1.Call[simv1.Empty](ctx, sim, "ClearRules", &simv1.Empty{}))

	counts := must(simv1.Call[simv1.ListCallsResponse](ctx, sim, "ListCalls", &simv1.Empty{})).Counts
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
		must(simv1.Call[simv1.Empty](ctx, sim, "WriteFile", &simv1.WriteFileRequest{Path: `C:\a`, Data: []byte(text)}))
	}
	read := func() string {
		t.Helper()
		return string(must(simv1.Call[simv1.Data](ctx, sim, "ReadFile", &simv1.Path{Path: `C:\a`})).Data)
	}
	write("first")
	must(simv1.Call[simv1.Empty](ctx, sim, "Reboot", &simv1.Empty{}))
	if got := read(); got != "first" {
		t.Errorf("after a reboot the file holds %q", got)
	}
	if err := sys.FlushFile(`C:\a`); err != nil {
		t.Fatal(err)
	}
	write("second")
	must(simv1.Call[simv1.Empty](ctx, sim, "PowerLoss", &simv1.Empty{}))
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
	must(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
		&simv1.DiskHardware{SizeBytes: 1 << 30, SerialNumber: "taken"}))
	tooMuch := make([]byte, simv1.MaxData+1)

	for name, test := range map[string]struct {
		err, want error
	}{
		"no such disk": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "DetachDisk",
			&simv1.DiskNumber{DiskNumber: proto.Uint32(9)})), csiproxy.ErrNotFound},
		"no disk number": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "DetachDisk",
			&simv1.DiskNumber{DiskNumber: proto.Uint32(win.NoNumber)})), csiproxy.ErrNotFound},
		"system disk": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "DetachDisk", &simv1.DiskNumber{})),
			csiproxy.ErrPermissionDenied},
		"delete system": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "DeleteDisk",
			&simv1.SerialNumber{SerialNumber: "SIMSYSTEM"})), csiproxy.ErrUnavailable},
		"delete no disk": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "DeleteDisk",
			&simv1.SerialNumber{SerialNumber: "none"})), csiproxy.ErrNotFound},
		"delete no name": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "DeleteDisk", &simv1.SerialNumber{})),
			csiproxy.ErrNotFound},
		"no size": {errorOf(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk", &simv1.DiskHardware{})),
			csiproxy.ErrInvalidArgument},
		"negative size": {errorOf(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
			&simv1.DiskHardware{SizeBytes: -1 << 30})), csiproxy.ErrInvalidArgument},
		"address": {errorOf(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
			&simv1.DiskHardware{SizeBytes: 1 << 30, Address: &simv1.ScsiAddress{Lun: 256}})), csiproxy.ErrInvalidArgument},
		"serial is taken": {errorOf(simv1.Call[simv1.DiskNumber](ctx, sim, "AttachDisk",
			&simv1.DiskHardware{SizeBytes: 1 << 30, SerialNumber: "taken"})), csiproxy.ErrAlreadyExists},
		"shrinking": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "GrowDisk",
			&simv1.GrowDiskRequest{DiskNumber: 1, SizeBytes: 1 << 20})), csiproxy.ErrInvalidArgument},
		"nothing to change": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "SetDiskAttributes",
			&simv1.SetDiskAttributesRequest{DiskNumber: 1})), csiproxy.ErrInvalidArgument},
		"long read": {errorOf(simv1.Call[simv1.Data](ctx, sim, "ReadDisk",
			&simv1.ReadDiskRequest{Length: simv1.MaxData + 1})), csiproxy.ErrInvalidArgument},
		"negative length": {errorOf(simv1.Call[simv1.Data](ctx, sim, "ReadDisk", &simv1.ReadDiskRequest{Length: -1})),
			csiproxy.ErrInvalidArgument},
		"negative offset": {errorOf(simv1.Call[simv1.Data](ctx, sim, "ReadDisk",
			&simv1.ReadDiskRequest{Offset: -1, Length: 1})), csiproxy.ErrInvalidArgument},
		"beyond the end": {errorOf(simv1.Call[simv1.Data](ctx, sim, "ReadDisk",
			&simv1.ReadDiskRequest{DiskNumber: 1, Offset: 1 << 30, Length: 1})), csiproxy.ErrInvalidArgument},
		"long write": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "WriteDisk",
			&simv1.WriteDiskRequest{DiskNumber: 1, Data: tooMuch})), csiproxy.ErrInvalidArgument},
		"write beyond": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "WriteDisk",
			&simv1.WriteDiskRequest{DiskNumber: 1, Offset: 1 << 30, Data: []byte{1}})), csiproxy.ErrInvalidArgument},
		"relative file": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "ExportDisk",
			&simv1.ExportDiskRequest{DiskNumber: 1, File: "disk"})), csiproxy.ErrInvalidArgument},
		"existing file": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "ExportDisk",
			&simv1.ExportDiskRequest{DiskNumber: 1, File: existing})), csiproxy.ErrAlreadyExists},
		"directory missing": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "ExportDisk",
			&simv1.ExportDiskRequest{DiskNumber: 1, File: existing + "s/disk"})), csiproxy.ErrNotFound},
		"long file":    {errorOf(simv1.Call[simv1.Empty](ctx, sim, "WriteFile", &simv1.WriteFileRequest{Path: `C:\a`, Data: tooMuch})), csiproxy.ErrInvalidArgument},
		"no such file": {errorOf(simv1.Call[simv1.Data](ctx, sim, "ReadFile", &simv1.Path{Path: `C:\a`})), csiproxy.ErrNotFound},
		"no path":      {errorOf(simv1.Call[simv1.Data](ctx, sim, "ReadFile", &simv1.Path{})), csiproxy.ErrInvalidArgument},
		"no rule":      {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddRule", &simv1.Rule{})), csiproxy.ErrInvalidArgument},
		"unknown call": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddRule",
			&simv1.Rule{Call: "x", Effect: &simv1.Rule_WindowsError{WindowsError: 5}})), csiproxy.ErrNotFound},
		"no error": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddRule",
			&simv1.Rule{Call: "FindFirstVolumeW", Effect: &simv1.Rule_WindowsError{}})), csiproxy.ErrInvalidArgument},
		"no delay": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddRule",
			&simv1.Rule{Call: "FindFirstVolumeW", Effect: &simv1.Rule_DelayNs{DelayNs: -1}})), csiproxy.ErrInvalidArgument},
		"negative count": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddRule",
			&simv1.Rule{Call: "FindFirstVolumeW", Count: -1, Effect: &simv1.Rule_DelayNs{DelayNs: 1}})),
			csiproxy.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, test.err, test.want) })
	}
	if rules := must(simv1.Call[simv1.ListRulesResponse](ctx, sim, "ListRules", &simv1.Empty{})).Rules; len(rules) != 0 {
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
