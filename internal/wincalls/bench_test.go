// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"fmt"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// quick is Windows that answers at once.
type quick struct{ win.System }

func (quick) FileAttributes(context.Context, string) (win.FileAttributes, error) { return 0, nil }

// BenchmarkCall has the cost of a call through the bounds, without the call.
func BenchmarkCall(b *testing.B) {
	sys := New(quick{}, Options{})
	ctx, _ := WithTracker(WithClient(b.Context(), "client"))
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
			ctx, _ := WithTracker(WithClient(ctx, new(int)))
			for pb.Next() {
				if _, err := sys.FileAttributes(ctx, `C:\var\lib\kubelet`); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkLook has the cost of a look at a pool in which as many calls are under way as have room.
func BenchmarkLook(b *testing.B) {
	p := New(quick{}, Options{}).pools[files]
	for i := range maxOfPool / 4 * 3 {
		if _, err := p.enter(b.Context(), nil, win.CallRepairVolume, fmt.Sprint(i)); err != nil {
			b.Fatal(err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = true // so that a look begins no further ones, which would be in the way
	for b.Loop() {
		p.lookLocked()
	}
}
