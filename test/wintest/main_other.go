// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "csi-proxy-wintest: it runs on Windows only")
	os.Exit(2)
}
