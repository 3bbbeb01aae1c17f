// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestFlagValue(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"-v=2", `-kubelet-path=D:\kubelet`}, `D:\kubelet`},
		{[]string{`--kubelet-path`, `D:\kubelet`, "-v=2"}, `D:\kubelet`},
		{[]string{`-kubelet-path=D:\a`, `-kubelet-path=D:\b`}, `D:\b`},
		{[]string{`kubelet-path=D:\a`}, ""},
		{[]string{`-kubelet-path`}, ""},
		{[]string{`-kubelet-paths=D:\a`}, ""},
	} {
		if got := flagValue(test.args, "kubelet-path"); got != test.want {
			t.Errorf("%q: %q, want %q", test.args, got, test.want)
		}
	}
}

func TestLogFile(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{`-log_file=C:\csi-proxy.log`}, ""}, // with -logtostderr
		{[]string{`-logtostderr=false`, `-log_file=C:\a.log`}, `C:\a.log`},
		{[]string{`--logtostderr=false`, `--log_dir`, `C:\logs`}, `C:\logs\csi-proxy.log`},
		{[]string{`-logtostderr=false`}, ""}, // in the service's directory of temporary files
	} {
		if got := logFile(test.args); got != test.want {
			t.Errorf("%q: %q, want %q", test.args, got, test.want)
		}
	}
}
