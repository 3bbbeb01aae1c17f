// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package node

// Open returns the operations on the Windows node that the program runs on, for a
// driver in a HostProcess container or another program of the node. It enables the
// privileges that they need, for the whole process. Where the program isn't on
// Windows, it is csiproxy.ErrUnimplemented; package simnode has a simulated node.
//
// The program needs the rights of SYSTEM or of an administrator. A container must
// see the node's own file system: one with containerd 1.7 or later does.
//
// A program makes one Node and keeps it: locks, and the bound on operations, are
// within it. Two processes, such as a driver with this library and the daemon, may
// work on one node, since every operation looks before it does; only if both change
// the layout of one disk at one time does one of them get an error.
func Open(o Options) (*Node, error) { return open(o) }
