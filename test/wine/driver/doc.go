// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver tests what the daemon sends to disks and volumes, with a driver in C
// that acts as a disk and its volume under Wine: see disk.c.
//
// The test is skipped unless CSI_PROXY_TEST_DRIVER names the driver that build has
// built.
package driver
