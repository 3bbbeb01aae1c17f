// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// The exit codes are the probes' verdicts: of a daemon that answers, and isn't ready.
func TestStatus(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the pipe may be a real daemon's")
	}
	dir, err := pipe.MkdirTemp("status")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	claimed, err := pipe.Claim(dir)
	must(t, err)
	l, err := claimed.Administrators().Listen(t.Context(), admin.EndpointName)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- admin.Serve(ctx, l, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != admin.Healthz {
				http.Error(w, "not ready: process 17 has the pipes", http.StatusServiceUnavailable)
			}
		}))
	}()
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"status"}, 6, "process 17 has the pipes"},
		{[]string{"status", "--alive"}, 0, "alive\n"},
		{[]string{"status", "--alive", "-o", "json"}, 0, `{"alive":true}`},
	} {
		var out bytes.Buffer
		code := run(t.Context(), append(test.args, "--endpoint-dir", dir), nil, &out, &out)
		if code != test.code || !strings.Contains(out.String(), test.want) {
			t.Errorf("%q: exit code %d, want %d: %s", test.args, code, test.code, &out)
		}
	}
	stop()
	must(t, <-ended)
	must(t, claimed.Close())
}
