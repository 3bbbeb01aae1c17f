// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// BenchmarkCall measures a call that changes nothing, and one that is committed to
// the state file, on a node with ten disks.
func BenchmarkCall(b *testing.B) {
	s, err := Open(Config{StateFile: filepath.Join(b.TempDir(), "state")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	for range 10 {
		if _, err := s.AttachDisk(DiskSpec{SizeBytes: gib}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.FileAttributes(b.Context(), kubelet); err != nil {
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
			if err := s.MkdirAll(fmt.Sprint(kubelet, `\pods\`, i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
