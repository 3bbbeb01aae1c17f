// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import "syscall"

// endWithUs does nothing: only Linux has that.
func endWithUs(*syscall.SysProcAttr) {}
