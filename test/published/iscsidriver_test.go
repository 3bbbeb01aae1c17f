// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"fmt"

	"github.com/csi-proxy/csi-proxy/test/published/drivers"
)

// lun is a target with one disk, which a storage appliance makes for a volume. All
// are at one portal.
type lun struct{ iqn, serial string }

func newLUN(n *node, i int) storage {
	l := lun{fmt.Sprintf("iqn.2014-09.io.example:pvc-%d", i), fmt.Sprintf("lun-%d", i)}
	addTarget(n, l.iqn, nil, "", "")
	addLUN(n, l.iqn, fields{"size_bytes": int64(4 * gib), "serial_number": l.serial, "sector_size": uint32(4096),
		"offline": true})
	return l
}

func (l lun) driver(c drivers.Calls) drivers.Driver {
	return drivers.NewLocalISCSI(c, portal["target_address"].(string), 3260, l.iqn)
}

func (l lun) is(disk answer) bool { return disk.text("serial_number") == l.serial }

func (l lun) grow(n *node, size int64) {
	n.t.Helper()
	n.grow(uint32(n.disk(l.is).get("disk_number").Uint()), size)
}

func (l lun) wantReleased(n *node) {
	n.t.Helper()
	if d := n.disk(l.is); d.has("disk_number") {
		n.t.Errorf("after unstaging the target's disk is there, as number %v", d.get("disk_number"))
	}
}

func (l lun) remove(n *node) {
	n.t.Helper()
	n.simCall("RemoveIscsiTarget", fields{"iqn": l.iqn})
}
