// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestMaximumLength(t *testing.T) {
	const mebibyte, tebibyte = 1 << 20, 1 << 40
	p := win.Partition{Number: 1, StartingOffset: mebibyte, Length: 100 * mebibyte}
	for _, c := range []struct {
		name   string
		layout win.DriveLayout
		disk   win.DiskGeometryEx
		want   int64
	}{
		{"MBR", win.DriveLayout{Style: win.StyleMBR}, win.DiskGeometryEx{BytesPerSector: 512, DiskSize: tebibyte},
			tebibyte - mebibyte},
		{"MBR of 3 TiB", win.DriveLayout{Style: win.StyleMBR},
			win.DiskGeometryEx{BytesPerSector: 512, DiskSize: 3 * tebibyte}, 2*tebibyte - mebibyte},
		{"MBR of 3 TiB, 4 KiB sectors", win.DriveLayout{Style: win.StyleMBR},
			win.DiskGeometryEx{BytesPerSector: 4096, DiskSize: 3 * tebibyte}, 3*tebibyte - mebibyte},
		{"GPT", win.DriveLayout{Style: win.StyleGPT, StartingUsableOffset: 34 * 512, UsableLength: tebibyte - 67*512},
			win.DiskGeometryEx{BytesPerSector: 512, DiskSize: tebibyte}, tebibyte - 2*mebibyte},
		{
			"before another partition",
			win.DriveLayout{Style: win.StyleGPT, StartingUsableOffset: 34 * 512, UsableLength: tebibyte - 67*512,
				Partitions: []win.Partition{{StartingOffset: 500*mebibyte + 512, Length: 1}}},
			win.DiskGeometryEx{BytesPerSector: 512, DiskSize: tebibyte}, 499 * mebibyte,
		},
	} {
		simtest.Want(t, c.name, maximumLength(&c.layout, p, c.disk), c.want)
	}
}
