// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	"github.com/csi-proxy/csi-proxy/api"
)

// A client takes the newest version that it finds, also while the daemon starts.
func TestNewestVersionsListenFirst(t *testing.T) {
	var listened []string
	listen := func(name string) (net.Listener, error) {
		listened = append(listened, name)
		return bufconn.Listen(1 << 10), nil
	}
	serveTarget(t, listen, nil)
	for _, group := range api.Groups() {
		of := slices.DeleteFunc(slices.Clone(listened), func(name string) bool {
			return !strings.HasPrefix(name, "csi-proxy-"+group+"-")
		})
		var want []string
		for _, version := range api.Versions(group) {
			want = append(want, api.EndpointName(group, version))
		}
		if !slices.Equal(of, want) {
			t.Errorf("made are %q, want %q", of, want)
		}
	}
}
