// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import "google.golang.org/grpc/codes"

var sizeChecks = []Check{
	{
		Name: "volume.stats", Group: "volume", Methods: []string{"GetVolumeStats"},
		Promise: "GetVolumeStats gives the total and the used bytes of the volume.",
		run: func(t *trial) {
			d := t.volumeDisk()
			a := t.do("GetVolumeStats", fields{"volume": d.volume})
			total, used := a.number("total"), a.number("used")
			size := t.do("GetDiskStats", fields{"disk": d.number}).number("total")
			t.want(0 <= used && used < total && total < size && total > size/2,
				"of a disk of %d bytes, the volume has %d, of them %d used", size, total, used)
		},
	},
	{
		Name: "volume.resize-nothing", Group: "volume", Methods: []string{"ResizeVolume"},
		Promise: "ResizeVolume to 0, which means as large as the disk allows, succeeds when there is nothing to do, as " +
			"right after mounting.",
		run: func(t *trial) {
			d := t.volumeDisk()
			t.mount(d)
			before := t.size(d)
			for range 2 {
				t.do("ResizeVolume", fields{"volume": d.volume, "size": 0})
			}
			after := t.size(d)
			t.want(after >= before, "the volume had %d bytes and has %d", before, after)
		},
	},
	{
		Name: "volume.resize-smaller", Group: "volume", Methods: []string{"ResizeVolume"},
		Promise: "ResizeVolume to less than the volume has succeeds and does nothing.",
		run: func(t *trial) {
			d := t.volumeDisk()
			before := t.size(d)
			t.do("ResizeVolume", fields{"volume": d.volume, "size": before / 2})
			after := t.size(d)
			t.want(before == after, "the volume had %d bytes and has %d", before, after)
		},
	},
	{
		Name: "volume.resize-negative", Group: "volume", Methods: []string{"ResizeVolume"}, Better: true,
		Promise: "ResizeVolume to a negative size is refused.",
		run: func(t *trial) {
			t.refused(codes.InvalidArgument, "ResizeVolume", fields{"volume": t.volumeDisk().volume, "size": -1})
		},
	},
	{
		Name: "volume.resize-disk-number", Group: "volume", Methods: []string{"ResizeVolume"}, Better: true,
		Promise: "ResizeVolume takes a decimal disk number, which Azure Disk's driver sends, for that disk's only data " +
			"volume.",
		run: func(t *trial) { t.do("ResizeVolume", fields{"volume": t.volumeDisk().number, "size": 0}) },
	},
}

func (t *trial) size(d *disk) int64 {
	return t.do("GetVolumeStats", fields{"volume": d.volume}).number("total")
}
