// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
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
		{[]string{"status", "--ready"}, 6, "process 17 has the pipes"},
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

// A volume that hangs doesn't hang status, nor fail it: the daemon is ready all the same.
func TestStatusOfVolumesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		hangs := func(ctx context.Context) (csiproxy.VolumeList, error) {
			<-ctx.Done()
			return csiproxy.VolumeList{}, ctx.Err()
		}
		r, err := forgottenLinks(t.Context(), hangs)
		if took := time.Since(begun); err != nil || took != listTimeout || r.rows[0][0] != "ready" || len(r.warnings) != 1 ||
			!strings.Contains(r.warnings[0], context.DeadlineExceeded.Error()) {
			t.Errorf("%v after %v: %+v", err, took, r)
		}
		interrupted, stop := context.WithCancel(t.Context())
		stop()
		if r, err := forgottenLinks(interrupted, hangs); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v, %+v", err, r)
		}
	})
}

// Of many links the first are listed, and all are counted. Programs get them all.
func TestStatusOfManyLinks(t *testing.T) {
	r, err := forgottenLinks(t.Context(), func(context.Context) (list csiproxy.VolumeList, _ error) {
		for i := range 300 {
			list.Mounts = append(list.Mounts, csiproxy.Mount{Path: fmt.Sprintf(`C:\k\pods\uid-%d\volumes\kubernetes.io~csi\pv-%[1]d\mount`, i),
				ForgottenPod: fmt.Sprintf("uid-%d", i)}, csiproxy.Mount{Path: `C:\k\pods\other`})
		}
		return list, nil
	})
	must(t, err)
	var text bytes.Buffer
	must(t, r.printTable(&text, false))
	for _, want := range []string{"can't be unstaged: 300\n", "280 more", `uid-19   pv-19   csi-proxyctl storage unpublish C:\k\pods\uid-19\volumes`} {
		if !strings.Contains(text.String(), want) || strings.Contains(text.String(), "uid-20") || strings.Count(text.String(), "\n") != 25 {
			t.Errorf("%q isn't in\n%s", want, &text)
		}
	}
	var all bytes.Buffer
	must(t, (&program{stdout: &all, format: formatJSON}).print(r))
	if strings.Count(all.String(), `"command":"csi-proxyctl storage unpublish`) != 300 {
		t.Errorf("JSON: %s", &all)
	}
}
