// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import "time"

// WatchInterval is how often WatchDisks lists the disks to find changes without notices from
// Windows: the size, the state and the partitions of disks. Right after a notice, WatchDisks lists
// them more often.
const WatchInterval = 5 * time.Second

// DiskChanges are the changes since WatchDisks' previous value, each list in the order of the
// disks' numbers. A disk with several changes in between is reported once, in its present state.
type DiskChanges struct {
	// Removed are disks that have left or no longer match, as last reported. If another disk now
	// has the number of a removed disk, the other disk is in Added.
	Removed []Disk `json:"removed"`
	// Added are new disks, and disks that have come back.
	Added []Disk `json:"added"`
	// Changed are disks reported before, in their present state. A disk that has become silent
	// counts as changed: only the Error and the hardware properties reported before are set.
	Changed []Disk `json:"changed"`
}
