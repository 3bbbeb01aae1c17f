// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package logfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openAppend doesn't wait for a reader, should the name be that of a FIFO. The log names paths
// and servers, so others don't read it.
func openAppend(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o640)
	if errors.Is(err, syscall.ENXIO) {
		err = fmt.Errorf("%s is a FIFO, not a regular file", name)
	}
	return file, err
}
