// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package windows is a black-box proof on Windows, or on Wine: its tests install
// the daemon as a service and call it through named pipes with the client packages
// that shipped drivers are built with, which compile for Windows only.
//
//	go test ./...                 on Windows, as an administrator
//	../wine/test-windows          on Linux
//
// It is a module of its own, and its go.mod asks for no newer gRPC and protobuf
// than the published module did when it was released. Nothing of the product is
// imported. The tests take the names of the daemon's pipes, so no other daemon may
// run on the machine.
//
// What each version does in full, and how it fails, is proven on Linux by
// test/published, call by call. Here it is shown that all of it passes through the
// pipes of a service.
package windows
