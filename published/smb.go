// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// SMBOperations are the operations on SMB global mappings.
type SMBOperations interface {
	// NewSMBGlobalMapping maps a share for the whole node. remotePath is \\server\share or a
	// directory on the share. If localPath isn't empty, it becomes a directory link to
	// remotePath, with a backslash at the end of the target. Directories above localPath that
	// are missing are made, as by MountVolume; they stay if a later step fails.
	//
	// A mapping that works is kept, even if it was made with other credentials. A mapping
	// that fails is removed and made again in two cases only: the server says that there is
	// no such share, or it refuses the mapping's credentials and the caller's are others.
	// Any other failure may pass while pods still use the mapping. Then the mapping is kept,
	// and the error is csiproxy.ErrUnavailable, csiproxy.ErrPermissionDenied or
	// csiproxy.ErrFailedPrecondition. A directory that is missing on the share is no error
	// here.
	//
	// The zero value of c stands for the node's own account, which node.Options.RefuseNodeAccount forbids.
	//
	// Credentials that the server refuses are csiproxy.ErrUnauthenticated. A missing share is
	// csiproxy.ErrNotFound. A mapping of another user on the same server is
	// csiproxy.ErrFailedPrecondition, since Windows allows one user per server. If something
	// else than a link to the same remote path is at localPath, it stays, and the error is
	// csiproxy.ErrAlreadyExists. An error of the link doesn't undo the mapping.
	NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c csiproxy.SMBCredentials) error
	// RemoveSMBGlobalMapping removes the mapping of a share. While links lead to the share, the
	// mapping stays: then the call succeeds, and the mapping goes when Rmdir removes the last
	// link, unless the process has restarted since. remotePath is \\server\share or a directory on the share; one
	// backslash at its beginning is enough. If there is no such mapping, the error is
	// csiproxy.ErrNotFound, unless it has gone with the last link.
	//
	// A mapping that another program has made of a directory has the directory's path, and one with a drive letter has
	// that as its name. Such a mapping goes at once if its server refuses it.
	RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error
}
