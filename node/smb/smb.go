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
package smb

import (
	"context"
	"log/slog"

	"github.com/csi-proxy/csi-proxy/internal/keylock"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/smbprobe"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is the part of Windows that the operations on mappings use.
type System interface {
	pathpolicy.System
	smbprobe.System
	// SMBGlobalMappings returns the mappings that there are.
	SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error)
	// CreateSMBGlobalMapping maps \\server\share, and connects to it.
	CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error
	// RemoveSMBGlobalMapping removes a mapping, also one in use.
	RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error
}

// Options change how the operations behave. The zero value is the default.
type Options struct {
	// WithoutPrivacy accepts servers that don't encrypt. Default: they are refused.
	WithoutPrivacy bool
	// Logger gets what an operation passes over without failing. Default: none.
	Logger *slog.Logger
	// Runner bounds and observes the operations. The groups of one node share it.
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
	locks keylock.Locks[string]
	users users
}

// New returns the operations on the mappings of sys. Local paths are those that
// paths allows.
func New(sys System, paths *pathpolicy.Policy, o Options) *Mappings {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Runner == nil {
		o.Runner = operation.NewRunner(operation.DefaultMaximum, nil)
	}
	if o.Shares == nil {
		o.Shares = smbprobe.New(sys)
	}
	return &Mappings{sys: sys, paths: paths, options: o, users: newUsers()}
}

// NewSMBGlobalMapping maps the share of remotePath, \\server\share or a directory on
// it, for the whole node. If localPath isn't empty, it then becomes a directory link
// to remotePath, with a backslash at its end, in a directory that must be there.
//
// A mapping of the share that works is kept, whoever's credentials it was made with;
// so is one whose server can't be reached, which is csiproxy.ErrUnavailable, and one
// that Windows has no access through, csiproxy.ErrPermissionDenied: others may use
// it. One that is broken, since the share had gone or the password was changed, is
// removed and made again.
//
// Credentials that the server refuses give csiproxy.ErrUnauthenticated, a missing
// share csiproxy.ErrNotFound, another user's mapping of the same server
// csiproxy.ErrFailedPrecondition, and something else at localPath, which stays,
// csiproxy.ErrAlreadyExists: a link to the same remote path there is a success. What
// goes wrong with the link doesn't undo the mapping.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/create-msft-smbglobalmapping
func (m *Mappings) NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c Credentials) error {
	return operation.Do(ctx, m.options.Runner, "NewSMBGlobalMapping", pathpolicy.Printable(remotePath), func(ctx context.Context) error {
		remote, err := unc.Parse(remotePath)
		if err != nil {
			return err
		}
		if err := c.check(); err != nil {
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
		err = m.paths.Reach(ctx, m.sys, local, func(h *pathpolicy.Held) error { return link(ctx, h, remote) })
		return atLocal(localPath, err)
	})
}

// RemoveSMBGlobalMapping removes the mapping of the share of remotePath, \\server\share
// or a directory on it, whoever uses it; no such mapping is csiproxy.ErrNotFound. Links
// to the share stay.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/remove-msft-smbglobalmapping
func (m *Mappings) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return operation.Do(ctx, m.options.Runner, "RemoveSMBGlobalMapping", pathpolicy.Printable(remotePath), func(ctx context.Context) error {
		remote, err := unc.Parse(remotePath)
		if err != nil {
			return err
		}
		unlock, err := operation.Lock(ctx, &m.locks, remote.Server())
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
