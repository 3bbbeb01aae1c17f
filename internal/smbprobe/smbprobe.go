// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package smbprobe asks SMB servers whether paths are there. Windows can't be made to
// give up a call to a server that doesn't answer, so the calls are made apart from their
// callers, who leave when their context ends. How many are under way, package wincalls
// bounds.
package smbprobe

import (
	"context"
	"errors"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// patience is for callers without a deadline. A dead server keeps those who ask it for 20
// to 60 seconds.
const patience = 90 * time.Second

// Prober asks servers whether paths are there.
type Prober struct {
	sys     win.Files
	flights operation.Flights[string, struct{}] // by folded path
}

// New returns a prober of the servers that sys knows. The groups of one node share it.
func New(sys win.Files) *Prober { return &Prober{sys: sys} }

// Probe returns the error that Windows has for a path, nil if it is there. Callers
// for one path share one call. The end of ctx gives ctx's error; without a deadline,
// a server that doesn't answer gives csiproxy.ErrUnavailable after a while.
//
// Windows logs in to whatever server it is asked about: callers must know that the server
// may be trusted with that.
func (p *Prober) Probe(ctx context.Context, path unc.Path) error {
	_, err := p.flights.Do(ctx, path.Folded(), patience, func(ctx context.Context) (struct{}, error) {
		_, err := p.sys.FileAttributes(ctx, path.String())
		return struct{}{}, err
	})
	if errors.Is(err, operation.ErrSilent) {
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "the SMB server does not answer")
	}
	return err
}

// Forget makes the next caller for a path on the share of root begin a new probe,
// since those under way may have seen what was before.
func (p *Prober) Forget(root unc.Path) {
	share := root.Root()
	p.flights.Forget(func(path string) bool { return path == share || strings.HasPrefix(path, share+`\`) })
}
