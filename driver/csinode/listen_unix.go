// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package csinode

import "syscall"

const connectionRefused = syscall.ECONNREFUSED
