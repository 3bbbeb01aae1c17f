// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os"
	"syscall"
	_ "unsafe" // for go:linkname
)

// Wine has no Unix sockets, by which kubelet calls plugins. So it calls them at the TCP address that
// it finds in the file of the socket. Kubernetes' code stays as it is: it is Go's net that asks
// Windows for something else. This needs the linker's flag -checklinkname=0.

//go:linkname wsaSocketFunc net.wsaSocketFunc
var wsaSocketFunc func(family, kind, protocol int32, info *syscall.WSAProtocolInfo,
	group, flags uint32) (syscall.Handle, error)

//go:linkname connectFunc net.connectFunc
var connectFunc func(syscall.Handle, syscall.Sockaddr) error

func init() {
	newSocket, connect := wsaSocketFunc, connectFunc
	if newSocket == nil || connect == nil {
		panic("Go's net has other names for these variables now: look in its hook_windows.go")
	}
	wsaSocketFunc = func(family, kind, protocol int32, info *syscall.WSAProtocolInfo,
		group, flags uint32) (syscall.Handle, error) {
		if family == syscall.AF_UNIX {
			family = syscall.AF_INET
		}
		return newSocket(family, kind, protocol, info, group, flags)
	}
	connectFunc = func(s syscall.Handle, to syscall.Sockaddr) error {
		if socket, ok := to.(*syscall.SockaddrUnix); ok {
			content, err := os.ReadFile(socket.Name)
			if err != nil {
				return err
			}
			address, err := netip.ParseAddrPort(string(content))
			if err != nil {
				return err
			}
			to = &syscall.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}
		}
		return connect(s, to)
	}
}
