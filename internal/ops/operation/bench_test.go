// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// quick is Windows that answers at once.
type quick struct{ win.System }

func (quick) FileAttributes(context.Context, string) (win.FileAttributes, error) { return 0, nil }

// BenchmarkCall has the cost of a call through the bounds, without the call.
func BenchmarkCall(b *testing.B) {
	sys := NewWindows(quick{}, nil, nil)
	ctx, _ := WithTracker(b.Context())
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := sys.FileAttributes(ctx, `C:\var\lib\kubelet`); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("beside others", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			ctx, _ := WithTracker(ctx)
			for pb.Next() {
				if _, err := sys.FileAttributes(ctx, `C:\var\lib\kubelet`); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}
