// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package node

// Open returns the operations of the Windows node on which the program runs, for a driver in a
// HostProcess container or another program of the node. Open enables the required privileges for
// the whole process. On other systems the error is csiproxy.ErrUnimplemented; package simnode has a
// simulated node for tests.
//
// The program needs the rights of SYSTEM or of an administrator. A container must see the node's
// own file system, as with containerd 1.7 or later.
//
// A program should make one Node and keep it, because locks and the limits on calls to Windows
// belong to the Node. Two processes, such as a driver with this library and the daemon, may work on
// one node: calls changing the same disk, volume or share wait for each other. A call that has
// waited for ten seconds fails with csiproxy.ErrUnavailable.
func Open(o Options) (*Node, error) { return open(o) }
