// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/test/bufconn"

	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
)

// refusing is a listener at which Windows refuses the daemon.
type refusing struct{ net.Listener }

func (refusing) Accept() (net.Conn, error) { return nil, fs.ErrPermission }

// A driver whose pipes refuse the daemon loses its own endpoints. At the node's endpoints, the daemon ends with the error.
func TestPipesOfDriverRefuseDaemon(t *testing.T) {
	for refused, ends := range map[string]bool{"": true, admin.Driver: true, "blue": false} {
		synctest.Test(t, func(t *testing.T) {
			var all daemons
			for _, driver := range []string{refused, "red"} {
				d, err := daemon.New(daemon.Config{Driver: driver, Operations: rpc.Operations{Filesystem: rpc.Operations(uncalled).Filesystem},
					Listen: func(string) (net.Listener, error) {
						l := bufconn.Listen(4096)
						if driver == refused {
							return refusing{l}, nil
						}
						return l, nil
					}})
				must(t, err)
				all = append(all, servedDriver{driver, d})
			}
			var log bytes.Buffer
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- all.serve(ctx, slog.New(slog.NewTextHandler(&log, nil))) }()
			synctest.Wait()
			if isServing := len(ended) == 0; isServing == ends {
				t.Errorf("when the pipes of %q refuse the daemon, the others are served: %v", refused, isServing)
			}
			stop()
			if err := <-ended; errors.Is(err, fs.ErrPermission) != ends {
				t.Errorf("when the pipes of %q refuse the daemon, it ends with %v", refused, err)
			}
			if isLogged := strings.Contains(log.String(), "driver="+refused+" err="); isLogged == ends {
				t.Errorf("when the pipes of %q refuse the daemon, the log says %q", refused, &log)
			}
		})
	}
}
