// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mappings does the operations on the node's SMB global mappings: shares that
// every session of the node, and every container, can use without credentials of its
// own.
//
// The mapping of a share is one, however many pods use it. Each operation first looks
// at what Windows has and then does what is missing, so it may be repeated, also
// after a process that died half-way through it. Mappings end with a restart of the
// node.
//
// # When a mapping is made again
//
// All pods of the node lose a mapping that is removed. So it is removed only if it fails
// for all of them already, and only if making it again can help. What Windows says about
// the root of the share decides that, together with what is known about credentials: for
// the mappings that this process has made, whether the user and the password are those of
// the caller. Names and links that pods have put on the share can't decide it.
//
//	mapping  root of the share               caller's credentials     what happens
//	none     isn't asked                     any                      it is made
//	there    is there                        any                      kept: success
//	there    5, but the directory on the     any                      kept: success
//	         share that is meant is there
//	there    1312 logon session gone         any                      made again
//	there    5, and Windows lists the        not known                made again
//	         mapping as disconnected
//	there    86, 1326, 1330, 1907, 2202:     those of the mapping     kept: Unauthenticated
//	         the password or the name isn't  others, or not known     made again
//	         right
//	there    1327, 1331, 1385: the account   of the mapping's user    kept: Unauthenticated
//	         may not be used                 others, or not known     made again
//	there    1909 locked out for some time   any                      kept: Unauthenticated
//	there    any other error, or no answer   any                      kept: PermissionDenied,
//	                                                                  FailedPrecondition or
//	                                                                  Unavailable
//
// Nobody loses a mapping that works:
//
//   - A mapping has one session with its server, for the whole node. If Windows has to
//     ask for a new session and the server refuses it, it refuses everybody. If an old
//     session still works although the password was changed, the root is there.
//   - Credentials can't be tried beside a mapping: Windows allows one user for each server,
//     and the old password isn't known to go back to. A caller with a wrong password may
//     therefore cost the mapping, but only one that was refused already.
//   - A mapping whose credentials are known to be the caller's can't become better by
//     being made again with them. It stays, and works again when the server takes them
//     again: an account is unlocked, a domain controller learns the password.
//   - Away servers, networks, sick disks, lack of resources, and errors that nobody has
//     thought of pass. Windows connects such a mapping again by itself. 67, no such share, is
//     one of them: Windows' WebDAV client gives it for a server that is away, and a share that
//     was removed by mistake comes back.
//   - After a restart of the node Windows Server 2025 may list a mapping that has lost its
//     credentials (https://github.com/kubernetes-sigs/azurefile-csi-driver/pull/3416). It can't be
//     told from one that the daemon has made before its own restart. Either has no connection, and
//     denies access to everybody.
//   - The root is asked twice: once without the lock of the server, and once with it. But a
//     refused log-on isn't tried again so soon: see package smblogon.
//
// # When a mapping is removed
//
// One that nothing uses is removed at the unstage of its last volume: see [Mappings.RemoveUnused],
// and for drivers of the group smb [Mappings.RemoveSMBGlobalMapping] and package storage's page.
//
// # Other mappings of a server
//
// If Windows refuses to make a mapping because others of the server have other
// credentials, these are judged by the same table. If all of them are to be made again,
// they make way. If one is kept, none is removed, and the caller gets FailedPrecondition.
package mappings

import (
	"context"
	"strings"

	"github.com/csi-proxy/csi-proxy/smb"

	"github.com/csi-proxy/csi-proxy/internal/nodeops/shared"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/smblogon"
	"github.com/csi-proxy/csi-proxy/internal/smbprobe"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what the operations on mappings use of Windows.
type System interface {
	pathpolicy.System
	win.DeviceOpener
	win.SMBMappings
	win.FileSystems
	win.Registry
}

// Options change how the operations behave.
type Options = shared.Options

// Mappings are the SMB global mappings of a node. All methods may be called
// concurrently.
type Mappings struct {
	sys     System
	paths   *pathpolicy.Policy
	options Options
	claims  claims
	drivers drivers
	logOns  *smblogon.Memory
}

// New returns the operations on the mappings of sys. Local paths are those that
// paths allows.
func New(sys System, paths *pathpolicy.Policy, o Options) *Mappings {
	o = o.On(sys, paths)
	if o.Shares == nil {
		o.Shares = smbprobe.New(sys, smblogon.New(o.Logger))
	}
	return &Mappings{sys: sys, paths: paths, options: o, logOns: o.Shares.LogOns(),
		claims: claims{byRoot: make(map[string]claim)}}
}

// NewSMBGlobalMapping implements [smb.Operations].
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/create-msft-smbglobalmapping
func (m *Mappings) NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c smb.Credentials) error {
	return operation.Do(ctx, m.options.Runner, "NewSMBGlobalMapping", quote.Text(remotePath),
		func(ctx context.Context) error {
			w, err := m.Parse(remotePath, localPath, c)
			if err != nil {
				return err
			}
			return m.Map(ctx, w)
		})
}

// RemoveSMBGlobalMapping implements [smb.Operations].
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/remove-msft-smbglobalmapping
func (m *Mappings) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return operation.Do(ctx, m.options.Runner, "RemoveSMBGlobalMapping", quote.Text(remotePath),
		func(ctx context.Context) error {
			remote, err := parseMapped(remotePath)
			if err != nil {
				return err
			}
			ctx, rights, err := m.Rights(ctx, remote)
			if err != nil {
				return err
			}
			defer rights.Release()
			return m.unmapForDriver(ctx, rights)
		})
}

// parseMapped checks the name of a share that is to be unmapped. One backslash at its beginning
// is taken as two: Trident writes \server\share, and no path on a drive is meant here.
func parseMapped(path string) (unc.Path, error) {
	if strings.HasPrefix(path, `\`) && !strings.HasPrefix(path, `\\`) {
		path = `\` + path
	}
	return unc.Parse(path)
}
