// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestWindowsPath(t *testing.T) {
	for path, want := range map[string]string{
		`C:\pods\target`:   `C:\pods\target`,
		`C:\pods/target`:   `C:\pods\target`,
		`\var\lib\kubelet`: `\var\lib\kubelet`,
		`/var/lib/kubelet`: `\var\lib\kubelet`,
		`some/path`:        "",
		`C:relative`:       "",
		`C:`:               "",
		``:                 "",
	} {
		got, err := windowsPath("path", path)
		if got != want || (want == "") != (status.Code(err) == codes.InvalidArgument) {
			t.Errorf("%q: %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestSamePath(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{`C:\a\b`, `c:\A\B`, true},
		{`\a\b`, `C:\a\b`, true},
		{`C:\a\b`, `\a\b`, true},
		{`C:\a\b`, `D:\a\b`, false},
		{`\a\b`, `\a\c`, false},
	} {
		if got := samePath(test.a, test.b); got != test.want {
			t.Errorf("%s and %s: %t", test.a, test.b, got)
		}
	}
}
