// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// locks are the volumes that a call works on, by their ids.
type locks struct{ held sync.Map }

// try locks a volume. If it is locked, a call on it is under way, and the error is the one
// that CSI requires for that; the CO then tries again.
func (l *locks) try(volumeID string) (unlock func(), err error) {
	if _, busy := l.held.LoadOrStore(volumeID, nil); busy {
		return nil, status.Errorf(codes.Aborted, "another call on %s is under way", volumeID)
	}
	return func() { l.held.Delete(volumeID) }, nil
}
