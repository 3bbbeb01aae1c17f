// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

func TestWatchService(t *testing.T) {
	gone := &csiproxy.Error{Op: "open", Kind: csiproxy.ErrNotFound}
	for _, tt := range []struct {
		name   string
		states func(since time.Duration) (winservice.State, error)
		err    error
		after  time.Duration
		said   []string
	}{
		{
			name:   "runs until the command is to end",
			states: func(time.Duration) (winservice.State, error) { return winservice.Running, nil },
			after:  time.Hour, said: []string{"state=running"},
		},
		{
			name: "is restarted after a failure",
			states: func(since time.Duration) (winservice.State, error) {
				if since > time.Minute && since < time.Minute+15*time.Second {
					return winservice.Stopped, nil
				}
				return winservice.Running, nil
			},
			after: time.Hour, said: []string{"state=running", "state=stopped", "state=running"},
		},
		{
			name: "stays stopped",
			states: func(since time.Duration) (winservice.State, error) {
				if since >= time.Minute {
					return winservice.Stopped, nil
				}
				return winservice.Running, nil
			},
			err: csiproxy.ErrUnavailable, after: time.Minute - watchInterval + watchTimeout,
			said: []string{"state=running", "state=stopped"},
		},
		{
			name: "is removed",
			states: func(since time.Duration) (winservice.State, error) {
				if since >= time.Minute {
					return 0, gone
				}
				return winservice.Running, nil
			},
			err: csiproxy.ErrNotFound, after: time.Minute, said: []string{"state=running"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				start := time.Now()
				var log bytes.Buffer
				err := watchService(ctx, "csi-proxy", func(string) (winservice.Status, error) {
					state, err := tt.states(time.Since(start))
					return winservice.Status{State: state}, err
				}, slog.New(slog.NewTextHandler(&log, nil)))
				if !errors.Is(err, tt.err) {
					t.Errorf("error %v", err)
				}
				if after := time.Since(start); after != tt.after {
					t.Errorf("after %v", after)
				}
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				if len(lines) != len(tt.said) {
					t.Fatalf("log:\n%s", &log)
				}
				for i, want := range tt.said {
					if !strings.Contains(lines[i], want) {
						t.Errorf("log line %q hasn't %q", lines[i], want)
					}
				}
			})
		})
	}
}

// While another program has the pipes, an installation is repeated, and said once.
func TestWhenReleased(t *testing.T) {
	held := &csiproxy.Error{Op: "StopService", Kind: csiproxy.ErrFailedPrecondition, Err: winservice.ErrHeld}
	other := errors.New("no such file")
	for name, tt := range map[string]struct {
		last    error
		ends    time.Duration // when the command is to end
		want    error
		after   time.Duration
		attempt int
	}{
		"free later":      {nil, time.Hour, nil, 2 * watchTimeout, 3},
		"another error":   {other, time.Hour, other, 2 * watchTimeout, 3},
		"told to end":     {held, time.Minute + time.Second, nil, time.Minute + time.Second, 3},
		"still not freed": {held, 10 * time.Minute, nil, 10 * time.Minute, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				ctx, cancel := context.WithTimeout(t.Context(), tt.ends)
				defer cancel()
				start, attempts := time.Now(), 0
				err := whenReleased(ctx, slog.New(slog.NewTextHandler(&log, nil)), func() error {
					if attempts++; attempts < 3 {
						return held
					}
					return tt.last
				})
				if !errors.Is(err, tt.want) || time.Since(start) != tt.after || attempts < tt.attempt {
					t.Errorf("%v after %v and %d attempts", err, time.Since(start), attempts)
				}
				if strings.Count(log.String(), "waiting until the pipes are free") != 1 {
					t.Errorf("the log:\n%s", &log)
				}
			})
		})
	}
}
