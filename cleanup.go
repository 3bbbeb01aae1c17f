// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import "time"

// Leftovers are the result of CleanUp.
type Leftovers struct {
	// Mounts are in the order of ListVolumes.
	Mounts []Leftover `json:"leftovers"`
	// IncompleteReason names the places that couldn't be searched, and why. They may have further
	// leftovers. Empty if the list is complete.
	IncompleteReason string `json:"incomplete_reason"`
}

// Leftover is an unneeded mount, or the link of a ForgottenPod, found by CleanUp.
type Leftover struct {
	Mount
	// Removed is set if this call has removed the mount.
	Removed bool `json:"removed"`
	// Error says why the removal failed.
	Error string `json:"error,omitempty"`
}

// CheckVolumeRequest selects the volume to check. Only StagingPath must be set.
type CheckVolumeRequest struct {
	// StagingPath is the volume's mount point, or a link to the mount point.
	StagingPath string
	// SpotFix repairs the errors found by the scan. The repair takes the volume offline for a
	// moment and is refused while the volume is published.
	SpotFix bool
}

// CheckedVolume is the result of CheckVolume.
type CheckedVolume struct {
	// ErrorsFound is set if the scan has found errors.
	ErrorsFound bool `json:"errors_found"`
	// Fixed is set if a spot fix was made, and a second scan has found no errors.
	Fixed bool `json:"fixed"`
	// Duration is how long Windows has worked. Windows reports no progress meanwhile.
	Duration time.Duration `json:"-"`
	// Conditions are the volume's problems after the check, as in GetVolume.
	Conditions Conditions `json:"conditions"`
}
