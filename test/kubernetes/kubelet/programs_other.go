// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

// ownMounts fails: only Linux has mounts of a program's own.
func ownMounts(*exec.Cmd) error {
	return errors.New("kubelet's mounts can be kept apart only on Linux")
}
