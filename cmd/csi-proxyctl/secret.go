// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// secretFlag adds a flag to cmd that names the file with a secret, and returns a
// function that reads the secret. The flag's value isn't the secret itself, since
// everybody on the machine can see a command line, and shells record it.
//
// The line break at the end of the file isn't part of the secret.
func secretFlag(cmd *cobra.Command, flag, what string) func() (csiproxy.Secret, error) {
	file := cmd.Flags().String(flag, "", "`file` that holds "+what+"; - for standard input")
	completeFiles(cmd, flag)
	return func() (csiproxy.Secret, error) {
		text, err := readInput(cmd, *file)
		if err != nil {
			e := &csiproxy.Error{Op: "read", Object: what, Err: err}
			if cmd.Context().Err() == nil { // otherwise the command was interrupted
				e.Kind = csiproxy.ErrInvalidArgument
			}
			return csiproxy.Secret{}, e
		}
		line := strings.TrimSuffix(string(text), "\n")
		return csiproxy.NewSecret(strings.TrimSuffix(line, "\r")), nil
	}
}

// maxSecretBytes is more than any secret has. A file with more is another one, which may be larger than memory.
const maxSecretBytes = 4 << 10

// readInput reads a file, or standard input if its name is "-". It waits until all of
// the input has arrived or the command is interrupted.
func readInput(cmd *cobra.Command, file string) ([]byte, error) {
	type input struct {
		text []byte
		err  error
	}
	read := make(chan input, 1)
	go func() {
		from := cmd.InOrStdin()
		if file != "-" {
			f, err := os.Open(file)
			if err != nil {
				read <- input{err: err}
				return
			}
			defer f.Close()
			from = f
		}
		text, err := io.ReadAll(io.LimitReader(from, maxSecretBytes+1))
		if len(text) > maxSecretBytes {
			err = fmt.Errorf("it has more than %d bytes", maxSecretBytes)
		}
		read <- input{text, err}
	}()
	select {
	case <-cmd.Context().Done():
		return nil, cmd.Context().Err()
	case i := <-read:
		return i.text, i.err
	}
}
