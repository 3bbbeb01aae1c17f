// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// BenchmarkCall measures a call that changes nothing, and one that is committed to
// the state file, on a node with ten disks.
func BenchmarkCall(b *testing.B) {
	s, err := winsim.Open(winsim.Config{StateFile: filepath.Join(b.TempDir(), "state")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	for range 10 {
		if _, err := s.AttachDisk(winsim.DiskSpec{SizeBytes: 1 << 30}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.FileAttributes(b.Context(), simtest.Kubelet); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			a := win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskAttributes(i%2) * win.DiskReadOnly}
			if err := s.SetDiskAttributes(disk.Number(1+i%10), a); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mkdir", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if err := s.MkdirAll(fmt.Sprint(simtest.Kubelet, `\pods\`, i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpenVolume measures the open of one volume among few and among many: what else
// is on the node must cost nothing.
func BenchmarkOpenVolume(b *testing.B) {
	for _, n := range []int{10, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := simtest.Open(b, winsim.Delays{})
			var names []string
			for range n / 10 {
				number := simtest.Attach(b, s, winsim.DiskSpec{SizeBytes: 20 << 30})
				simtest.Partition(b, s, number, 10)
				s.Settle()
				names = s.VolumesOfDisk(number)
			}
			name := strings.TrimSuffix(names[9], `\`)
			for b.Loop() {
				v, err := s.OpenDevice(b.Context(), name, win.AccessNone)
				if err != nil {
					b.Fatal(err)
				}
				if err := v.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
