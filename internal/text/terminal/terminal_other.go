// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package terminal

import "os"

// obeys reports whether a terminal obeys sequences of characters.
func obeys(*os.File) bool { return true }
