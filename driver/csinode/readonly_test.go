// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// With an access mode for readers, a share that the user may write isn't staged, and the pod of another one can't write.
func TestReadOnlyShare(t *testing.T) {
	credentials := csiproxy.SMBCredentials{Username: "me", Password: csiproxy.NewSecret("password")}
	for share, readOnly := range map[string]bool{`\\filer\open`: false, `\\filer\fixed`: true} {
		server, n := newServer(t, func(o *csinode.Options) {
			o.Source = func(context.Context, *csi.NodeStageVolumeRequest) (csinode.Source, error) {
				return csinode.Source{Share: share, Credentials: credentials, Privacy: csiproxy.PrivacyRequired}, nil
			}
		})
		n.AddSMBShare(simnode.SMBShare{Server: "filer", Name: share[len(`\\filer\`):], ReadOnly: readOnly})
		n.SetSMBUser("filer", credentials.Username, credentials.Password)
		readers := capability("")
		readers.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
		_, err := server.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
			VolumeId: "vol-1", StagingTargetPath: staging, VolumeCapability: readers,
		})
		if !readOnly {
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("a share that can be written: %v", err)
			}
			continue
		}
		must(t, err)
		must(t, publish(t, server, "pod-a", readers))
		if err := n.WriteFile(target("pod-a")+`\file`, []byte("x")); err == nil {
			t.Error("the pod writes")
		}
		must(t, unpublish(t, server, "pod-a"))
		must(t, unstage(t, server))
	}
}
