// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wire"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/status"
)

// All of an error survives the trip through a server and its trailers.
func TestErrorOverTheWire(t *testing.T) {
	path := `c:\var\lib\kubelet\größe`
	node := &fakeNode{err: &csiproxy.Error{
		Op: "GetVolumeIDFromTargetPath", Object: path, Kind: csiproxy.ErrNotFound,
		Detail: "because it does not exist", Err: win.ErrorPathNotFound,
	}}
	served := endpoints(t, node, withErrors...)
	_, err := served["volume v1beta3"].call(t, "/v1beta3.Volume/GetVolumeIDFromTargetPath", `{"target_path": "c:\\t"}`)
	if got, want := status.Convert(err).Message(), node.err.Error(); got != want {
		t.Errorf("message = %q, want %q", got, want)
	}
	want := &csiproxy.Error{
		Op: "GetVolumeIDFromTargetPath", Object: path, Kind: csiproxy.ErrNotFound,
		Detail: "because it does not exist: " + win.ErrorPathNotFound.Error(), WindowsError: 3,
	}
	got, ok := wire.FromStatus(err).(*csiproxy.Error)
	if !ok {
		t.Fatalf("the error is %v", err)
	}
	if diff := cmp.Diff(*want, *got, cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
