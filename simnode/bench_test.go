// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/simnode"
)

// BenchmarkStart measures the start of a node: most tests of drivers have one of their own.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		n, err := simnode.Start()
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
