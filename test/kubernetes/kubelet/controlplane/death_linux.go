// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "syscall"

// endWithUs has a program end when this process does, also when this one is killed.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
