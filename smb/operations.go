// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package smb

import "context"

// Operations are the operations of this group, with the same meaning in process
// (package node) and over the pipe (package client). All methods may be called
// concurrently. Errors are of the classes in package csiproxy.
type Operations interface {
	// NewSMBGlobalMapping maps the share of remotePath, \\server\share or a directory on
	// it, for the whole node. If localPath isn't empty, it then becomes a directory link
	// to remotePath, with a backslash at its end, in a directory that must be there.
	//
	// A mapping of the share that works is kept, whoever's credentials it was made with.
	// A mapping that fails is removed and made again only if the server says that there is
	// no such share, or refuses the mapping's credentials, and c are others. Any other
	// failure may pass, and pods may still use the mapping: it is kept, and the error is
	// csiproxy.ErrUnavailable, csiproxy.ErrPermissionDenied or
	// csiproxy.ErrFailedPrecondition. So is what goes wrong with a directory on the share;
	// a missing one is a success.
	//
	// Credentials that the server refuses give csiproxy.ErrUnauthenticated, a missing
	// share csiproxy.ErrNotFound, another user's mapping of the same server
	// csiproxy.ErrFailedPrecondition, and something else at localPath, which stays,
	// csiproxy.ErrAlreadyExists: a link to the same remote path there is a success. What
	// goes wrong with the link doesn't undo the mapping.
	NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c Credentials) error
	// RemoveSMBGlobalMapping removes the mapping of the share of remotePath, \\server\share
	// or a directory on it, whoever uses it; no such mapping is csiproxy.ErrNotFound. Links
	// to the share stay.
	RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error
}
