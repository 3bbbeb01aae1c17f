// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import "golang.org/x/sys/windows"

const connectionRefused = windows.WSAECONNREFUSED
