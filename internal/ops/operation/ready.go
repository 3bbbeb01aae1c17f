// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Timing of UntilReady. StorageDsc, which prepares disks of many clouds, waits 3 to 30 seconds
// after making a partition: the partition shows no sign of when Windows is ready.
//
// Source: https://github.com/dsccommunity/StorageDsc/blob/71dd784/source/DSCResources/DSC_Disk/DSC_Disk.psm1#L632
const (
	readyTimeout  = 30 * time.Second
	firstRepeat   = 50 * time.Millisecond
	longestRepeat = 500 * time.Millisecond
	// answerTime is left of the caller's deadline for the answer.
	answerTime = time.Second
)

// UntilReady makes a change, and repeats it while Windows refuses the change and the precondition
// holds, for 30 seconds or until shortly before ctx's deadline. In the first seconds after a disk
// arrives or a partition is made, Windows refuses changes with various errors unrelated to the
// cause. UntilReady returns the error of the precondition, or the last error of the change. A final
// error ends the wait at once (see IsFinal).
func UntilReady(ctx context.Context, precondition, change func() error) error {
	polling := Polling{Timeout: readyTimeout, First: firstRepeat, Longest: longestRepeat}
	if deadline, ok := ctx.Deadline(); ok {
		polling.Timeout = max(0, min(polling.Timeout, time.Until(deadline)-answerTime))
	}
	var last error
	for polling.Next(ctx) {
		if err := precondition(); err != nil {
			if ctx.Err() != nil && last != nil && !errors.Is(err, last) {
				err = fmt.Errorf("%w: %w", err, last)
			}
			return err
		}
		if last = change(); last == nil || IsFinal(last) {
			return last
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), last)
	}
	return last
}

// IsFinal reports whether a change that failed with err will fail again after any wait: the
// arguments are wrong, Windows lacks support, the device has left, or CSI Proxy itself refuses the
// change. All other errors may pass.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/format-msft-volume has the
// results about an argument or missing support (1, 5, 7, 43000 to 43005), mapped to
// ErrorInvalidParameter and ErrorNotSupported by package winsys. Whether the other results pass is
// undocumented. 43006 ("read only") does: https://github.com/dsccommunity/StorageDsc/issues/85
func IsFinal(err error) bool {
	if winerr.IsGone(err) || winerr.IsAny(err, winerr.ErrorInvalidParameter, winerr.ErrorNotSupported, winerr.ErrorInvalidFunction,
		winerr.FVELockedVolume, winerr.WBEMInvalidNamespace, winerr.WBEMInvalidClass) {
		return true
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return !errors.As(err, new(winerr.Errno)) && csiproxy.KindOf(err) != csiproxy.ErrUnavailable
}
