// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package published is a black-box proof: its tests drive the daemon, as a process
// of its own on a simulated node, with the client module that shipped drivers are
// built with.
//
// The published module gives the messages of all groups of a version one proto
// package ("v1"). No two of them have the same name, and each file is registered
// under a path of its own, so one process can hold all versions, and no setting of
// the protobuf runtime is needed for it.
//
// The tests build the daemon, with the race detector if they have it themselves, or
// take the one that CSI_PROXY_BIN names. The go command doesn't see that the program
// changed and may repeat an old result: run it with -count=1. With -short, the tests
// take samples where they otherwise try everything.
package published
