// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"sync"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// watchers are the registrations of NotifyArrivals.
type watchers map[*watcher]struct{}

type watcher struct {
	class   winid.GUID
	arrived chan struct{}
}

// notify tells the watchers of a class that an interface came or went.
func (s *System) notify(class winid.GUID) {
	if s.settings.NoNotices {
		return
	}
	for w := range s.watchers {
		if w.class != class {
			continue
		}
		select {
		case w.arrived <- struct{}{}:
		default: // there is a notice that wasn't taken yet
		}
	}
}

// NotifyArrivals is CM_Register_Notification for a class of interfaces. Notices of
// arrival and removal are merged: one is kept until it is taken.
func (s *System) NotifyArrivals(ctx context.Context, class winid.GUID) (arrived <-chan struct{}, stop func(), err error) {
	w := &watcher{class, make(chan struct{}, 1)}
	err = s.call(ctx, Call{win.CallNotifyArrivals, class.String()}, func() error {
		s.watchers[w] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	tracked := s.track.Track("notices of class " + class.String())
	return w.arrived, sync.OnceFunc(func() {
		tracked()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}), nil
}
