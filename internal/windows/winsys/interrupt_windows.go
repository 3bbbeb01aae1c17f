// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/windows"
)

// interruptible runs f, a single read-only call, and asks Windows to cancel the call when ctx ends.
// The driver decides whether and when the call ends.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/canceling-pending-i-o-operations
func interruptible(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return f()
	}
	runtime.LockOSThread() // so that the id is that of this thread until f has returned
	defer runtime.UnlockOSThread()
	thread := windows.GetCurrentThreadId()

	ended, interrupting := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupting)
		interrupt(thread, ended)
	})
	err := f()
	close(ended)
	if !stop() {
		<-interrupting // no other call of this thread must be cancelled
	}
	return interrupted(ctx, err)
}

// interrupt cancels the call of a thread, and repeats the attempt until the call has ended: an
// early attempt may come before the call has reached its driver.
func interrupt(threadID uint32, ended <-chan struct{}) {
	thread, err := windows.OpenThread(threadTerminate, false, threadID)
	if err != nil {
		<-ended // it can only wait
		return
	}
	defer windows.CloseHandle(thread)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		cancelSynchronousIo(thread) // fails if there is nothing to cancel
		select {
		case <-ended:
			return
		case <-again.C:
		}
	}
}
