// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shares has the operations on the node's SMB global mappings: shares that every session
// and every container of the node can use without credentials.
//
// A share has one mapping, however many pods use the share. Each operation first asks Windows for
// the current state and then does the missing steps. Operations are idempotent, even after a
// process has died half-way. Mappings end with a restart of the node.
//
// # When a mapping is made again
//
// If a mapping is removed, all pods of the node lose the share. A mapping is therefore removed only
// if it already fails for all pods, and only if making it again can help. The decision depends on
// Windows' answer for the root of the share, and on how the caller's credentials compare to the
// mapping's: the same, another password of the same user, another user, or unknown, because another
// process has made the mapping. Names and links put on the share by pods are ignored.
//
//	answer                  same     password  user     unknown
//	none: not mapped        make     make      make     make
//	0                       use      use       use      use
//	0 for StageShare        use      idle      idle     idle
//	0 without its privacy   idle     idle      idle     idle
//	1312                    replace  replace   replace  replace
//	86 1326 1330 1907 2202  refuse   replace   replace  replace
//	1327 1331 1385          refuse   refuse    replace  replace
//	1909                    refuse   refuse    refuse   refuse
//	5                       refuse   refuse    refuse   refuse
//	5 while disconnected    refuse   refuse    refuse   replace
//	any other               refuse   refuse    refuse   refuse
//
// An idle mapping is replaced. A mapping in use serves a caller if the credentials of the mapping
// are unknown. A denied root (5) counts as 0 if the wanted directory on the share exists.
//
// Working mappings stay for everybody:
//
//   - A mapping has one session with its server, for the whole node. If Windows needs a new session
//     and the server refuses, all pods are refused. While an old session works after a change of
//     the password, the root is there.
//   - Credentials can't be tried beside a mapping: Windows allows one user for each server, and a
//     return to the old password is impossible because CSI Proxy doesn't know it. A caller with a
//     wrong password may therefore cost the mapping, but only an already refused mapping.
//   - Making a mapping again with the caller's own credentials can't help. The mapping stays, and
//     works again once the server accepts the credentials: an account is unlocked, a domain
//     controller learns the password.
//   - All remaining errors count as transient: a server or network that is down, a sick disk, lack
//     of resources. Windows then reconnects the mapping by itself. Error 67, "no such share", also
//     counts as transient: Windows' WebDAV client gives 67 for a server that is down, and a share
//     removed by mistake comes back.
//   - After a restart of the node, Windows Server 2025 may list a mapping that has lost its
//     credentials (https://github.com/kubernetes-sigs/azurefile-csi-driver/pull/3416). The mapping
//     then has no connection, denies access to everybody, and looks like a mapping from before a
//     restart of the daemon.
//   - The root is queried twice: before and after taking the lock of the server. The second query
//     never repeats a refused log-on, since type logOns throttles log-ons.
//
// # Other mappings of a server
//
// CSI Proxy maps shares, without a drive letter. Other programs map directories (csi-driver-smb in
// a HostProcess container, kubelet's mount-utils), use drive letters, or map persistently. The name
// of a mapping is its name in Windows' list: the drive letter, or the remote path. If Windows
// refuses a mapping (1219) because of other mappings of the same server, the first table's action
// for each of them decides its fate:
//
//	the other mapping                       use, idle  replace  refuse
//	of the wanted share, of another maker   serves     holds    holds
//	of another share, made by CSI Proxy     holds      goes     holds
//	of another share, of another maker      holds      holds    holds
//
// A mapping that serves takes the place of the wanted mapping. If a mapping holds the server,
// nothing is removed, and the caller gets FailedPrecondition with the name and the maker of the
// mapping.
//
// # When a mapping is removed
//
// When the last volume on a share is unstaged and nothing else uses the mapping, the mapping is
// removed: see [Mappings.RemoveUnused]. For requests of drivers and administrators see
// [Mappings.RemoveSMBGlobalMapping] and the documentation of csiproxy.StorageOperations.
package shares

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// System has the Windows calls of the operations on mappings.
type System interface {
	pathpolicy.System
	win.DeviceOpener
	win.SMBMappings
	win.FileSystems
	win.Registry
	SystemWindowsDirectory(ctx context.Context) (string, error)
}

// Options configure the operations.
type Options struct {
	// WithoutPrivacy accepts SMB servers without encryption. Default: they are refused.
	WithoutPrivacy bool
	// RefuseNodeAccount refuses mappings with the node's own account. Default: an empty user name
	// stands for the node's account.
	RefuseNodeAccount bool

	// Logger gets each change of the node, and each fault that an operation survives.
	Logger *slog.Logger
	// Observer is called after each operation. Default: none.
	Observer operation.Observer
	// Locks locks shares and servers before a change. The groups of one node share the locker.
	// Queries take no lock, since a server may be slow to answer.
	Locks *usage.Locker
	// Users finds the users of disks and volumes.
	Users *usage.Finder
	// Shared remembers requests and log-ons. The groups of a node and of its drivers have the same
	// Shared.
	Shared *Shared
}

// Shared remembers the requests and log-ons of a node and its drivers.
type Shared struct {
	requests *requests
	logOns   *logOns
}

// NewShared returns an empty Shared. The logger gets each refused log-on. ownerOf returns the
// driver that owns the server of a UNC path, or "".
func NewShared(log *slog.Logger, ownerOf func(path string) (driver string)) *Shared {
	return &Shared{&requests{byRoot: make(map[string]request)}, newLogOns(log, ownerOf)}
}

// RefusedLogOns returns how many accounts SMB servers have refused lately, and how many calls were
// held back with the answer of an earlier log-on.
func (s *Shared) RefusedLogOns() (accounts int, heldBack uint64) { return s.logOns.refused() }

// Mappings are the SMB global mappings of a node or of one driver. All methods are safe for
// concurrent use. The groups of one node use the same Mappings to share queries.
type Mappings struct {
	*Shared
	sys     System
	paths   *pathpolicy.Policy
	options Options
	probes  operation.NextRun[string, struct{}] // by folded path
	lists   operation.NextRun[struct{}, []win.SMBMapping]
	making  atomic.Int64 // calls that may be making a mapping
}

// New returns the operations on the mappings of sys. paths decides which local paths are allowed.
func New(sys System, paths *pathpolicy.Policy, o Options) *Mappings {
	m := &Mappings{Shared: o.Shared, sys: sys, paths: paths, options: o}
	m.probes.Timeout, m.lists.Timeout = queryTimeout, queryTimeout
	return m
}

// NewSMBGlobalMapping implements [published.SMBOperations].
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/create-msft-smbglobalmapping
func (m *Mappings) NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c csiproxy.SMBCredentials) (
	err error) {
	defer m.options.Observer.End("NewSMBGlobalMapping", quote.Text(remotePath), time.Now(), &err)
	wanted, err := m.Parse(remotePath, localPath, c)
	if err != nil {
		return err
	}
	return m.Map(ctx, wanted)
}
