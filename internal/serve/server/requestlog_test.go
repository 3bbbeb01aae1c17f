// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	iscsiv1alpha2 "github.com/csi-proxy/csi-proxy/api/iscsi/v1alpha2"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	smbv1 "github.com/csi-proxy/csi-proxy/api/smb/v1"
)

// known is a connection of which the system tells who is at its other end.
type known struct{ net.Conn }

func (known) Caller() (uint32, string) { return 4711, `C:\driver\driver.exe` }

func TestRequestLog(t *testing.T) {
	r := start(t, func(_ context.Context, said string) (string, error) {
		switch said {
		case "lost":
			return "", status.Error(codes.NotFound, "get volume: no such disk")
		case "broken":
			return "", status.Error(codes.Internal, "the table is odd")
		}
		return said, nil
	})
	r.listener.wrap = func(c net.Conn) net.Conn { return known{c} }
	client := r.dial()
	if _, err := say(t.Context(), client, "hello"); err != nil {
		t.Fatal(err)
	}
	_, err := say(t.Context(), client, "lost")
	wantCode(t, err, codes.NotFound)
	_, err = say(t.Context(), client, "broken")
	wantCode(t, err, codes.Internal)
	err = client.Invoke(t.Context(), "/v9.Echo/Sing", &emptypb.Empty{}, &emptypb.Empty{})
	wantCode(t, err, codes.Unimplemented)
	r.end()

	const caller = ` pid=4711 program=C:\driver\driver.exe`
	for _, want := range []string{
		`level=DEBUG+2 msg=call method=/v1.Echo/Say request.value=hello code=OK duration=X` + caller + "\n",
		`level=WARN msg="call failed" method=/v1.Echo/Say request.value=lost code=NotFound duration=X` + caller + ` err="get volume: no such disk"` + "\n",
		`level=ERROR msg="call failed" method=/v1.Echo/Say request.value=broken code=Internal duration=X` + caller + ` err="the table is odd"` + "\n",
		`level=WARN msg="call failed" method=/v9.Echo/Sing code=Unimplemented duration=X` + caller + ` err="/v9.Echo/Sing: no such method at this endpoint"` + "\n",
	} {
		found := 0
		for _, line := range r.logged("") {
			if strings.HasSuffix(regexp.MustCompile(`duration=\S+`).ReplaceAllString(line, "duration=X"), want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d log lines with %s, want 1: %q", found, want, r.logged(""))
		}
	}
	if n := len(r.logged("no such disk")); n != 1 {
		t.Errorf("the error is logged %d times, want once", n)
	}
}

func TestLevelOfCall(t *testing.T) {
	for _, test := range []struct {
		method string
		code   codes.Code
		want   slog.Level
	}{
		{"/v1.Disk/Rescan", codes.OK, LevelRequest},
		{"/grpc.health.v1.Health/Check", codes.OK, slog.LevelDebug},
		{"/v1.Volume/GetVolumeIDFromTargetPath", codes.NotFound, slog.LevelDebug},
		{"/v1beta1.Volume/GetVolumeIDFromMount", codes.NotFound, slog.LevelDebug},
		{"/v1.Filesystem/IsSymlink", codes.NotFound, slog.LevelDebug},
		{"/v1alpha1.Filesystem/IsMountPoint", codes.NotFound, slog.LevelDebug},
		{"/v1.Filesystem/IsSymlink", codes.PermissionDenied, slog.LevelWarn},
		{"/v1.Disk/GetDiskStats", codes.NotFound, slog.LevelWarn},
		{"/v1.Disk/GetDiskStats", codes.Unavailable, slog.LevelWarn},
		{"/v1.Disk/GetDiskStats", codes.Internal, slog.LevelError},
		{"/v1.Disk/GetDiskStats", codes.Unknown, slog.LevelError},
	} {
		if got := levelOf(test.method, test.code); got != test.want {
			t.Errorf("%s %v: level %v, want %v", test.method, test.code, got, test.want)
		}
	}
}

func TestArguments(t *testing.T) {
	for want, message := range map[string]proto.Message{
		"request.diskNumber=0": &diskv1.PartitionDiskRequest{},
		`request.remotePath=\\\\server\\share request.localPath="" request.username=***stripped*** request.password=***stripped***`: &smbv1.NewSmbGlobalMappingRequest{
			RemotePath: `\\server\share`, Username: "Zaphod", Password: "xyzzy"},
		`request.targetPortal.targetAddress=10.0.0.1 request.targetPortal.targetPort=3260 request.iqn=iqn.x ` +
			`request.authType=MUTUAL_CHAP request.chapUsername=***stripped*** request.chapSecret=***stripped***`: &iscsiv1alpha2.ConnectTargetRequest{
			TargetPortal: &iscsiv1alpha2.TargetPortal{TargetAddress: "10.0.0.1", TargetPort: 3260}, Iqn: "iqn.x",
			ChapUsername: "Zaphod", ChapSecret: "xyzzy", AuthType: iscsiv1alpha2.AuthenticationType_MUTUAL_CHAP},
		`request.path=C:\\a request.data="3 bytes" request.user=""`: &simv1.WriteFileRequest{Path: `C:\a`, Data: []byte("abc")},
	} {
		var line bytes.Buffer
		slog.New(slog.NewTextHandler(&line, nil)).Info("call", "request", arguments(message.ProtoReflect()))
		if want := strings.ReplaceAll(want, `\\`, `\`) + "\n"; !strings.HasSuffix(line.String(), "msg=call "+want) {
			t.Errorf("got %s, want %s", &line, want)
		}
	}
}

// A log line is bounded, also for the name of a method that doesn't exist.
func TestLongMethod(t *testing.T) {
	r := start(t, upper)
	client := r.dial()
	for _, method := range []string{"/x/" + strings.Repeat("a", 15000), "/" + strings.Repeat("é", 5000) + "/m\xffn"} {
		err := client.Invoke(context.Background(), method, wrapperspb.String("x"), new(wrapperspb.StringValue))
		if status.Code(err) != codes.Unimplemented || len(err.Error()) > 2000 {
			t.Errorf("%d bytes: %.100v", len(err.Error()), err)
		}
	}
	client.Close()
	r.end()
	lines := r.logged("call failed")
	if len(lines) != 2 {
		t.Errorf("%d lines are logged", len(lines))
	}
	for _, line := range lines {
		if len(line) > 4096 {
			t.Errorf("a log line has %d bytes", len(line))
		}
	}
}
