// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use

import (
	"context"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// How long to wait for another process that changes the same disk.
const (
	excludePatience = 10 * time.Second
	excludeInterval = 50 * time.Millisecond
)

// exclude keeps other processes that use this package, such as a driver with the library
// beside the daemon, from an object until readmit is called. Locks within the process
// can't, and Windows has no call that looks at an object and changes it in one step.
//
// What excludes is an empty file in Windows' directory, where only administrators can make
// one, that is open without sharing. The handle goes with its process, however that ends,
// and the file with the handle. Daemons before and after an upgrade use the same names.
//
// An object that another process keeps for longer than ten seconds is
// csiproxy.ErrUnavailable.
func (o *Owner) exclude(ctx context.Context, name string, k kind) (readmit func(), err error) {
	windows, known := o.windows.Load().(string)
	if !known {
		if windows, err = o.sys.SystemWindowsDirectory(ctx); err != nil {
			return nil, err
		}
		o.windows.Store(windows)
	}
	path := fmt.Sprintf(`%s\csi-proxy-%s.lock`, windows, name)
	var file win.File
	err = operation.Retry(ctx, excludePatience, excludeInterval, isExcluded, func() (err error) {
		file, err = o.sys.OpenFile(ctx, path, win.OpenOptions{
			Access:      win.GenericWrite | win.Delete,
			Disposition: win.FileOpenIf,
			Options:     win.FileNonDirectoryFile | win.FileOpenReparsePoint | win.FileDeleteOnClose,
		})
		return err
	})
	if isExcluded(err) && ctx.Err() == nil {
		return nil, &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "another process of CSI Proxy is changing the " + kinds[k] + "; try again later",
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
	return win.IsAny(err, win.ErrorSharingViolation, win.ErrorDeletePending)
}
