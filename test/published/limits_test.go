// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	filesystemv1 "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1"
)

// A client whose calls hang is refused more of them at once, with the name of the flag
// that says how many it may have. Another one is served.
func TestTooManyCalls(t *testing.T) {
	t.Parallel()
	n := newNode(t, "-max-calls-per-client=2")
	n.sim("delay", "--call", "NtCreateFile", "--object", "hangme", "--duration", time.Hour.String())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	greedy := filesystemv1.NewFilesystemClient(n.mustDial("filesystem", "v1"))
	exists := func(client filesystemv1.FilesystemClient, path string) error {
		_, err := client.PathExists(ctx, &filesystemv1.PathExistsRequest{Path: kubeletPath + path})
		return err
	}
	for _, path := range []string{`\hangme1\path`, `\hangme2\path`} {
		go func() { // again if it came while the calls below took the room
			for status.Code(exists(greedy, path)) == codes.ResourceExhausted {
			}
		}()
	}
	var err error
	for refused := 0; refused < 10; refused++ { // in a row: both hang
		if err = exists(greedy, ``); err == nil {
			refused = -1
		}
	}
	if text := status.Convert(err).Message(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(text, "-max-calls-per-client is 2") {
		t.Errorf("a third call gives %v", err)
	}
	if err := exists(filesystemv1.NewFilesystemClient(n.mustDial("filesystem", "v1")), ``); err != nil {
		t.Errorf("a call of another client gives %v", err)
	}
}
