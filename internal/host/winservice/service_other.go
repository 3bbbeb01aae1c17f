// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package winservice

import "context"

func runManaged(func(context.Context, func()) error, Options) error {
	return Unsupported("RunService", "")
}

// Lock returns csiproxy.ErrUnimplemented.
func Lock() (unlock func() error, err error) {
	return nil, Unsupported("change services", "")
}

// OnSystemDrive returns the path: only Windows has drives.
func OnSystemDrive(path string) string { return path }

// PrepareLogDirectory does nothing.
func PrepareLogDirectory(string) (warning string) { return "" }
