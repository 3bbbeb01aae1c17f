// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestSecretFlag(t *testing.T) {
	for content, want := range map[string]string{
		"pass": "pass", "pass\n": "pass", "pass\r\n": "pass", "two\nlines\n\n": "two\nlines\n", " pass ": " pass ", "": "",
		"\r": "",
	} {
		file := filepath.Join(t.TempDir(), "secret")
		must(t, os.WriteFile(file, []byte(content), 0o600))
		for name, stdin := range map[string]string{file: "other", "-": content} {
			if got, err := readWith(t.Context(), name, strings.NewReader(stdin)); err != nil || got.Reveal() != want {
				t.Errorf("%q from %s: %q, %v, want %q", content, name, got.Reveal(), err, want)
			}
		}
	}
	if _, err := readWith(t.Context(), filepath.Join(t.TempDir(), "missing"), nil); !errors.Is(err,
		csiproxy.ErrInvalidArgument) {
		t.Errorf("no file: %v", err)
	}
	if _, err := readWith(t.Context(), "-", endless{}); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Errorf("more than a secret has: %v", err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	silent, stop := io.Pipe()
	defer stop.Close()
	if _, err := readWith(interrupted, "-", silent); csiproxy.KindOf(err) != context.Canceled {
		t.Errorf("nothing comes: %v", err)
	}
}

// readWith reads the secret of a command that runs with a flag and a standard input.
func readWith(ctx context.Context, file string, stdin io.Reader) (csiproxy.Secret, error) {
	cmd := &cobra.Command{}
	cmd.SetIn(stdin)
	cmd.SetContext(ctx)
	read := secretFlag(cmd, "password-file", "the password")
	if err := cmd.Flags().Set("password-file", file); err != nil {
		return csiproxy.Secret{}, err
	}
	return read()
}

// endless is a file that has no end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
