// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver proves what the daemon sends to disks and volumes, by a driver in C
// that plays one under Wine: see disk.c.
//
// The test is skipped unless CSI_PROXY_TEST_DRIVER names the driver that build has
// built.
package driver
