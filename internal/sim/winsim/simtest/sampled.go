// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import "testing"

// Sampled reports whether tests that try very many cases are to try some of them only: with
// -short, and with the race detector, which makes them many times slower. make
// test-resilience tries all.
func Sampled() bool { return Race || testing.Short() }
