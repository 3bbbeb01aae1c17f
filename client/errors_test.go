// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// An error is to a driver what it was to the daemon.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		sent error
		want csiproxy.Error
	}{
		"ours": {
			wire.ToStatus(&csiproxy.Error{Op: "GetDiskStats", Object: "disk 3", Err: winerr.ErrorAccessDenied}),
			csiproxy.Error{Op: "GetDiskStats", Object: "disk 3", Kind: csiproxy.ErrPermissionDenied, WindowsError: 5,
				Detail: winerr.ErrorAccessDenied.Error()},
		},
		"ours under another name": {
			wire.ToStatus(&csiproxy.Error{Op: "DiskStats", Object: "x", Kind: csiproxy.ErrNotFound, Detail: "not there"}),
			csiproxy.Error{Op: "GetDiskStats", Object: "x", Kind: csiproxy.ErrNotFound, Detail: "not there"},
		},
		"published": {
			status.Error(codes.Unknown, "error getting disk stats"),
			csiproxy.Error{Op: "GetDiskStats", Object: "disk 3", Kind: csiproxy.ErrInternal, Detail: "error getting disk stats"},
		},
		"published, naming the operation": {
			status.Error(codes.Unknown, "in GetDiskStats: error"),
			csiproxy.Error{Kind: csiproxy.ErrInternal, Detail: "in GetDiskStats: error"},
		},
		"deadline there": {
			status.Error(codes.DeadlineExceeded, "too late"),
			csiproxy.Error{Op: "GetDiskStats", Object: "disk 3", Kind: context.DeadlineExceeded, Detail: "too late"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, func(string, string) (string, error) { return "", test.sent })
			d.serve("disk v1beta3")
			disks := d.newClient(t).Disk
			_, err := disks.GetDiskStats(t.Context(), 3)
			wantKind(t, err, test.want.Kind)
			var got *csiproxy.Error
			ok := errors.As(err, &got)
			if !ok || *got != test.want {
				t.Errorf("error %#v, want %#v", err, test.want)
			}
		})
	}
}

// The caller's context rules, also while the daemon works.
func TestContextDuringCall(t *testing.T) {
	called, done := make(chan struct{}), make(chan struct{})
	d := newDaemon(t, func(string, string) (string, error) {
		close(called)
		<-done
		return `{}`, nil
	})
	d.serve("disk v1")
	defer close(done)
	disks := d.newClient(t).Disk
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-called
		cancel()
	}()
	wantKind(t, disks.Rescan(ctx), context.Canceled)
}

// What can't be encoded is the caller's fault, as it is in process.
func TestTextThatIsNotUTF8(t *testing.T) {
	d := newDaemon(t, emptyAnswer)
	d.serve("filesystem v1")
	files := d.newClient(t).Filesystem
	wantKind(t, files.Mkdir(t.Context(), "C:\\\xff"), csiproxy.ErrInvalidArgument)
}
