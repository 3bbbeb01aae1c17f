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
	// directory on the share. A localPath becomes a directory link to remotePath, with a
	// backslash at the end of the target; empty means no link. Missing parents of localPath are
	// made, and stay if a later step fails.
	//
	// A working mapping is kept, even if its credentials differ from c. A failing mapping is
	// removed and made again in two cases: the server reports that the share is missing, or
	// the server refuses the mapping's credentials and c differs. Any other failure may pass
	// while pods use the mapping. Then the mapping is kept, and the error is
	// csiproxy.ErrUnavailable, csiproxy.ErrPermissionDenied or csiproxy.ErrFailedPrecondition.
	// The directory of remotePath may be missing on the share.
	//
	// The zero value of c means the node's own account, unless node.Options.RefuseNodeAccount
	// forbids it.
	//
	// If the server refuses the credentials, the error is csiproxy.ErrUnauthenticated. A missing
	// share is csiproxy.ErrNotFound. A mapping of a different user on the same server is
	// csiproxy.ErrFailedPrecondition, because Windows allows one user per server. Anything but a
	// link to remotePath at localPath stays, and is csiproxy.ErrAlreadyExists. The mapping stays
	// even if making the link fails.
	NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c csiproxy.SMBCredentials) error
	// RemoveSMBGlobalMapping removes the mapping of a share. While links lead to the share, the
	// mapping stays and the call succeeds; Rmdir of the last link then removes the mapping,
	// unless the process has restarted since. remotePath is \\server\share or a directory on the
	// share, with one or two backslashes at its beginning. A missing mapping is
	// csiproxy.ErrNotFound, unless it has gone with the last link within the last hour.
	//
	// Mappings made by other programs have names of their own: the path of a directory, or a
	// drive letter. Such a mapping goes at once if its server refuses it.
	RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error
}
