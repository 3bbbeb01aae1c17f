// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Excluder is what keeping other processes from a disk takes of Windows.
type Excluder interface {
	OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error)
	SystemWindowsDirectory(ctx context.Context) (string, error)
}

// How long to wait for another process that changes the same disk.
const (
	excludePatience = 10 * time.Second
	excludeInterval = 50 * time.Millisecond
)

// Exclude keeps other processes that use this package, such as a driver with the library
// beside the daemon, from changing the disk n until release is called. Locks within the
// process can't, and Windows has no call that looks at a disk and changes it in one step.
//
// What excludes is an empty file in Windows' directory, where only administrators can make
// one, that is open without sharing. The handle goes with its process, however that ends,
// and the file with the handle. It is there for the time of the change only: a disk that
// needs none isn't waited for.
//
// A disk that another process keeps for longer than ten seconds is
// csiproxy.ErrUnavailable.
func Exclude(ctx context.Context, sys Excluder, n disk.Number) (release func(), err error) {
	return exclude(ctx, sys, fmt.Sprintf("disk-%d", n), "the disk")
}

// ExcludeFromShare is Exclude for the mapping of a share and the links to it. root names the
// share, with the same text for the same share.
func ExcludeFromShare(ctx context.Context, sys Excluder, root string) (release func(), err error) {
	name := sha256.Sum256([]byte(root)) // which has no characters that a file can't have
	return exclude(ctx, sys, fmt.Sprintf("share-%x", name[:8]), "the mapping of the share")
}

func exclude(ctx context.Context, sys Excluder, name, what string) (release func(), err error) {
	windows, err := sys.SystemWindowsDirectory(ctx)
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf(`%s\csi-proxy-%s.lock`, windows, name)
	var file win.File
	err = operation.Retry(ctx, excludePatience, excludeInterval, isExcluded, func() (err error) {
		file, err = sys.OpenFile(ctx, path, win.OpenOptions{
			Access:      win.GenericWrite | win.Delete,
			Disposition: win.FileOpenIf,
			Options:     win.FileNonDirectoryFile | win.FileOpenReparsePoint | win.FileDeleteOnClose,
		})
		return err
	})
	if isExcluded(err) && ctx.Err() == nil {
		return nil, &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "another process of CSI Proxy is changing " + what + "; try again later",
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return func() { file.Close() }, nil
}

// isExcluded reports whether err says that another process has the file open, or is closing
// it.
func isExcluded(err error) bool {
	return errors.Is(err, win.ErrorSharingViolation) || errors.Is(err, win.ErrorDeletePending)
}
