// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"errors"
	"runtime"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestWords(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{State(0).String(), "unknown"},
		{Stopped.String(), "stopped"},
		{Paused.String(), "paused"},
		{State(8).String(), "unknown"},
		{StartType(0).String(), "boot"},
		{Disabled.String(), "disabled"},
		{StartType(5).String(), "unknown"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestRunNeedsTimeouts(t *testing.T) {
	for _, options := range []Options{
		{StartTimeout: time.Second},
		{StopTimeout: time.Second},
		{StartTimeout: -1, StopTimeout: time.Second},
	} {
		if err := Run(nil, options); err == nil || errors.Is(err, ErrNotManaged) {
			t.Errorf("%+v: %v", options, err)
		}
	}
}

func TestOtherSystems(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("this is Windows")
	}
	_, locked := Lock()
	for call, err := range map[string]error{
		"Run":  Run(nil, Options{StartTimeout: 1, StopTimeout: 1}),
		"Lock": locked,
	} {
		if !errors.Is(err, csiproxy.ErrUnimplemented) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func TestOnDrive(t *testing.T) {
	for path, want := range map[string]string{
		`\etc\kubernetes\logs\csi-proxy.log`: `C:\etc\kubernetes\logs\csi-proxy.log`,
		`/etc/csi-proxy.log`:                 `C:/etc/csi-proxy.log`,
		`D:\log`:                             `D:\log`,
		`\\server\share\log`:                 `\\server\share\log`,
		`csi-proxy.log`:                      `csi-proxy.log`,
		"":                                   "",
	} {
		if got := onDrive("C:", path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
