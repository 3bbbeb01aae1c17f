// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

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

// The connection that NewClient of the published module leaves behind is closed by the daemon. Its
// owner never reads it, and works on over the other one.
func TestProofIsClosed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the daemon closes it after ten seconds")
	}
	n := newNode(t)
	o := n.operator()
	o.mkdir(kubeletPath + `\before`)
	for _, silent := range slices.Clone(n.silent) {
		must(t, silent.SetReadDeadline(time.Now().Add(patience)))
		if _, err := io.Copy(io.Discard, silent); err != nil { // until the daemon closes it
			t.Error(err)
		}
	}
	o.mkdir(kubeletPath + `\after`)
}
