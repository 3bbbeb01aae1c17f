// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What was asked before an interruption doesn't pass for the whole, and no file of it is left.
func TestInterruptedBundle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle.zip")
	for _, args := range [][]string{{"support-bundle", file}, {"support-bundle", "-"}, {"doctor"}} {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		var out, errs bytes.Buffer
		code := run(ctx, append([]string{"--endpoint-dir", t.TempDir()}, args...), nil, &out, &errs)
		if want := exitCode(context.Canceled); code != want {
			t.Errorf("%q ends with %d, not %d: %s", args, code, want, &errs)
		}
		if args[0] == "doctor" && out.Len() > 0 {
			t.Errorf("doctor finds:\n%s", &out)
		}
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}
