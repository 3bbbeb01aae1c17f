// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package csinode

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file until it is closed. It returns errLocked if another process has it locked.
func tryLock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}
