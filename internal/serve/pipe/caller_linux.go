// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// callerOf asks for the socket's SO_PEERCRED: see unix(7).
func callerOf(c *net.UnixConn) (process uint32, program string) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, ""
	}
	var peer *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		peer, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || credErr != nil || peer.Pid <= 0 {
		return 0, ""
	}
	// Readlink fails for an ended process, and for a process of another user.
	program, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", peer.Pid))
	return uint32(peer.Pid), program
}
