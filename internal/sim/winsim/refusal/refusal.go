// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refusal says in words why a control call of a simulated node isn't done. The
// Windows error number of a refusal tells its class.
package refusal

import (
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

type refusal struct {
	text  string
	errno winerr.Errno
}

// New returns an error with the text alone, and errno for errors.Is.
func New(errno winerr.Errno, format string, a ...any) error {
	return refusal{fmt.Sprintf(format, a...), errno}
}

// NotFound is the refusal of a call on an object that isn't there.
func NotFound(what, name string) error {
	return New(winerr.ErrorNotFound, "there is no %s %s", what, name)
}

func (r refusal) Error() string { return r.text }

func (r refusal) Unwrap() error { return r.errno }
