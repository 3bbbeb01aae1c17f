// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import "time"

// Leftovers are what CleanUp has found.
type Leftovers struct {
	// Mounts are in the order of ListVolumes.
	Mounts []Leftover `json:"leftovers"`
	// IncompleteReason says what couldn't be looked at, and why. There may be leftovers there.
	// It is empty if these are all.
	IncompleteReason string `json:"incomplete_reason"`
}

// Leftover is a mount that nobody needs any more, or the link of a ForgottenPod, as CleanUp has found it.
type Leftover struct {
	Mount
	// Removed is set if this call has removed it.
	Removed bool `json:"removed"`
	// Error says why it couldn't be removed.
	Error string `json:"error,omitempty"`
}

// CheckVolumeRequest says which volume is to be checked. Only StagingPath must be set.
type CheckVolumeRequest struct {
	// StagingPath is where the volume is mounted, or a link to that.
	StagingPath string
	// SpotFix repairs what the scan has found. That takes the volume offline for a moment,
	// so it is refused while the volume is published.
	SpotFix bool
}

// CheckedVolume is what CheckVolume has found and done.
type CheckedVolume struct {
	// ErrorsFound is set if the scan has found errors.
	ErrorsFound bool `json:"errors_found"`
	// Fixed is set if a spot fix was made, and a second scan has found no errors.
	Fixed bool `json:"fixed"`
	// Duration is how long Windows has worked. It gives no progress meanwhile.
	Duration time.Duration `json:"-"`
	// Conditions are what is wrong with the volume after the check, as of GetVolume.
	Conditions Conditions `json:"conditions"`
}
