// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Events makes events in the cluster. Kubelet makes one of a NodeStageVolume that fails, and
// none of a NodeUnstageVolume, whose pod is gone by then. So an administrator would see only
// that a volume stays attached.
type Events interface {
	// Warn makes an event of type Warning on the node, with a reason in one word. An error is
	// logged.
	Warn(ctx context.Context, reason, message string) error
}

// ClaimEvents are Events that also reach who owns the volume's claim.
type ClaimEvents interface {
	Events
	// WarnClaim makes an event of type Warning on the claims of a volume.
	WarnClaim(ctx context.Context, volumeID, reason, message string) error
}

// eventTimeout is how long a call may wait for its event, which must not delay its answer for
// long.
const eventTimeout = 5 * time.Second

// warnOfUnstage makes an event of an unstage that was refused, such as since a process has a
// file of the volume open. An error that passes by itself is none.
func (s *Server) warnOfUnstage(ctx context.Context, volumeID string, err error) {
	if s.options.Events == nil || status.Code(withCode(err)) != codes.FailedPrecondition {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	message := "volume " + volumeID + " can't be unstaged, so it stays attached: " + err.Error()
	const reason = "VolumeUnstageRefused"
	err = s.options.Events.Warn(ctx, reason, message)
	if claims, ok := s.options.Events.(ClaimEvents); ok {
		err = errors.Join(err, claims.WarnClaim(ctx, volumeID, reason, message))
	}
	if err != nil {
		s.options.Logger.Warn("no event can be made", "volume", volumeID, "err", err)
	}
}
