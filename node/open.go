// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package node

// Open returns the operations on the Windows node that the program runs on, for a
// driver in a HostProcess container or another program of the node. It enables the
// privileges that they need, for the whole process. On another system the error is
// csiproxy.ErrUnimplemented; package simnode has a simulated node for tests.
//
// The program needs the rights of SYSTEM or of an administrator. A container must
// see the node's own file system, as it does with containerd 1.7 or later.
//
// A program makes one Node and keeps it, since locks and the limits on calls to
// Windows are within it. Two processes, such as a driver with this library and the
// daemon, may work on one node: calls that change the same disk, volume or share wait
// for each other. After ten seconds the call that waits fails with csiproxy.ErrUnavailable.
func Open(o Options) (*Node, error) { return open(o) }
