// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package smb does the operations on the node's SMB global mappings: shares that
// every session of the node, and every container, can use without credentials of its
// own.
//
// The mapping of a share is one, however many pods use it. Each operation first looks
// at what Windows has and then does what is missing, so it may be repeated, also
// after a process that died half-way through it. Mappings end with a restart of the
// node.
package mappings

import (
	"context"
	"log/slog"

	"github.com/csi-proxy/csi-proxy/smb"

	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/smbprobe"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what the operations on mappings use of Windows.
type System interface {
	pathpolicy.System
	win.SMBMappings
}

// Options change how the operations behave. The zero value is the default.
type Options struct {
	// WithoutPrivacy accepts servers that don't encrypt. Default: they are refused.
	WithoutPrivacy bool
	// Logger gets what an operation passes over without failing. Default: none.
	Logger *slog.Logger
	// Runner runs and observes the operations. The groups of one node share it.
	// Default: its own.
	Runner *operation.Runner
	// Shares asks servers what is on their shares. The groups of one node share it.
	// Default: its own.
	Shares *smbprobe.Prober
}

// Mappings are the SMB global mappings of a node. All methods may be called
// concurrently.
type Mappings struct {
	sys     System
	paths   *pathpolicy.Policy
	options Options
	// locks serialises changes of mappings by server, in lower case: Windows lets
	// all mappings of a server use the same credentials only. Looking takes no lock,
	// since a server may keep one waiting.
	locks operation.Locks[string]
	users users
}

// New returns the operations on the mappings of sys. Local paths are those that
// paths allows.
func New(sys System, paths *pathpolicy.Policy, o Options) *Mappings {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Runner == nil {
		o.Runner = operation.NewRunner(nil)
	}
	if o.Shares == nil {
		o.Shares = smbprobe.New(sys)
	}
	return &Mappings{sys: sys, paths: paths, options: o, users: newUsers()}
}

// NewSMBGlobalMapping implements [smb.Operations].
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/create-msft-smbglobalmapping
func (m *Mappings) NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c smb.Credentials) error {
	return operation.Do(ctx, m.options.Runner, "NewSMBGlobalMapping", quote.Text(remotePath), func(ctx context.Context) error {
		remote, err := unc.Parse(remotePath)
		if err != nil {
			return err
		}
		if err := c.Validate(); err != nil {
			return err
		}
		if localPath == "" {
			return m.ensure(ctx, remote, c)
		}
		local, err := m.paths.Parse(localPath, pathpolicy.MaxPath)
		if err != nil {
			return atLocal(localPath, err)
		}
		if err := m.ensure(ctx, remote, c); err != nil {
			return err
		}
		err = m.paths.Reach(ctx, m.sys, local, func(e pathpolicy.Entry) error { return link(ctx, e, remote) })
		return atLocal(localPath, err)
	})
}

// RemoveSMBGlobalMapping implements [smb.Operations].
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/remove-msft-smbglobalmapping
func (m *Mappings) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return operation.Do(ctx, m.options.Runner, "RemoveSMBGlobalMapping", quote.Text(remotePath), func(ctx context.Context) error {
		remote, err := unc.Parse(remotePath)
		if err != nil {
			return err
		}
		unlock, err := m.locks.Lock(ctx, remote.Server())
		if err != nil {
			return err
		}
		defer unlock()
		err = m.sys.RemoveSMBGlobalMapping(ctx, remote.Root())
		if err == nil {
			m.users.removed(remote)
		}
		return err
	})
}
