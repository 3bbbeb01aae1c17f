// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const volumeA = `\\?\Volume{6a1c2d3e-0000-4000-8000-0123456789ab}\`

// Every class of errors has its code and reason, and is the same class again for
// the client, with the same text.
func TestErrorClasses(t *testing.T) {
	tests := []struct {
		kind   error
		code   codes.Code
		reason string
	}{
		{csiproxy.ErrInvalidArgument, codes.InvalidArgument, "INVALID_ARGUMENT"},
		{csiproxy.ErrNotFound, codes.NotFound, "NOT_FOUND"},
		{csiproxy.ErrAlreadyExists, codes.AlreadyExists, "ALREADY_EXISTS"},
		{csiproxy.ErrFailedPrecondition, codes.FailedPrecondition, "FAILED_PRECONDITION"},
		{csiproxy.ErrPermissionDenied, codes.PermissionDenied, "PERMISSION_DENIED"},
		{csiproxy.ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
		{csiproxy.ErrResourceExhausted, codes.ResourceExhausted, "RESOURCE_EXHAUSTED"},
		{csiproxy.ErrUnavailable, codes.Unavailable, "UNAVAILABLE"},
		{csiproxy.ErrUnimplemented, codes.Unimplemented, "UNIMPLEMENTED"},
		{csiproxy.ErrInternal, codes.Internal, "INTERNAL"},
		{context.Canceled, codes.Canceled, "CANCELED"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			original := &csiproxy.Error{Op: "MountVolume", Object: volumeA, Kind: test.kind, Err: winerr.Errno(32)}
			sent := status.Convert(ToStatus(original))
			if sent.Code() != test.code {
				t.Errorf("code = %v, want %v", sent.Code(), test.code)
			}
			wantInfo := &errdetails.ErrorInfo{
				Domain:   "csi-proxy",
				Reason:   test.reason,
				Metadata: map[string]string{"operation": "MountVolume", "object": volumeA, "windows_error": "32"},
			}
			if info := errorInfo(t, sent); !proto.Equal(info, wantInfo) {
				t.Errorf("detail = %v, want %v", info, wantInfo)
			}

			received := FromStatus(sent.Err())
			if !errors.Is(received, test.kind) {
				t.Errorf("received %v, want %v", received, test.kind)
			}
			want := &csiproxy.Error{
				Op: "MountVolume", Object: volumeA, Kind: test.kind,
				Detail: winerr.Errno(32).Error(), WindowsError: 32,
			}
			wantError(t, received, want)
			if received.Error() != original.Error() {
				t.Errorf("text became %q from %q", received, original)
			}
		})
	}
}

func errorInfo(t *testing.T, st *status.Status) *errdetails.ErrorInfo {
	t.Helper()
	if len(st.Details()) != 1 {
		t.Fatalf("details = %v, want one", st.Details())
	}
	info, ok := st.Details()[0].(*errdetails.ErrorInfo)
	if !ok {
		t.Fatalf("detail = %v, want an ErrorInfo", st.Details()[0])
	}
	return info
}

// wantError checks the fields of a *csiproxy.Error.
func wantError(t *testing.T, err error, want *csiproxy.Error) {
	t.Helper()
	got, ok := err.(*csiproxy.Error)
	if !ok {
		t.Fatalf("error is a %T: %v", err, err)
	}
	same := cmp.Comparer(func(a, b error) bool { return a == b })
	if diff := cmp.Diff(*want, *got, cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return name == ".Kind" || name == ".Err"
	}, same)); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// The class is found however the error is wrapped, and the text isn't changed.
func TestToStatusOfWrappedErrors(t *testing.T) {
	refused := &csiproxy.Error{Op: "FormatVolume", Kind: csiproxy.ErrFailedPrecondition, Detail: "it holds data"}
	tests := []struct {
		name string
		err  error
		want codes.Code
	}{
		{"wrapped", fmt.Errorf("try twice: %w", refused), codes.FailedPrecondition},
		{"joined", errors.Join(refused, errors.New("close handle")), codes.FailedPrecondition},
		{"wrapped cancellation", fmt.Errorf("wait for volume: %w", context.Canceled), codes.Canceled},
		{"deadline in an operation", &csiproxy.Error{Op: "Rescan", Err: context.DeadlineExceeded}, codes.DeadlineExceeded},
		{"kind over cause", &csiproxy.Error{Op: "Rescan", Kind: csiproxy.ErrUnavailable, Err: context.Canceled},
			codes.Unavailable},
		{"Windows error", &csiproxy.Error{Op: "IsSymlink", Err: winerr.ErrorSharingViolation}, codes.Unavailable},
		{"nothing known", errors.New("something"), codes.Internal},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			st := status.Convert(ToStatus(test.err))
			if st.Code() != test.want {
				t.Errorf("code = %v, want %v", st.Code(), test.want)
			}
			if st.Message() != test.err.Error() {
				t.Errorf("message = %q, want %q", st.Message(), test.err)
			}
			received := FromStatus(st.Err())
			if !errors.Is(received, csiproxy.KindOf(test.err)) {
				t.Errorf("received %v of class %v, want %v", received, csiproxy.KindOf(received), csiproxy.KindOf(test.err))
			}
			if received.Error() != test.err.Error() {
				t.Errorf("text became %q from %q", received, test.err)
			}
		})
	}
}

func TestToStatusLeavesAlone(t *testing.T) {
	if err := ToStatus(nil); err != nil {
		t.Errorf("ToStatus(nil) = %v", err)
	}
	st := status.Error(codes.Aborted, "by an interceptor")
	if got := ToStatus(st); got != st {
		t.Errorf("ToStatus(%v) = %v", st, got)
	}
}

// Texts that quote a hostile request can be sent, and both ends of them are kept.
func TestToStatusBoundsTexts(t *testing.T) {
	object := `c:\` + strings.Repeat("ä\xff", 1<<20)
	err := &csiproxy.Error{Op: "GetVolumeIDFromTargetPath", Object: object, Kind: csiproxy.ErrNotFound,
		Detail: "because it does not exist"}
	st := status.Convert(ToStatus(err))
	info := errorInfo(t, st)
	for _, text := range []string{st.Message(), info.Metadata["object"]} {
		if !utf8.ValidString(text) {
			t.Error("text isn't UTF-8")
		}
	}
	if size := proto.Size(st.Proto()); size > 8<<10 {
		t.Errorf("status has %d bytes", size)
	}
	if !strings.HasPrefix(st.Message(), `GetVolumeIDFromTargetPath c:\`) ||
		!strings.HasSuffix(st.Message(), "because it does not exist") {
		t.Errorf("message = %q", st.Message())
	}
}

func TestFromStatus(t *testing.T) {
	withInfo := func(code codes.Code, message string, info *errdetails.ErrorInfo) error {
		st, err := status.New(code, message).WithDetails(info)
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	plain := errors.New("dial failed")
	tests := []struct {
		name string
		err  error
		want *csiproxy.Error
	}{
		{
			"published daemon",
			status.Error(codes.Unknown, "error finding link target: because it does not exist"),
			&csiproxy.Error{Kind: csiproxy.ErrInternal, Detail: "error finding link target: because it does not exist"},
		},
		{
			"daemon without the service",
			status.Error(codes.Unimplemented, "unknown service v2alpha1.Volume"),
			&csiproxy.Error{Kind: csiproxy.ErrUnimplemented, Detail: "unknown service v2alpha1.Volume"},
		},
		{
			"code that isn't ours",
			status.Error(codes.DataLoss, "lost"),
			&csiproxy.Error{Kind: csiproxy.ErrInternal, Detail: "lost"},
		},
		{
			"deadline of the client",
			status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
			&csiproxy.Error{Kind: context.DeadlineExceeded, Detail: "context deadline exceeded"},
		},
		{
			"operation only",
			withInfo(codes.Unavailable, "Rescan: busy", &errdetails.ErrorInfo{
				Domain: ErrorDomain, Metadata: map[string]string{"operation": "Rescan"},
			}),
			&csiproxy.Error{Op: "Rescan", Kind: csiproxy.ErrUnavailable, Detail: "busy"},
		},
		{
			"message that begins otherwise",
			withInfo(codes.NotFound, "try twice: GetDiskStats disk 3: gone", &errdetails.ErrorInfo{
				Domain: ErrorDomain, Metadata: map[string]string{"operation": "GetDiskStats", "object": "disk 3",
					"windows_error": "55"},
			}),
			&csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: "try twice: GetDiskStats disk 3: gone", WindowsError: 55},
		},
		{
			"malformed number",
			withInfo(codes.NotFound, "GetDiskStats disk 3: gone", &errdetails.ErrorInfo{
				Domain: ErrorDomain, Metadata: map[string]string{"operation": "GetDiskStats", "object": "disk 3",
					"windows_error": "4294967297"},
			}),
			&csiproxy.Error{Op: "GetDiskStats", Object: "disk 3", Kind: csiproxy.ErrNotFound, Detail: "gone"},
		},
		{
			"detail of another domain",
			withInfo(codes.NotFound, "GetDiskStats disk 3: gone", &errdetails.ErrorInfo{
				Domain: "example.com", Metadata: map[string]string{"operation": "GetDiskStats", "object": "disk 3",
					"windows_error": "55"},
			}),
			&csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: "GetDiskStats disk 3: gone"},
		},
		{"no status", plain, &csiproxy.Error{Err: plain}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := FromStatus(test.err)
			wantError(t, err, test.want)
			if got, want := err.Error(), status.Convert(test.err).Message(); got != want {
				t.Errorf("text = %q, want %q", got, want)
			}
		})
	}
	if err := FromStatus(nil); err != nil {
		t.Errorf("FromStatus(nil) = %v", err)
	}
}

// Whatever another daemon answers, the client makes an error of it that says what it
// says, and that travels further as the same error.
func FuzzFromStatus(f *testing.F) {
	for _, err := range []error{
		errors.New("plain"),
		&csiproxy.Error{Op: "PartitionDisk", Object: "disk 1", Kind: csiproxy.ErrUnavailable, Detail: "busy",
			WindowsError: 170},
		&csiproxy.Error{Op: "Mkdir", Kind: csiproxy.ErrNotFound, Detail: strings.Repeat("x", 5000)},
	} {
		encoded, err := proto.Marshal(status.Convert(ToStatus(err)).Proto())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		sent := new(statuspb.Status)
		if proto.Unmarshal(encoded, sent) != nil || sent.GetCode() == 0 {
			return
		}
		err := FromStatus(status.FromProto(sent).Err())
		received, ok := err.(*csiproxy.Error)
		if !ok || csiproxy.KindOf(err) == nil {
			t.Fatalf("the error is %#v", err)
		}
		if err.Error() != sent.GetMessage() && !(sent.GetMessage() == "" && err.Error() == csiproxy.KindOf(err).Error()) {
			t.Errorf("the error says %q, the status %q", err, sent.GetMessage())
		}
		st := status.Convert(ToStatus(err))
		if !utf8.ValidString(st.Message()) || proto.Size(st.Proto()) > 5*maxWireText {
			t.Errorf("sent further it has %d bytes: %.100q", proto.Size(st.Proto()), st.Message())
		}
		again, ok := FromStatus(st.Err()).(*csiproxy.Error)
		if !ok || again.Kind != received.Kind || again.WindowsError != received.WindowsError {
			t.Errorf("sent further it is %#v, was %#v", again, received)
		}
	})
}
