// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import "time"

// Leftovers are what CleanUp has found.
type Leftovers struct {
	// Mounts are in the order of ListVolumes.
	Mounts []Leftover `json:"leftovers"`
	// IncompleteReason says what couldn't be looked at, and why. There may be leftovers there.
	// It is empty if these are all.
	IncompleteReason string `json:"incomplete_reason"`
}

// Leftover is a mount that nobody needs any more, as CleanUp has found it.
type Leftover struct {
	Mount
	// Removed is set if this call has removed it.
	Removed bool `json:"removed"`
	// Error says why it couldn't be removed.
	Error string `json:"error,omitempty"`
}

// MostMovedEntries is how many entries MoveAside lists.
const MostMovedEntries = 100

// MovedAside is what MoveAside has moved.
type MovedAside struct {
	// MovedTo is the directory that has the entries now, csi-proxy-moved-aside\TIME\PATH in the
	// kubelet directory, or in the working directory that the path is in. It is empty if there
	// was nothing to move.
	MovedTo string `json:"moved_to"`
	// Entries are in the directory, in its order: at most MostMovedEntries.
	Entries []MovedEntry `json:"entries"`
	// MoreEntries is set if the directory has more than these.
	MoreEntries bool `json:"more_entries"`
}

// MovedEntry is a file, directory or link that was moved.
type MovedEntry struct {
	// Name is its name in the directory.
	Name string `json:"name"`
	// Created is when it was made; zero if the file system doesn't tell.
	Created time.Time `json:"created,omitzero"`
}

// RefusedLogOn is a log-on to an SMB server that was refused. Which account it was isn't told.
type RefusedLogOn struct {
	// RemotePath is the root of the share that it was for.
	RemotePath string `json:"remote_path"`
	// WindowsError is the number of the Windows error, such as 1326.
	WindowsError uint32 `json:"windows_error"`
	// RefusedFor is how long ago the account was refused first.
	RefusedFor time.Duration `json:"-"`
	// HeldBackFor is how long calls with the same credentials still get the server's last
	// answer; 0 if the next one logs on.
	HeldBackFor time.Duration `json:"-"`
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
	ErrorsFound bool `json:"errors_found"`
	// Fixed is set if a spot fix was made, and a second scan has found no errors.
	Fixed bool `json:"fixed"`
	// Duration is how long Windows has worked. It gives no progress meanwhile.
	Duration time.Duration `json:"-"`
}
