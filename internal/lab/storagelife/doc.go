// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagelife has a test of the life of volumes as CSI drivers lead it: by the storage
// API, through a daemon, over its pipes. It runs on Windows with virtual disks, and on the
// simulated node, whatever its switches say, so that on Windows a step fails only if Windows is
// another than any of these.
package storagelife
