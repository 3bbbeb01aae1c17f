// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import "time"

// WatchInterval is how often WatchDisks lists the disks for what Windows gives no notice of: the
// size, the state and the partitions of disks. Right after a notice it lists them more often.
const WatchInterval = 5 * time.Second

// DiskChanges is what has changed since WatchDisks' previous value, each list in the order of
// the disks' numbers. A disk that has changed several times in between is reported once, as it
// is now.
type DiskChanges struct {
	// Removed are disks that have left or don't match any more, as they were reported last. If
	// another disk has a removed one's number now, that one is in Added.
	Removed []Disk `json:"removed"`
	// Added are disks that weren't reported before, or have come back.
	Added []Disk `json:"added"`
	// Changed are disks that were reported before, as they are now. One that doesn't answer
	// any more is changed: it has an Error, what it said before of its hardware, and nothing
	// else.
	Changed []Disk `json:"changed"`
}
