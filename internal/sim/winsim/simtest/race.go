// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package simtest

// Race is set if the race detector is on.
const Race = true
