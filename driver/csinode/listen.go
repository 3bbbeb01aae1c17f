// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// ListenAndServe is [Server.Serve] at the Unix socket with a path, such as
// C:\var\lib\kubelet\plugins\disk.example.com\csi.sock. It makes the directory if it is missing, and
// removes the socket that a killed driver has left. If somebody serves the socket, or something
// else than a socket is there, it stays, and ListenAndServe returns an error.
func (s *Server) ListenAndServe(ctx context.Context, path string) error {
	l, err := listen(ctx, path)
	if err != nil {
		return errors.Join(fmt.Errorf("serve CSI at %s: %w", path, err), s.Close())
	}
	return s.Serve(ctx, l)
}

func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// removeStale removes a socket that no process serves: Windows and Linux then refuse the
// connection.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("the path is a file, and not a socket; remove it, or choose another path")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process serves it; end that one first"), conn.Close())
	case !errors.Is(err, connectionRefused):
		return fmt.Errorf("whether another process serves it isn't known: %w", err)
	}
	return os.Remove(path)
}
