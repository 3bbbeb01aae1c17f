// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package windows has black-box tests for Windows and Wine. They install the daemon as a
// service and call it through named pipes, with the client packages that shipped drivers
// are built with. These packages compile only for Windows.
//
//	go test ./...                 on Windows, as an administrator
//	../wine/test-windows          on Linux
//
// It is a module of its own. Its go.mod replaces gRPC, protobuf and go-winio by the versions
// that the published client required when it was released: an old client has to work with
// the daemon of today. Nothing of the product is imported, only the sequences of calls that
// shipped drivers make, and virtual disks, which need no libraries. Package published is the
// same on other systems, with a simulated node.
//
// The tests use the names of the daemon's pipes, so no other daemon may run on the machine.
//
// What each method does is tested on the simulated node. These tests show that all versions work
// through the pipes of a service.
package windows
