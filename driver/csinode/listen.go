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

// ListenAndServe is [Listen] and [Server.Serve].
func (s *Server) ListenAndServe(ctx context.Context, path string) error {
	l, err := Listen(ctx, path)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	return s.Serve(ctx, l)
}

// Listen returns a listener at the Unix socket with a path, such as
// C:\var\lib\kubelet\plugins\disk.example.com\csi.sock. Listen makes the directory if it is missing, and
// replaces the socket of a killed driver. If another process serves the socket, or a file has the path,
// Listen changes nothing and returns an error.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	l, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("serve CSI at %s: %w", path, err)
	}
	return l, nil
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
		return errors.Join(errors.New("another process serves the socket; end that process first"), conn.Close())
	case !errors.Is(err, connectionRefused):
		return fmt.Errorf("can't tell whether another process serves the socket: %w", err)
	}
	return os.Remove(path)
}
