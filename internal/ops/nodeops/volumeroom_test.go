// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestRoom(t *testing.T) {
	const mebibyte, tebibyte = 1 << 20, 1 << 40
	const moveIt = "; move it, or delete it if nothing on it is needed"
	p := win.Partition{Number: 1, StartingOffset: mebibyte, Length: 100 * mebibyte}
	disk := win.DiskGeometryEx{BytesPerSector: 512, DiskSize: tebibyte}
	gpt := func(partitions ...win.Partition) win.DriveLayout {
		return win.DriveLayout{Style: win.StyleGPT, StartingUsableOffset: 34 * 512, UsableLength: tebibyte - 67*512,
			Partitions: append(partitions, p)}
	}
	const gptEnd = tebibyte - 33*512
	for _, c := range []struct {
		name   string
		layout win.DriveLayout
		disk   win.DiskGeometryEx
		want   room
	}{
		{"MBR", win.DriveLayout{Style: win.StyleMBR}, disk, room{length: tebibyte - mebibyte}},
		{"MBR of 3 TiB", win.DriveLayout{Style: win.StyleMBR}, win.DiskGeometryEx{BytesPerSector: 512, DiskSize: 3 * tebibyte},
			room{length: 2*tebibyte - mebibyte, free: tebibyte, blocked: ": a master boot record reaches " +
				"no further than 2199023255552 bytes; copy the data to a disk with a GPT"}},
		{"MBR of 3 TiB, 4 KiB sectors", win.DriveLayout{Style: win.StyleMBR},
			win.DiskGeometryEx{BytesPerSector: 4096, DiskSize: 3 * tebibyte}, room{length: 3*tebibyte - mebibyte}},
		{"GPT", gpt(), disk, room{length: tebibyte - 2*mebibyte}},
		{"before another partition", gpt(win.Partition{Number: 2, StartingOffset: 500*mebibyte + 512, Length: mebibyte}), disk,
			room{length: 499 * mebibyte, blocked: ": partition 2 lies behind it" + moveIt,
				free: gptEnd - 501*mebibyte - 512}},
		{"before two others, the last of which ends the disk", gpt(
			win.Partition{Number: 3, StartingOffset: 900 * mebibyte, Length: gptEnd - 900*mebibyte},
			win.Partition{Number: 2, StartingOffset: 500 * mebibyte, Length: mebibyte}), disk,
			room{length: 499 * mebibyte, blocked: ": partition 2 lies behind it" + moveIt}},
		{"behind the reserved one", gpt(win.Partition{Number: 2, StartingOffset: 34 * 512, Length: mebibyte / 2,
			Type: win.PartitionTypeMicrosoftReserved}), disk, room{length: tebibyte - 2*mebibyte}},
		{"behind another one", gpt(win.Partition{Number: 2, StartingOffset: 34 * 512, Length: mebibyte / 2,
			Type: win.PartitionTypeBasicData}), disk, room{length: tebibyte - 2*mebibyte}},
		{"between two", gpt(win.Partition{Number: 2, StartingOffset: 34 * 512, Length: mebibyte / 2},
			win.Partition{Number: 3, StartingOffset: 500 * mebibyte, Length: mebibyte}), disk,
			room{length: 499 * mebibyte, blocked: ": partition 3 lies behind it" + moveIt, free: gptEnd - 501*mebibyte}},
	} {
		if got := roomFor(&c.layout, p, c.disk); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
