// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"path/filepath"
	"testing"

	"github.com/csi-proxy/csi-proxy/test/windows/virtdisk"
)

// virtualDisk is a disk of this Windows for the time of a test.
type virtualDisk struct {
	*virtdisk.Disk
}

// newVirtualDisk attaches a new disk for the time of the test.
func newVirtualDisk(t testing.TB, size uint64, sectorSize uint32) *virtualDisk {
	t.Helper()
	d, err := virtdisk.New(filepath.Join(t.TempDir(), "disk.vhdx"), size, sectorSize)
	must(t, err)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &virtualDisk{d}
}

// grow makes the disk larger, as a cloud does. Its number may change. Where a disk
// can't grow, that says nothing of the daemon.
func (d *virtualDisk) grow(t testing.TB, size uint64) {
	t.Helper()
	way, err := d.Grow(size)
	if err != nil {
		t.Skipf("no way to grow a disk: %v", err)
	}
	t.Logf("the disk grew by %s", way)
}

func (d *virtualDisk) detach(t testing.TB) {
	t.Helper()
	must(t, d.Detach())
}
