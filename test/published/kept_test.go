// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1"
)

// A driver keeps its connection for days. It serves again when the daemon does.
func TestKeptConnection(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	client := diskv1.NewDiskClient(n.mustDial("disk", "v1"))
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := client.ListDiskIDs(ctx, &diskv1.ListDiskIDsRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		must(t, n.restart())
	}
}
