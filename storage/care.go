// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import "time"

// Leftovers are what CleanUp has found.
type Leftovers struct {
	Mounts []CleanedUp // in the order of ListVolumes
	// Lacking says what couldn't be looked at, and why, so that there may be further
	// leftovers; empty if these are all.
	Lacking string
}

// CleanedUp is a leftover that CleanUp has found.
type CleanedUp struct {
	Mount
	// Removed is set if this call has removed it.
	Removed bool
	// Error says why it couldn't be removed.
	Error string
}

// CheckVolumeRequest says which volume is to be checked. Only Path must be set.
type CheckVolumeRequest struct {
	// Path is where the volume is mounted, or a link to that.
	Path string
	// SpotFix repairs what the scan has found. That takes the volume offline for a moment,
	// so it is refused while the volume is published.
	SpotFix bool
}

// CheckedVolume is what CheckVolume has found and done.
type CheckedVolume struct {
	// ErrorsFound is set if the scan has found errors.
	ErrorsFound bool
	// Fixed is set if a spot fix was made, and a second scan has found no errors.
	Fixed bool
	// Took is how long Windows has worked. It gives no progress meanwhile.
	Took time.Duration
}
