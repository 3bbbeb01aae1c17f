// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"context"
	"errors"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

const (
	// withNotices is the time between two looks where Windows gives notices: until one comes, a look
	// would find nothing. It is as long as it gets where there are none.
	withNotices = 250 * time.Millisecond
	// whileAsked is the longest time between looks while Windows is asked whether the volumes are
	// ready. It may never answer, and a disk may go offline again meanwhile.
	whileAsked = time.Second
	// askPatience bounds the question. It is less than the time after which a call that isn't
	// answered counts as overdue ([wincalls.Patience]).
	askPatience = 8 * time.Second
	// interruptPatience is how long the end of a wait waits for the end of the question.
	interruptPatience = time.Second
)

// await calls look until it returns true, and then returns true. If that takes longer than
// patience, it returns false. Looks come when volumes arrive or leave, by Windows' notices.
// Several changes may give one notice, a volume may need a moment after its notice, and some
// changes give none. So if nothing has come for a moment, Windows is asked to answer when the
// volumes are ready, and looks come seldom. If it doesn't answer that, or has answered it too
// early, they come as often as before.
func (f *Finder) await(ctx context.Context, n disk.Number, patience time.Duration,
	look func() (bool, error)) (bool, error) {
	polling := operation.Polling{Patience: patience}
	arrived, stop, noticeErr := f.sys.NotifyArrivals(ctx, win.InterfaceClassVolume)
	if noticeErr == nil {
		defer stop()
		polling.Wake, polling.First = arrived, withNotices
	} // else polling does alone
	begin := time.Now()
	if !f.noReady.Load() {
		waiting, answered := context.WithCancel(ctx)
		defer answered()
		end := func() {}
		defer func() { end() }()
		asked, seldom := false, polling
		seldom.Longest = whileAsked
		done, err := operation.Poll(waiting, seldom, func() (bool, error) {
			done, err := look()
			if err == nil && !done && !asked && time.Since(begin) >= withNotices {
				asked, end = true, f.ask(ctx, n, answered)
			}
			return done, err
		})
		if !errors.Is(err, context.Canceled) || ctx.Err() != nil {
			return done, err
		}
		polling.Patience = max(0, patience-time.Since(begin))
	}
	return operation.Poll(ctx, polling, look)
}

// ask asks Windows to answer when all volumes of disk n are ready, and calls answered when it has,
// or won't. end ends the question. A panic is the caller's: here it would end the process.
func (f *Finder) ask(ctx context.Context, n disk.Number, answered func()) (end func()) {
	ctx, given := wincalls.Optional(ctx)
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	ended := make(chan struct{})
	var died any
	go func() {
		defer close(ended)
		defer func() { died = recover() }()
		defer given()
		defer answered()
		f.awaitReady(ctx, n)
	}()
	return func() {
		cancel()
		select {
		case <-ended:
			if died != nil {
				panic(died)
			}
		case <-time.After(interruptPatience):
			f.noReady.Store(true)
		}
	}
}

// awaitReady waits until the volumes of disk n are ready, or Windows can't tell. It has a handle of
// its own, since other calls on the handle wait meanwhile. If the number has become another
// disk's, the answer comes at a wrong time, which does no harm.
func (f *Finder) awaitReady(ctx context.Context, n disk.Number) {
	h, err := device.Open(ctx, f.sys, win.PhysicalDrive(n), win.GenericRead)
	if err != nil {
		return
	}
	defer h.Close()
	err = h.AwaitReady(ctx)
	if win.IsAny(err, win.ErrorInvalidFunction, win.ErrorNotSupported, win.ErrorInvalidParameter) {
		f.noReady.Store(true)
	}
}
