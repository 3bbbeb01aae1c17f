// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import "testing"

// Sampled reports whether tests that try very many cases are to try some of them only: with
// -short, as make test has it. make test-resilience tries all.
func Sampled() bool { return testing.Short() }
