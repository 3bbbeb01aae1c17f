// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"log/slog"

	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
)

// DefaultFinder returns the finder for a node with kubelet's directory as the only allowed
// directory.
func DefaultFinder(sys System) *Finder {
	return NewFinder(NewSharedFinder(sys, pathpolicy.Default(), nil, slog.New(slog.DiscardHandler)))
}

// DefaultLocker returns the locker of a node with kubelet's directory as the only allowed
// directory.
func DefaultLocker(sys System) *Locker {
	return NewLocker(sys, pathpolicy.Default(), DefaultFinder(sys), LockOptions{})
}
