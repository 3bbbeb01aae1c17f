// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package pipe

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"
)

// listener is a socket's listener. Its connections know the process at their other end, as far as
// the system tells.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c.(*net.UnixConn)}, nil
}

func nobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// serviceOf returns the Windows service of a process.
func serviceOf(uint32) string { return "" }

// Server returns the id and the program of the process that listens at address. Unknown values are
// 0 or empty. Server connects for this purpose, and sends nothing. If the endpoint is free, the
// error is fs.ErrNotExist or, for a stale socket, the error of the connect.
func Server(ctx context.Context, address string) (process uint32, program string, err error) {
	c, err := Dial(ctx, address)
	if err != nil {
		return 0, "", err
	}
	defer c.Close() // nothing was sent
	process, program = callerOf(c.(*net.UnixConn))
	return process, program, nil
}

type conn struct{ *net.UnixConn }

// Caller returns the id and the program of the connected process, for the log. Unknown values are 0
// or empty.
func (c conn) Caller() (process uint32, program string) { return callerOf(c.UnixConn) }
