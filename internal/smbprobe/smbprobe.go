// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package smbprobe asks Windows which SMB shares are mapped, and servers whether paths
// are there. Windows can't be made to give up a call to a server that doesn't answer, so
// the calls are made apart from their callers, who share them and leave when their context
// ends. How many are under way, package wincalls bounds.
package smbprobe

import (
	"context"
	"errors"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/smblogon"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

// patience is how long a server may take to answer. A dead server keeps those who ask it
// for 20 to 60 seconds; nobody waits that long for it, and who asks again meanwhile is told
// at once.
const patience = 10 * time.Second

// System is what a Prober uses of Windows.
type System interface {
	FileAttributes(ctx context.Context, path string) (win.FileAttributes, error)
	SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error)
}

// Prober asks for mappings, and servers whether paths are there.
type Prober struct {
	sys      System
	logOns   *smblogon.Memory
	paths    operation.Flights[string, struct{}] // by folded path
	mappings operation.Flights[struct{}, []win.SMBMapping]
}

// New returns a prober of the mappings and servers that sys knows. It asks nothing of a server
// while logOns holds the credentials back. The groups of one node share it.
func New(sys System, logOns *smblogon.Memory) *Prober { return &Prober{sys: sys, logOns: logOns} }

// LogOns returns what is known of log-ons to servers.
func (p *Prober) LogOns() *smblogon.Memory { return p.logOns }

// Mappings returns the SMB global mappings of the node. Callers share one answer, which
// is never of before a change that this process has made. The end of ctx gives ctx's error.
// If WMI doesn't answer in time, it is csiproxy.ErrUnavailable, and for those who come
// then at once.
func (p *Prober) Mappings(ctx context.Context) ([]win.SMBMapping, error) {
	list, err := p.mappings.Do(ctx, struct{}{}, wincalls.Patience(win.CallSMBGlobalMappings), p.sys.SMBGlobalMappings)
	if silent := new(operation.SilentError); errors.As(err, &silent) {
		return nil, csiproxy.Errorf(csiproxy.ErrUnavailable,
			"WMI has not answered which SMB shares are mapped since %s; try again later",
			silent.Since.UTC().Format(time.RFC3339))
	}
	return list, err
}

// Probe returns the error that Windows has for a path, nil if it is there. Callers
// for one path share one call. The end of ctx gives ctx's error; without a deadline,
// a server that doesn't answer gives csiproxy.ErrUnavailable after a while.
//
// Windows logs in to whatever server it is asked about: callers must know that the server
// may be trusted with that.
func (p *Prober) Probe(ctx context.Context, path unc.Path) error {
	_, err := p.paths.Do(ctx, path.Folded(), patience, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.logOns.Probe(path, func() error {
			_, err := p.sys.FileAttributes(ctx, path.String())
			return err
		})
	})
	if silent := new(operation.SilentError); errors.As(err, &silent) {
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "the SMB server has not answered since %s; try again later",
			silent.Since.UTC().Format(time.RFC3339))
	}
	return err
}

// Look is Probe for the share of path, for who only tells what is wrong with it: see
// smblogon.Memory.Look.
func (p *Prober) Look(ctx context.Context, path unc.Path) error {
	return p.logOns.Look(ctx, path, func() error { return p.Probe(ctx, path.Share()) })
}

// Forget makes the next caller for the mappings, or for a path on the share of root, begin
// again, since what is under way may have seen what was before a change.
func (p *Prober) Forget(root unc.Path) {
	share := root.Root()
	p.paths.Forget(func(path string) bool { return path == share || strings.HasPrefix(path, share+`\`) })
	p.mappings.Forget(func(struct{}) bool { return true })
}
