// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package virtdisk makes disks for tests on Windows: VHDX files that virtdisk.dll
// attaches. It needs an administrator, but no Hyper-V.
//
// The module test/windows imports it, with other libraries than the product's, so it needs only
// golang.org/x/sys.
//
// https://learn.microsoft.com/windows/win32/api/virtdisk/
package virtdisk
